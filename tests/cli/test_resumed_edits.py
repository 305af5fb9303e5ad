"""A resumed session at a real terminal shows the diffs of its edits."""

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
