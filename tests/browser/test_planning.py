"""A plan on a session's page, in a real Chromium: seen, changed, carried out; and a fork with a press."""

from __future__ import annotations

import json

import pytest

from tests.browser.chromium import Page
from tests.browser.test_axe import AXE, RUN
from tests.browser.test_dashboard import enter
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.unconfined, pytest.mark.slow]

IDLE = "!document.querySelector('#state').dataset.running"


def _listed(*items: tuple[str, str]) -> ScriptedReply:
    steps = [{"id": str(n), "content": text, "status": state} for n, (text, state) in enumerate(items, 1)]
    return ScriptedReply(tool_calls=(PracticeCall("todo", json.dumps({"items": steps})),))


def _looks_right(page: Page) -> None:
    page.eval(f"{AXE};1")
    for width in (1280, 768, 390):
        for is_dark in (False, True):
            page.shape(width, 860, is_phone=width < 500, is_dark=is_dark)
            assert page.eval("document.documentElement.scrollWidth <= innerWidth"), (width, is_dark)
            assert page.eval(RUN, 120.0) == [], (width, is_dark)


def test_a_plan_is_changed_and_carried_out_on_the_page(page, board):
    board.say(
        ScriptedReply("Hello."),
        _listed(("look at the parser and at how its tests are run", "pending"), ("mend it", "pending")),
        ScriptedReply("That is the plan."),
        _listed(("look around", "in_progress"), ("tell", "pending")),
        ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command":"ls"}'),)),
        _listed(("look around", "completed"), ("tell", "in_progress")),
        ScriptedReply("Carried out."),
    )
    enter(page, board)
    page.eval("document.querySelector('.composer textarea').value = 'hi'")
    with page.loading():
        page.click(".composer .send")
    page.until(
        "document.body.innerText.includes('Hello.') && !document.querySelector('#state').dataset.running"
    )
    page.eval("document.querySelector('#say textarea').focus()")
    page.type("/plan mend the parser")
    page.key("Enter")
    page.until("document.querySelector('#plan textarea')?.value.includes('mend it')")
    page.until(IDLE)
    _looks_right(page)
    page.shape(1280, 860)
    page.eval("document.querySelector('#plan textarea').value = 'look around\\ntell'")
    with page.loading():
        page.click("#plan button[value=go]")
    page.until("document.body.innerText.includes('Carried out.')")
    page.until(
        "!document.querySelector('#plan textarea') && !document.querySelector('#state').dataset.running"
    )
    assert "1 of 2 done" in page.text() and page.eval(
        "document.querySelector('#plan .steps .under').textContent"
    )
    _looks_right(page)
    before = page.eval("location.pathname")
    with page.loading():
        page.eval("document.querySelector('.turn button[name=turn]').click()")
    assert page.eval("location.pathname") != before and "Hello." in page.text()
    assert "Carried out." not in page.text() and page.problems() == []
