"""What a person does on the page, in a real Chromium, with a real service and a waiting agent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.browser.conftest import sign_in
from tests.browser.test_axe import AXE

pytestmark = pytest.mark.slow


def test_a_request_arrives_live_is_denied_with_a_reason_and_the_agent_gets_it(page, daemon):
    sign_in(page, daemon)
    with ThreadPoolExecutor(1) as pool:
        request_id = daemon.submit(action="wipe_database", details={"database": "orders"})
        waiting = pool.submit(daemon.status, request_id, 30)
        page.until(f"document.querySelector('[data-id=\"{request_id}\"].card')")
        assert "wipe_database, high risk" in page.until("document.querySelector('#spoken').textContent")
        page.click(f"[data-id='{request_id}'].card")
        page.until(f"document.querySelector('#detail').dataset.id === '{request_id}'")
        shown = page.text()
        assert "High risk" in shown and "orders" in shown and "not checked" in shown
        page.key("d")
        page.type("wrong database; use staging")
        with page.loading():
            page.key("Enter")
        assert "Denied by owner" in page.text()
        got = waiting.result(30)
    assert (got["status"], got["resolved_by"]) == ("denied", "owner")
    assert got["reason"] == "wrong database; use staging"
    assert page.problems() == []


def test_a_high_risk_approval_is_asked_for_once_more_and_counts_once(page, daemon):
    request_id = daemon.submit(action="deploy_production", details={"version": "2.4"})
    sign_in(page, daemon, f"/r/{request_id}")
    page.key("a")
    with page.loading():
        page.key("Enter")
    assert "Approve deploy_production for agent?" in page.text()
    assert daemon.status(request_id)["status"] == "pending"
    assert page.eval("document.activeElement.id") == "back"
    with page.loading():
        page.click("#approve")
    assert "Approved by owner" in page.text()
    assert daemon.status(request_id)["status"] == "approved"


def test_a_decision_elsewhere_shows_at_once_and_a_stale_press_is_told(page, daemon):
    request_id = daemon.submit(action="send_mail")
    sign_in(page, daemon, f"/r/{request_id}")
    stale = page.eval("new URLSearchParams(new FormData(document.querySelector('form.decide'))).toString()")
    headers, body = {"authorization": f"Bearer {daemon.token()}"}, {"reason": "from the phone"}
    answer = daemon.agent.post(f"/confirm/{request_id}/deny", json=body, headers=headers)
    assert answer.status_code == 200
    page.until("document.querySelector('#detail').dataset.status === 'denied'")
    assert "from the phone" in page.text()
    code = (
        f"fetch('/r/{request_id}/decide', {{method: 'POST', body: {stale!r} + '&verdict=approve',"
        " headers: {'content-type': 'application/x-www-form-urlencoded'}})"
        ".then(r => r.text().then(t => [r.status, t]))"
    )
    status, text = page.eval(code)
    assert status == 409 and "Already denied by owner" in text
    assert daemon.status(request_id)["status"] == "denied"


def test_what_is_typed_and_unfolded_stays_while_others_arrive(page, daemon):
    request_id = daemon.submit(action="edit_file", details={"body": "line\n" * 100, "path": "/etc/hosts"})
    sign_in(page, daemon, f"/r/{request_id}")
    page.eval("document.querySelector('.arguments details').open = true")
    page.click("#reason")
    page.type("half a sen")
    other = daemon.submit(action="another_one")
    page.until(f"document.querySelector('[data-id=\"{other}\"].card')")
    assert page.eval("document.querySelector('#reason').value") == "half a sen"
    assert page.eval("document.activeElement.id") == "reason"
    assert page.eval("document.querySelector('.arguments details').open") is True
    assert page.eval("document.querySelector('#detail').dataset.id") == request_id


def test_keys_move_between_requests_and_help_is_there(page, daemon):
    first = daemon.submit(action="aaa", timeout_seconds=900)
    second = daemon.submit(action="bbb", timeout_seconds=905)
    sign_in(page, daemon, f"/r/{first}")
    page.key("j")
    page.until(f"document.querySelector('#detail').dataset.id === '{second}'")
    assert page.eval("location.pathname") == f"/r/{second}"
    page.key("k")
    page.until(f"document.querySelector('#detail').dataset.id === '{first}'")
    page.key("?")
    assert page.eval("document.querySelector('#help').open") is True
    page.key("Escape")
    page.key("a")
    assert page.eval("document.activeElement.id") == "approve"
    assert daemon.status(first)["status"] == "pending"


def test_edits_are_shown_as_a_diff(page, daemon):
    request_id = daemon.submit(action="edit", details={"before": "a\nmax = 100\n", "after": "a\nmax = 400\n"})
    sign_in(page, daemon, f"/r/{request_id}")
    code = "[...document.querySelectorAll('.diff > div')].map(e => e.className + '|' + e.innerText.trim())"
    lines = page.eval(code)
    assert any(line.startswith("removed|") and "max = 100" in line for line in lines)
    assert any(line.startswith("added|") and "max = 400" in line for line in lines)


def test_it_works_without_javascript(page, daemon):
    request_id = daemon.submit(action="publish_package", details={"name": "left-pad"})
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.open(daemon.url + f"/r/{request_id}")
    page.call("Emulation.setScriptExecutionDisabled", value=False)  # the page's own scripts stay unloaded
    page.eval("document.querySelector('#token').focus()")
    page.type(daemon.token())
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    with page.loading():
        page.key("Enter")
    page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert page.eval("document.querySelector('#live').hidden") is True
    page.eval("document.querySelector('#approve').focus()")
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    with page.loading():
        page.key("Enter")
    page.call("Emulation.setScriptExecutionDisabled", value=False)
    page.eval("document.querySelector('#approve').focus()")
    with page.loading():
        page.key("Enter")
    assert daemon.status(request_id)["status"] == "approved"


def test_history_and_audit_state(page, daemon):
    request_id = daemon.submit(action="rotate_keys", description="quarterly zebra rotation")
    sign_in(page, daemon, "/history?q=zebra")
    assert page.eval("document.querySelectorAll('.records tbody tr').length") == 1
    page.open(daemon.url + "/log")
    assert "Verified up to event" in page.text()
    assert request_id[:8] in page.text()
    page.open(daemon.url + "/history?q=nothinglikethat")
    assert "Nothing fits" in page.text()


def test_a_phone_shows_the_list_then_one_request_with_both_buttons(page, daemon):
    request_id = daemon.submit(action="transfer_funds", details={"amount": "12,000 EUR", "to": "DE00 1234"})
    page.shape(390, 844, is_phone=True)
    sign_in(page, daemon)
    assert page.eval("getComputedStyle(document.querySelector('.pane')).display") == "none"
    with page.loading():
        page.eval(f"document.querySelector('[data-id=\"{request_id}\"].card').click()")
    seen = (
        "[...document.querySelectorAll('#deny, #approve')].every(e => { const r = e.getBoundingClientRect();"
        " return r.top >= 0 && r.bottom <= innerHeight && r.height >= 44; })"
    )
    assert page.eval(seen) is True
    assert page.eval("document.documentElement.scrollWidth <= innerWidth") is True


def test_what_comes_under_a_press_that_is_on_its_way_is_not_approved_by_it(page, daemon):
    request_id = daemon.submit(action="send_mail", details={"to": "ops"}, accepts_edits=True)
    sign_in(page, daemon, f"/r/{request_id}")
    seen = daemon.status(request_id)["digest"]
    change = {"details": {"to": "everybody"}, "digest": seen}
    headers = {"authorization": f"Bearer {daemon.token()}"}
    assert daemon.agent.post(f"/confirm/{request_id}/amend", json=change, headers=headers).status_code == 200
    page.until("document.querySelector('#detail').innerText.includes('everybody')")
    assert page.eval("document.querySelector('#approve').disabled")
    page.click("#approve")
    assert daemon.status(request_id)["status"] == "pending"
    page.until("!document.querySelector('#approve').disabled")
    with page.loading():
        page.click("#approve")
    assert "counted" in page.text().lower() or daemon.status(request_id)["status"] == "pending"


PAGES = ("/", "/several", "/history", "/passkeys", "/log")
RUN = (
    "axe.run(document, {runOnly: ['color-contrast']}).then(found =>"
    " found.violations.map(one => [one.id, one.nodes.map(node => node.html.slice(0, 200))]))"
)
CUT = (
    "[...document.querySelectorAll('.top nav a')].filter(link => { const box = link.getBoundingClientRect();"
    " return box.right > innerWidth || box.left < 0 || !link.checkVisibility(); })"
    ".map(link => link.textContent)"
)
NOTE = "document.querySelector('.same-user').getBoundingClientRect().bottom < innerHeight / 3"


def test_a_phone_shows_the_whole_menu_and_every_page_begins_with_the_note(page, daemon):
    daemon.submit(action="tool:Bash", details={"command": "rm -rf /srv"})
    sign_in(page, daemon)
    for path in PAGES:
        page.open(daemon.url + path)
        for width, height in ((320, 640), (390, 844), (1280, 800)):
            page.shape(width, height, is_phone=width < 600)
            assert page.eval(CUT) == [], (path, width)
            assert page.eval(NOTE), (path, width)
            assert page.eval("document.documentElement.scrollWidth <= innerWidth"), (path, width)
    page.open(daemon.url + "/")
    assert page.eval("document.documentElement.scrollHeight <= innerHeight")  # the panes scroll, not the page


@pytest.mark.soak
def test_texts_of_the_page_have_enough_contrast(page, daemon):
    daemon.submit(action="tool:Bash", details={"command": "rm -rf /srv"})
    sign_in(page, daemon)
    fields: dict[str, object] = {}
    for path in PAGES:
        page.open(daemon.url + path)
        page.eval(f"{AXE};1")
        for is_dark in (False, True):
            page.shape(1280, 900, is_dark=is_dark)
            if problems := page.eval(RUN, 120.0):
                fields[f"{path} {'dark' if is_dark else 'light'}"] = problems
    assert fields == {}
