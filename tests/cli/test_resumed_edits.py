"""Diffs of edits at a real terminal: of a resumed session, and of a one-shot in the chosen colours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import Tty, flags
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


@pytest.mark.slow
def test_edits_of_a_resumed_session_are_shown_with_their_diffs_as_they_were_live(tmp_path: Path) -> None:
    (folder := tmp_path / "work").mkdir()
    diff = "".join(f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-old\n+new\n" for name in ("b.txt", "c.txt"))
    for name, text in (("a.txt", "one\ntwo\nthree\n"), ("b.txt", "old\n"), ("c.txt", "old\n")):
        (folder / name).write_text(text)
    rewritten = json.dumps({"path": "a.txt", "content": "one\n2\nthree\n"})
    calls = (PracticeCall("write_file", rewritten), PracticeCall("patch", json.dumps({"diff": diff})))
    script = [ScriptedReply(tool_calls=calls), ScriptedReply("Changed.")]
    environ = {"NO_COLOR": "1"}
    with PracticeServer(script=script) as server:
        with Tty(["chat", "--yes", *flags(server)], folder, environ=environ) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("go\r")
            live = tty.wait_for("Changed.")
            tty.leave("\x04")
        with Tty(["chat", "-c", *flags(server)], folder, environ=environ) as tty:
            resumed = tty.wait_for("Changed.")
    rows = re.findall(r"^ +\d+ \| .*", live.replace("\r", ""), re.MULTILINE)
    assert len(rows) == 8 and "    2 | -two" in rows and "    2 | +2" in rows
    assert re.findall(r"^ +\d+ \| .*", resumed.replace("\r", ""), re.MULTILINE) == rows


@pytest.mark.slow
@pytest.mark.parametrize("theme", ("auto", "plain"))
def test_a_one_shot_shows_diffs_in_its_question_and_afterwards_in_the_chosen_theme(
    tmp_path: Path, theme: str
) -> None:
    (folder := tmp_path / "work").mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    edit = json.dumps({"path": "a.txt", "content": "one\n2\n"})
    script = [ScriptedReply(tool_calls=(PracticeCall("write_file", edit),)), ScriptedReply("Changed.")]
    environ = {"WHET_UI_THEME": theme, "WHET_APPROVAL_MODE": "ask"}
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", "-q", "go", *flags(server)], folder, environ=environ) as tty,
    ):
        asked = tty.wait_for("Enter alone is no")
        question_codes = set(re.findall(r"\x1b\[[\d;]*m", tty.drawn))
        tty.type("yes\r", "Changed.")
        codes = set(re.findall(r"\x1b\[[\d;]*m", tty.drawn))
    assert "2 | -two" in asked
    has_colours = [any("8;5;" in code for code in each) for each in (question_codes, codes)]
    assert has_colours == [theme == "auto"] * 2
