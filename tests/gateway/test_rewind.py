"""What a turn did is shown and taken back from a chat platform."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateway.test_telegram import World, world
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

pytestmark = pytest.mark.unconfined


@contextmanager
def spoiling(folder: Path) -> Iterator[World]:
    """Serve a chat whose model overwrites kept.txt, outside of Whet's home, where nothing is recorded."""
    (folder / "outside").mkdir()
    (folder / "home").mkdir()
    (folder / "home" / "work").symlink_to(folder / "outside")
    calls = (PracticeCall("terminal", '{"command": "echo spoiled > kept.txt"}'),)
    with world(folder, [ScriptedReply(tool_calls=calls), ScriptedReply("Done.")]) as w:
        yield w


@pytest.mark.slow
def test_a_turn_is_shown_and_taken_back_in_a_chat(tmp_path: Path) -> None:
    with spoiling(tmp_path) as w:
        (w.work / "kept.txt").write_text("whole\n")
        w.telegram.ask("go", "Done.")
        w.telegram.write("/diff 1")
        assert "-whole" in "".join(w.telegram.wait_said("+spoiled"))
        w.telegram.ask("/rewind 1 files", "restored 1 path")
        assert (w.work / "kept.txt").read_text() == "whole\n"
        w.telegram.write("/rewind undo")
        w.telegram.wait(lambda: (w.work / "kept.txt").read_text() == "spoiled\n", "the rewind taken back")


def test_a_chat_is_asked_about_files_that_somebody_changed_since(tmp_path: Path) -> None:
    with spoiling(tmp_path) as w:
        file = w.work / "kept.txt"
        file.write_text("whole\n")
        w.telegram.ask("go", "Done.")
        file.write_text("mine\n")
        w.telegram.write("/rewind 1 files")
        asked = "".join(w.telegram.wait_said("so nothing was done"))
        assert "left as it is: kept.txt (changed since by someone else)" in asked
        assert "/rewind 1 files force sets them back" in asked and file.read_text() == "mine\n"
        w.telegram.ask("/rewind 1 files keep", "takes this back")
        assert file.read_text() == "mine\n"
        w.telegram.write("/rewind 1 files force")
        w.telegram.wait(lambda: file.read_text() == "whole\n", "the file set back")
