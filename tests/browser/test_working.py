"""A session worked in from its page, in a real Chromium: begun, streamed, steered, changed, stopped."""

from __future__ import annotations

import json

import pytest

from tests.browser.test_dashboard import enter
from tests.serve.test_board import HOSTILE
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply

# On a busy machine the page may fetch the first message only then; `data-again` says that it came back.
SHOW_THE_FIRST_MESSAGE_AFTER_THE_SECOND_WAS_SENT = """
new MutationObserver((_, sent) => {
  if (!document.querySelector(".pending")) return;
  sent.disconnect();
  document.querySelector("#talk .said.user").remove();
  new MutationObserver((_, back) => {
    if (!document.querySelector("#talk .said.user")) return;
    back.disconnect();
    document.body.dataset.again = "yes";
  }).observe(document.querySelector("#talk"), { childList: true, subtree: true });
}).observe(document.querySelector("#now"), { childList: true });
"""
pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.unconfined, pytest.mark.slow]


def test_a_session_is_worked_in_from_the_page(page, board):
    call = PracticeCall("terminal", json.dumps({"command": "touch one"}))
    write = PracticeCall("write_file", json.dumps({"path": "new.txt", "content": "a\nb\n"}))
    board.say(
        ScriptedReply(f"One 😀 {HOSTILE}\nand **more** words", pieces=30, fault=Fault(stall_after=26)),
        ScriptedReply("I heard you.", tool_calls=(call,)),
        ScriptedReply(tool_calls=(write,)),
        ScriptedReply("All done."),
        ScriptedReply("Never ends", pieces=5, fault=Fault(stall_after=3)),
    )
    enter(page, board)
    page.eval("document.querySelector('.composer textarea').focus()")
    page.type("a first thing")
    with page.loading():
        page.key("Enter")
    # It comes as it is written, before it is stored, and what was said elsewhere stays text.
    page.until("document.querySelector('.writing')?.textContent.startsWith('One 😀 <script>')")
    assert page.eval("document.querySelectorAll('.said.assistant').length") == 0
    assert page.eval("getComputedStyle(document.querySelector('.stop')).display") != "none"
    page.eval(SHOW_THE_FIRST_MESSAGE_AFTER_THE_SECOND_WAS_SENT)
    page.eval("document.querySelector('#say textarea').focus()")
    page.type("and a second")
    page.key("Enter")
    page.until("document.body.dataset.again && !document.querySelector('#say textarea').value")
    assert page.eval("document.querySelector('.pending')?.textContent") == "and a second"
    board.model.wait_for_stall()
    board.model.release()
    # A question comes to the page by itself; the call is changed, and runs as it was changed.
    page.until("document.querySelector('#asked .question')")
    # The conversation follows the question in an update of its own.
    page.until("document.body.innerText.includes('and more words') && !document.querySelector('.pending')")
    page.until("[...document.querySelectorAll('.said.user')].pop().textContent.includes('a second')")
    page.click("#asked .fold summary")
    page.eval("document.querySelector('#asked [name=draft]').value = 'touch changed'")
    page.click("#asked .change button")
    page.until("document.querySelector('#asked .question')?.textContent.includes('you edited it')")
    page.click("#asked button[value=once]")
    page.until("document.querySelector('#asked .question .added')?.textContent.includes('+a')")
    page.click("#asked button[value=once]")
    page.until(
        "!document.querySelector('#state').dataset.running && document.body.innerText.includes('All done.')"
    )
    assert (board.workspace / "changed").exists() and not (board.workspace / "one").exists()
    assert (board.workspace / "new.txt").read_text() == "a\nb\n"
    edits = "document.querySelector('.step[open] .edit')?.textContent"
    assert page.eval(edits) == "new.txt +2 −0"
    # Stopped with a press; what is typed meanwhile stays.
    page.eval("document.querySelector('#say textarea').focus()")
    page.type("go on")
    page.key("Enter")
    page.until("document.querySelector('.writing')?.textContent.startsWith('Nev')")
    page.eval("document.querySelector('#say textarea').value = 'half a thought'")
    board.model.wait_for_stall(2)
    page.eval("document.querySelector('.stop').click()")  # the page scrolls while text comes
    page.until("!document.querySelector('#state').dataset.running && !document.querySelector('.writing')")
    board.model.release()
    assert page.eval("document.querySelector('#say textarea').value") == "half a thought"
    page.until("document.body.innerText.includes('cancelled')")
    assert page.eval("window.owned") is None
    path = page.eval("location.pathname")
    for is_dark in (False, True):
        page.shape(390, 844, is_phone=True, is_dark=is_dark)
        for one in (path, f"{path}/time", "/learning/timeline", "/"):
            page.open(board.url + one)
            assert page.eval("document.documentElement.scrollWidth <= innerWidth"), (one, is_dark)
    assert page.problems() == []


def test_a_command_is_completed_in_the_box_and_its_output_is_on_the_page(page, board):
    board.say(ScriptedReply("Hello."))
    enter(page, board)
    page.eval("document.querySelector('.composer textarea').focus()")
    page.type("hello")
    with page.loading():
        page.key("Enter")
    page.until(
        "!document.querySelector('#state').dataset.running && document.body.innerText.includes('Hello.')"
    )
    asked = len(board.model.requests)
    page.eval("document.querySelector('#say textarea').focus()")
    page.type("/ti")
    page.until("!document.querySelector('#commands').hidden")
    fitting = "[...document.querySelectorAll('#commands li:not([hidden])')].map(row => row.dataset.name)"
    assert page.eval(fitting) == ["/title"]
    page.key("Tab")
    assert page.eval("document.querySelector('#say textarea').value") == "/title "
    page.type("Named on the page")
    page.key("Enter")
    page.until("document.querySelector('#title').textContent.includes('Named on the page')")
    page.until("document.querySelector('#output pre')?.textContent.includes('Named on the page')")
    assert not page.eval("document.querySelector('.pending')")
    page.eval("document.querySelector('#say textarea').focus()")
    page.type("/titel x")
    page.key("Enter")
    page.until("document.querySelector('#state .problem')?.textContent.includes('did you mean /title?')")
    assert page.eval("document.querySelector('#say textarea').value") == "/titel x"
    assert len(board.model.requests) == asked
