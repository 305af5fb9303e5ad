"""The page as people use it all day, in a real Chromium: keys, drops, copies, the list, a phone."""

from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest

from tests.browser.chromium import Page
from tests.browser.test_dashboard import converse, enter
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.unconfined, pytest.mark.slow]
ANSWER = "Read https://docs.example/a and:\n\n```python\nreturn 1  # one\n```\n"


def png(width: int, height: int) -> bytes:
    """Give a picture that browsers show."""
    rows = zlib.compress((b"\0" + b"\x40\x80\xc0" * width) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", rows), (b"IEND", b"")]
    pack = lambda value: struct.pack(">I", value)  # noqa: E731
    pieces = [pack(len(data)) + kind + data + pack(zlib.crc32(kind + data)) for kind, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


def drop(page: Page, data: bytes, name: str, kind: str) -> None:
    """Drop a file on the middle of the page, as from a file manager."""
    given = json.dumps([base64.b64encode(data).decode(), name, kind])
    page.eval(
        f"(([data, name, type]) => {{ const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));"
        " const all = new DataTransfer(); all.items.add(new File([bytes], name, { type }));"
        " document.querySelector('#main').dispatchEvent("
        f"new DragEvent('drop', {{ dataTransfer: all, bubbles: true, cancelable: true }})); }})({given})"
    )


def test_a_dropped_picture_is_shown_small_and_an_answer_is_copied(page, board):
    board.say(ScriptedReply(ANSWER))
    enter(page, board)
    drop(page, png(60, 40), "screen.png", "image/png")
    drop(page, b"words", "notes.txt", "text/plain")
    page.until("document.querySelectorAll('.attached .piece').length === 2")
    assert page.eval("document.querySelectorAll('.attached canvas').length") == 1
    page.click(".attached .piece:last-child button")
    assert page.eval("document.querySelector('.composer input[type=file]').files.length") == 1
    page.eval("document.querySelector('.composer textarea').focus()")
    page.type("look at it")
    with page.loading():
        page.click(".composer .send")
    page.until("document.querySelector('.thumbs img')?.naturalWidth === 60")
    page.until("document.querySelector('.prose .block')")
    assert page.eval("document.querySelector('.prose a').rel") == "noopener noreferrer nofollow"
    assert page.eval("document.querySelector('.block .c-keyword').textContent") == "return"
    page.eval(
        "Object.defineProperty(navigator, 'clipboard',"
        " { value: { writeText: async (text) => { window.copied = text; } } });"
        " const button = document.querySelector('.block .copy'); window.labels = [];"  # it says so briefly
        " new MutationObserver(() => window.labels.push(button.textContent))"
        ".observe(button, { childList: true, characterData: true, subtree: true }); 1"
    )
    page.click(".block .copy")
    page.until("window.copied === 'return 1  # one'")
    page.until("window.labels.includes('Copied')")
    assert page.problems() == []


def test_keys_search_the_list_and_lead_through_it(page, board):
    for words in ("plum pudding", "apple pie"):
        converse(board, words, ScriptedReply("Baked."))
    enter(page, board)
    page.key("?")
    page.until("document.querySelector('#keys').open")
    assert "new session" in page.text()
    page.key("Escape")
    page.until("!document.querySelector('#keys').open")
    page.key("s")
    page.type("plum")
    page.until("[...document.querySelectorAll('#listed li')].filter((row) => row.offsetParent).length === 1")
    page.eval("document.activeElement.blur(); 1")
    with page.loading():
        page.key("]")
    assert page.eval("document.querySelector('#title').textContent") == "plum pudding"
    page.key("m")
    page.until("document.activeElement.value === 'ask' && document.activeElement.closest('.chip').open")
    page.click(".choice[value=plan]")
    page.until("document.querySelectorAll('#bar summary')[1].textContent.includes('plan')")
    page.key("/")
    assert page.eval("document.activeElement.name") == "text"


def test_what_was_written_stays_when_the_page_is_renewed(page, board):
    enter(page, board)
    page.until("!document.querySelector('#live').hidden")
    page.click("#main textarea")
    page.type("half a thought")
    page.eval("document.activeElement.blur(); 1")
    session_id = converse(board, "meanwhile", ScriptedReply("Done."))
    page.until(f"document.querySelector('a[href*=\"{session_id}\"]')")
    assert page.eval("document.querySelector('#main textarea').value") == "half a thought"


def test_a_digit_goes_to_an_answer_and_a_file_is_taken_back(page, board):
    write = PracticeCall("write_file", json.dumps({"path": "made.txt", "content": "a\n"}))
    board.say(ScriptedReply(tool_calls=(write,)), ScriptedReply("Made."))
    enter(page, board)
    page.click("#main textarea")
    page.type("make a file")
    with page.loading():
        page.key("Enter")
    page.until("document.querySelector('#asked .question')")
    assert page.eval("document.querySelector('#asked time.left').textContent").endswith(" s")
    page.eval("document.activeElement.blur(); 1")
    page.key("2")
    assert page.eval("document.activeElement.value") == "once"
    page.key("Enter")
    page.until("document.querySelector('.said.tool')")
    assert (board.workspace / "made.txt").exists()
    page.until("!document.querySelector('#dock.busy')")
    with page.loading():
        page.key("c")
    with page.loading():
        page.click(".file-change button")
    assert "has changed no file" in page.text() and not (board.workspace / "made.txt").exists()


def test_on_a_phone_the_menu_is_whole_and_the_box_is_at_the_bottom(page, board):
    session_id = converse(board, "a long talk", *(ScriptedReply("word " * 400),))
    enter(page, board)
    page.shape(390, 844, is_phone=True)
    page.open(f"{board.url}/sessions/{session_id}")
    page.eval("scrollTo(0, 0); 1")
    bottom = page.eval("document.querySelector('#dock').getBoundingClientRect().bottom")
    assert 800 < bottom <= 844
    page.click("#menu")
    boxes = page.eval(
        "[...document.querySelectorAll('.pages a')].map((link) => { const box = link.getBoundingClientRect();"
        " return [box.left >= 0, box.right <= 390, box.top >= 0, box.bottom <= 844, box.height >= 44]; })"
    )
    assert len(boxes) == 10 and all(all(box) for box in boxes)
    with page.loading():
        page.click(".pages a[href='/costs']")
    assert page.eval("document.querySelector('#menu').textContent") == "Menu · Costs"


def test_a_question_about_a_long_path_stays_on_a_phone_s_screen(page, board):
    path = "services/billing/adapters/a_very_long_name_of_a_module_in_python.py"
    write = PracticeCall("write_file", json.dumps({"path": path, "content": "a\n"}))
    board.say(ScriptedReply(tool_calls=(write,)), ScriptedReply("Made."))
    enter(page, board)
    page.shape(390, 844, is_phone=True)
    page.click("#main textarea")
    page.type("make a file")
    with page.loading():
        page.key("Enter")
    page.until("document.querySelector('#asked .scopes')")
    assert path in page.text()
    assert page.eval("document.documentElement.scrollWidth") <= 390, "the page scrolls to the side"
    page.eval("document.activeElement.blur(); 1")
    page.key("2")
    page.key("Enter")
    page.until("document.querySelector('.said.tool')")
    page.until("!document.querySelector('#dock.busy')")  # nothing of it is left for the next test


def test_the_pages_of_a_session_with_a_long_word_as_its_title_stay_on_a_phone_s_screen(page, board):
    session_id = converse(board, "a/path/that_is_" + "long_" * 16, ScriptedReply("Done."))
    enter(page, board)
    page.shape(390, 844, is_phone=True)
    widths: dict[str, int] = {}
    for name in ("", "/changes", "/files", "/time"):
        page.open(f"{board.url}/sessions/{session_id}{name}")
        widths[name] = page.eval("document.documentElement.scrollWidth")
    assert [name for name, width in widths.items() if width > 390] == []
