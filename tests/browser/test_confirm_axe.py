"""What axe finds on the pages of the confirmation service, in both themes and three widths: nothing."""

from __future__ import annotations

import pytest

from tests.browser.chromium import Page
from tests.browser.conftest import Daemon, sign_in
from tests.browser.test_axe import AXE, RUN

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("browser")]
_POLICY = '[[rules]]\naction = "tool:*"\neffect = "ask"\ngrants = ["session", "hour", "host", "times"]\n'
_WIDTHS = (390, 820, 1280)


@pytest.fixture
def granted(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "policy.toml").write_text(_POLICY)
    daemon = Daemon(home, "--policy", str(home / "policy.toml"), "--allow-private-callbacks")
    yield daemon
    daemon.stop()


def test_axe_finds_nothing_on_the_confirmation_pages(page, granted):
    fetch = {"action": "tool:fetch", "details": {"url": "https://example.org/a"}, "session_key": "s"}
    bearer = {"authorization": f"Bearer {granted.token()}"}
    granted.agent.post(f"/confirm/{granted.submit(**fetch)}/approve", json={"grant": "hour"}, headers=bearer)
    pending = granted.submit(action="tool:other", details=fetch["details"])
    risky = granted.submit()
    page.open(granted.url + "/login")
    fields: dict[str, object] = {}
    look(page, "/login", fields)
    sign_in(page, granted)
    paths = "/", f"/r/{pending}", f"/r/{risky}", "/several", "/history", "/devices", "/passkeys", "/log"
    for path in paths:
        page.open(granted.url + path)
        page.eval("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        look(page, path, fields)
    assert fields == {}


def look(page: Page, path: str, fields: dict[str, object]) -> None:
    page.eval(f"{AXE};1")
    for width in _WIDTHS:
        for is_dark in (False, True):
            page.shape(width, 900, is_dark=is_dark)
            if problems := page.eval(RUN, 120.0):
                fields[f"{path} {width} {'dark' if is_dark else 'light'}"] = problems
