"""What a turn did is shown and taken back from a chat platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.test_telegram import world
from whet.practice.ask import PracticeCall
from whet.practice.script import ScriptedReply

pytestmark = pytest.mark.unconfined


def test_a_turn_is_shown_and_taken_back_in_a_chat(tmp_path: Path) -> None:
    outside = tmp_path / "outside"  # what lies in Whet's home is not recorded
    outside.mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "work").symlink_to(outside)
    calls = (PracticeCall("terminal", '{"command": "echo spoiled > kept.txt"}'),)
    with world(tmp_path, [ScriptedReply(tool_calls=calls), ScriptedReply("Done.")]) as w:
        (w.work / "kept.txt").write_text("whole\n")
        w.telegram.write("go")
        w.telegram.wait_said("Done.")
        w.telegram.write("/diff 1")
        assert "-whole" in "".join(w.telegram.wait_said("+spoiled"))
        w.telegram.write("/rewind 1 files")
        w.telegram.wait_said("restored 1 path")
        assert (w.work / "kept.txt").read_text() == "whole\n"
        w.telegram.write("/rewind undo")
        w.telegram.wait(lambda: (w.work / "kept.txt").read_text() == "spoiled\n", "the rewind taken back")
