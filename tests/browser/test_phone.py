"""A day's twelve tasks on a phone of 390 pixels, with nothing but taps and typing."""

from __future__ import annotations

import json

import pytest

from tests.browser.chromium import Page
from tests.browser.test_all_day import drop, png
from tests.browser.test_dashboard import enter
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.unconfined, pytest.mark.slow]


def tap(page: Page, selector: str, *, leaves: bool = False) -> None:
    """Tap what is visible and large enough for a finger."""
    page.until(f"document.querySelector({json.dumps(selector)})?.offsetParent")
    box = page.eval(
        f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
        " return [box.left, box.right, box.height]; })()"
    )
    assert box[0] >= 0 and box[1] <= 390 and box[2] >= 24, (selector, box)
    press = f"document.querySelector({json.dumps(selector)}).click()"  # the page may scroll meanwhile
    if not leaves:
        page.eval(press)
        return
    with page.loading():
        page.eval(press)


def write(page: Page, text: str, field: str = ".composer textarea") -> None:
    page.click(field)
    page.type(text)


def menu(page: Page, path: str) -> None:
    tap(page, "#menu")
    tap(page, f".pages a[href='{path}']", leaves=True)


def test_twelve_tasks_are_done_on_a_phone(page, board):
    call = PracticeCall("write_file", json.dumps({"path": "made.txt", "content": "a\n"}))
    board.say(
        ScriptedReply(tool_calls=(call,)),
        ScriptedReply("Made."),
        ScriptedReply("I see it."),
        ScriptedReply("Never ends", pieces=5, fault=Fault(stall_after=3)),
    )
    page.shape(390, 844, is_phone=True)
    enter(page, board)
    write(page, "make a file on the phone")  # 1: begin
    tap(page, ".composer .send", leaves=True)
    tap(page, "#asked button[value=once]")  # 2: answer
    page.until("document.body.innerText.includes('Made.') && !document.querySelector('#dock.busy')")
    for number, mode in ((2, "plan"), (2, "ask")):  # 3: the mode
        tap(page, f"#bar .chip:nth-child({number}) summary")
        tap(page, f".choice[value={mode}]")
        page.until(f"document.querySelectorAll('#bar summary')[1].textContent.includes('{mode}')")
    tap(page, "#bar .chip:nth-child(1) summary")  # 4: the model
    page.click("#bar-model")
    page.eval("document.activeElement.select()")
    page.type("practice-2")
    tap(page, "#bar .chip:nth-child(1) .good")
    page.until("document.querySelector('#bar summary').textContent.includes('practice-2')")
    drop(page, png(60, 40), "photo.png", "image/png")  # 5: a picture
    write(page, "look")
    tap(page, ".composer .send")
    page.until("document.querySelector('.thumbs img')?.naturalWidth === 60")
    page.until("document.body.innerText.includes('I see it.') && !document.querySelector('#dock.busy')")
    write(page, "go on")  # 6: stop
    tap(page, ".composer .send")
    page.until("document.querySelector('.writing')")
    board.model.wait_for_stall()
    page.eval("document.querySelector('.stop').scrollIntoView()")
    tap(page, ".stop")
    page.until("!document.querySelector('#dock.busy')")
    board.model.release()
    tap(page, "#bar .chip:nth-child(3) summary")  # 7: what changed
    tap(page, "#bar a[href$='/changes']", leaves=True)
    tap(page, ".file-change button", leaves=True)  # 8: a file is taken back
    assert not (board.workspace / "made.txt").exists()
    tap(page, ".crumb a:last-child", leaves=True)
    tap(page, ".manage summary")  # 9: another name
    page.click(".manage [name=title]")
    page.eval("document.activeElement.select()")
    page.type("phone work")
    tap(page, ".manage button:not([formaction])", leaves=True)
    tap(page, ".manage summary")  # 10: pinned
    tap(page, ".manage [formaction$='/pin']", leaves=True)
    menu(page, "/sessions")  # 11: found
    write(page, "phone work", "#search")
    tap(page, ".search button", leaves=True)
    tap(page, ".records .first a", leaves=True)
    assert page.eval("document.querySelector('#title').textContent").startswith("phone work")
    tap(page, ".manage summary")  # 12: archived
    tap(page, ".manage [formaction$='/archive']", leaves=True)
    assert "phone work" not in page.text()
    assert page.problems() == []
