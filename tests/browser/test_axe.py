"""What axe finds on the pages of the dashboard, light and dark: nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import axe_core_python
import pytest

from tests.browser.chromium import Page
from tests.browser.test_dashboard import enter
from tests.serve.conftest import Api
from tests.serve.test_board import PAGES, remember
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("browser"), pytest.mark.unconfined]
AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text("utf-8")
RUN = (
    "axe.run(document, {resultTypes: ['violations']}).then(found =>"
    " found.violations.map(one => [one.id, one.nodes.map(node => node.html.slice(0, 200))]))"
)
MARKDOWN = "## Done\n\n- `one`\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with PracticeServer() as model:
        made = Api(tmp_path_factory.mktemp("axe"), model, mode="ask", web=True)
        yield made
        made.close()


def test_axe_finds_nothing(page: Page, board: Api) -> None:
    row = remember(board, "We deploy on Tuesdays.")
    write = PracticeCall("write_file", json.dumps({"path": "new.txt", "content": "a\n"}))
    missing = PracticeCall("read_file", '{"path":"none.txt"}')
    board.say(
        ScriptedReply(MARKDOWN, tool_calls=(missing,)),
        ScriptedReply(tool_calls=(write,)),
        ScriptedReply("No?"),
    )
    enter(page, board)
    page.eval("document.querySelector('.composer textarea').value = 'do it'")
    with page.loading():
        page.click(".composer .send")
    page.until("document.querySelector('#asked .question')")
    session = page.eval("location.pathname")
    found: dict[str, object] = {}
    for path in (
        session,
        f"{session}/time",
        f"{session}?at=3",
        "/learning/timeline",
        f"/learning/{row.id}",
        *PAGES,
    ):
        page.open(board.url + path)
        page.eval("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.eval(f"{AXE};1")
        for is_dark in (False, True):
            page.shape(1280, 900, is_dark=is_dark)
            if problems := page.eval(RUN, 120.0):
                found[f"{path} {'dark' if is_dark else 'light'}"] = problems
    assert found == {}
