"""What axe finds on the pages of the dashboard, light and dark, at three widths: nothing."""

from __future__ import annotations

import json
from pathlib import Path

import axe_core_python
import pytest

from tests.browser.test_dashboard import enter
from tests.serve.test_board import PAGES, remember
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("browser"), pytest.mark.unconfined]
AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text("utf-8")
RUN = (
    "axe.run(document, {resultTypes: ['violations']}).then(found =>"
    " found.violations.map(one => [one.id, one.nodes.map(node => node.html.slice(0, 200))]))"
)
LINKS = "See [the docs](https://docs.example/x) and https://example.org/a."
MARKDOWN = "## Done\n\n- `one`\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_axe_finds_nothing(page, board):
    row = remember(board, "We deploy on Tuesdays.")
    (board.workspace / "src").mkdir()
    (board.workspace / "src" / "net.py").write_text("def port(text):\n    return int(text)  # 1 to 65535\n")
    write = PracticeCall("write_file", json.dumps({"path": "new.txt", "content": "a\n"}))
    missing = PracticeCall("read_file", '{"path":"none.txt"}')
    read = PracticeCall("read_file", '{"path":"src/net.py"}')
    enter(page, board)
    board.app.services.gate.get().set_mode("auto")
    edit = {"path": "src/net.py", "old_string": "int(text)", "new_string": "max(1, int(text))"}
    board.say(
        ScriptedReply(MARKDOWN, tool_calls=(missing, read)),
        ScriptedReply(tool_calls=(PracticeCall("patch", json.dumps(edit)),)),
        ScriptedReply(LINKS),
        ScriptedReply(tool_calls=(write,)),
        ScriptedReply("No?"),
    )
    page.eval("document.querySelector('.composer textarea').value = 'do it'")
    with page.loading():
        page.click(".composer .send")
    page.until("document.querySelector('.prose a')")
    board.app.services.gate.get().set_mode("ask")
    page.eval("document.querySelector('#say textarea').focus()")
    page.type("and now write")
    page.key("Enter")
    page.until("document.querySelector('#asked .question')")
    session = page.eval("location.pathname")
    fields: dict[str, object] = {}
    for path in (
        session, f"{session}/time", f"{session}?at=3", f"{session}/changes", f"{session}/files",
        f"{session}/files?path=src/net.py", "/learning/timeline", f"/learning/{row.id}", *PAGES,
    ):  # fmt: skip
        page.open(board.url + path)
        page.eval("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.eval(f"{AXE};1")
        for is_dark in (False, True):
            for width in (390, 768, 1280):
                page.shape(width, 900, is_dark=is_dark)
                if problems := page.eval(RUN, 120.0):
                    fields[f"{path} {'dark' if is_dark else 'light'} {width}"] = problems
    assert fields == {}
