"""The dashboard in a real Chromium: looked at, pressed, attacked."""

from __future__ import annotations

import pytest

from tests.browser.chromium import Page
from tests.serve.conftest import Api
from tests.serve.test_board import HOSTILE, PAGES, remember
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.unconfined]


def enter(page: Page, board: Api, path: str = "/") -> None:
    """Sign in as a person does."""
    page.open(board.url + path)
    page.click("#token")
    page.type(board.token)
    with page.loading():
        page.key("Enter")


def converse(board: Api, text: str, *replies: ScriptedReply) -> str:
    """Have a session with one turn; gives its id."""
    board.say(*replies)
    with board.http() as http:
        body = {"model": "whet", "messages": [{"role": "user", "content": text}]}
        return str(http.post("/v1/chat/completions", json=body).headers["x-whet-session"])


@pytest.mark.slow
def test_the_time_of_a_message_is_above_a_call_that_waits(page, board):
    write = PracticeCall("write_file", '{"path": "a.txt", "content": "x"}')
    board.say(ScriptedReply(tool_calls=(write,)), ScriptedReply("Not written."))
    enter(page, board)
    page.eval("document.querySelector('.composer textarea').focus()")
    page.type("write it")
    with page.loading():
        page.click(".composer .send")
    page.until("document.querySelector('.said .step')")
    page.eval("rect = (query) => document.querySelector(query).getBoundingClientRect()")
    for width in (390, 820, 1280):
        page.shape(width, 900)
        assert page.eval("rect('.said.assistant .by').bottom <= rect('.said.assistant .step').top"), width
    page.click(".question button.bad")
    page.until("document.body.textContent.includes('Not written.')")


@pytest.mark.slow
def test_stored_text_never_becomes_markup(page, board):
    (board.workspace / "evil.txt").write_text(HOSTILE)
    session_id = converse(
        board,
        f"{HOSTILE} quokkas",
        ScriptedReply(HOSTILE, tool_calls=(PracticeCall("read_file", '{"path":"evil.txt"}', HOSTILE[:40]),)),
        ScriptedReply(HOSTILE, reasoning=HOSTILE),
    )
    row = remember(board, f"Quokkas say {HOSTILE[:45]}.")
    enter(page, board)
    replayed = f"/sessions/{session_id}?at=3"
    for path in (*PAGES, f"/sessions/{session_id}", replayed, "/sessions?q=quokkas", f"/learning/{row.id}"):
        page.open(board.url + path)
        page.eval("document.querySelectorAll('details').forEach(e => { e.open = true; })")
        assert page.eval("window.owned") is None
        assert page.eval("document.querySelectorAll('main script,main img,a[href^=javascript]').length") == 0
    assert [problem for problem in page.problems() if "Content Security" in problem] == []
    page.open(f"{board.url}/sessions/{session_id}")
    assert "<script>window.owned=1</script>" in page.text() and "<U+202E>" in page.text()


@pytest.mark.slow
def test_every_page_fits_a_phone_in_both_colours(page, board):
    long = "a-name-without-any-space-" * 12
    session_id = converse(
        board,
        long,
        ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command":"true"}', "c1"),)),
        ScriptedReply(long),
    )
    enter(page, board)
    talk = f"/sessions/{session_id}"
    for is_dark, paths in ((False, (*PAGES, talk)), (True, ("/", f"{talk}?at=2"))):
        page.shape(390, 844, is_phone=True, is_dark=is_dark)
        for path in paths:
            page.open(board.url + path)
            assert page.eval("document.documentElement.scrollWidth <= innerWidth"), (path, is_dark)
    assert page.problems() == []


@pytest.mark.slow
def test_a_change_is_undone_with_a_press(page, board):
    row = remember(board, "The staging server is called heron.")
    enter(page, board, f"/learning/{row.id}")
    assert "The staging server is called heron." in page.text()
    with page.loading():
        page.click("form[action$='/undo'] button")
    assert board.call(board.app.learning.owner_service.get_change(row.id)).state == "undone"
    assert "Takes back change" in page.text()


@pytest.mark.slow
def test_a_question_appears_by_itself_and_a_press_answers_it(page, board):
    enter(page, board)
    page.until("!document.querySelector('#live').hidden")
    board.say(
        ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command":"echo z > z.txt"}', "c1"),)),
        ScriptedReply("Made."),
    )
    with board.http() as http:
        session_id = http.post("/api/sessions", json={"title": "from a program"}).json()["id"]
        http.post(f"/api/sessions/{session_id}/turns", json={"text": "make it"})
        page.until("document.querySelector('.question')")
        assert "echo z > z.txt" in page.text() and page.eval("document.title").startswith("(1)")
        with page.loading():
            page.click(".question button[value='once']")
        page.until("!document.querySelector('.question')")
        with http.stream("GET", f"/api/sessions/{session_id}/events?after=0-0") as answer:
            assert any('"type":"turn_end"' in line for line in answer.iter_lines())
    assert (board.workspace / "z.txt").exists()


@pytest.mark.slow
def test_what_changed_while_somebody_typed_is_shown_when_they_leave_the_field(page, board):
    enter(page, board)
    page.until("!document.querySelector('#live').hidden")
    page.eval(
        "window.heard = 0; window.ear = new EventSource('/live');"
        " new Promise((go) => ear.addEventListener('open', go)).then(() => 1)"
    )
    page.eval("ear.addEventListener('change', () => { window.heard += 1; }); 1")
    page.click("#main textarea")
    session_id = converse(board, "hello there", ScriptedReply("Hello."))
    page.until("window.heard")
    link = f"document.querySelector('a[href*=\"{session_id}\"]')"
    assert not page.eval(f"Boolean({link})")
    page.eval("document.activeElement.blur(); 1")
    page.until(link)


@pytest.mark.slow
def test_a_session_is_played_back_with_keys_and_with_play(page, board):
    session_id = converse(
        board,
        "two steps",
        ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command":"true"}', "c1"),)),
        ScriptedReply("End."),
    )
    enter(page, board, f"/sessions/{session_id}?at=1")
    assert page.eval("document.querySelectorAll('.said').length") == 1
    page.key("j")
    page.until("document.querySelectorAll('.said').length === 2")
    page.key("k")
    page.until("document.querySelectorAll('.said').length === 1")
    page.click("#play")
    page.until("document.querySelectorAll('.said').length === 4 && !document.querySelector('#next')")
    assert page.eval("location.search") == "?at=4"
