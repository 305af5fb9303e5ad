"""What a person changed is not written over; and patches as other agents' models write them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.tools.calls import Desk
from tests.tools.running import Commands


@pytest.mark.parametrize("is_patch", [False, True])
def test_what_was_changed_after_the_read_is_not_written_over(tmp_path: Path, is_patch: bool) -> None:
    desk, path = Desk(tmp_path), tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    desk.call("read_file", path="a.txt")
    path.write_text("one\ntwo\nmine\n")
    wanted = {"old_string": "one", "new_string": "1"} if is_patch else {"content": "one\n"}
    error = desk.error("patch" if is_patch else "write_file", path="a.txt", **wanted)
    assert "changed by somebody else" in error.message and path.read_text() == "one\ntwo\nmine\n"
    desk.call("read_file", path="a.txt")
    desk.call("patch" if is_patch else "write_file", path="a.txt", **wanted)
    desk.call("write_file", path="a.txt", content="again\n")
    assert path.read_text() == "again\n"
    path.unlink()
    assert "changed" in desk.error("write_file", path="a.txt", content="back\n").message


def test_a_file_that_changed_while_a_command_ran_is_edited_in_part_but_not_replaced(tmp_path: Path) -> None:
    desk, commands = Desk(tmp_path), Commands(tmp_path)
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("one\n")
        desk.call("read_file", path=name)
    (tmp_path / "b.txt").write_text("mine\n")
    commands.run("printf 'two\\nmore\\n' | tee a.txt > b.txt")
    commands.processes.close()
    for turn in range(2):  # the edit of a part has not shown the rest of the file
        error = desk.error("write_file", path="a.txt", content="three\n")
        assert "changed while a command ran, after you read it" in error.message
        desk.call("patch", path="a.txt", old_string="two", new_string=f"two{turn}")
    assert "changed by somebody else" in desk.error("write_file", path="b.txt", content="three\n").message
    desk.call("write_file", path="c.txt", content="three\n")
    desk.call("read_file", path="a.txt")
    desk.call("write_file", path="a.txt", content="three\n")
    assert (tmp_path / "a.txt").read_text() == "three\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_command_runs_though_a_file_that_was_read_cannot_be_looked_at_any_more() -> None:
    with tempfile.TemporaryDirectory() as name:  # a folder that others may enter, unlike pytest's
        work = Path(name)
        work.chmod(0o755)
        (work / "private").mkdir(0o700)
        (work / "private" / "a.txt").write_text("one\n")
        desk, commands = Desk(work), Commands(work)
        desk.call("read_file", path="private/a.txt")
        os.seteuid(65_534)
        try:
            output = commands.run("echo runs")
        finally:
            os.seteuid(0)
            commands.processes.close()
    assert "runs" in output.text


def test_curly_quotes_and_dashes_are_found_and_kept(tmp_path: Path) -> None:
    desk, path = Desk(tmp_path), tmp_path / "a.txt"
    path.write_text("He said \u201cyes\u201d \u2013 twice.\n  It\u2019s late\n")
    desk.call("patch", path="a.txt", old_string='said "yes" - twice', new_string='said "yes" - once')
    assert path.read_text() == "He said \u201cyes\u201d \u2013 once.\n  It\u2019s late\n"
    desk.call("patch", path="a.txt", diff="@@\n-It's late\n+It is late\n")
    assert path.read_text().endswith("\n  It is late\n")


def test_codexs_envelope_adds_changes_and_deletes(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (tmp_path / "a.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 1\n")
    (tmp_path / "old.txt").write_text("gone\nsoon\n")
    envelope = (
        "*** Begin Patch\n*** Add File: new/b.txt\n+first\n+second\n*** Update File: a.py\n@@ def g():\n"
        "-    return 1\n+    return 2\n*** Delete File: old.txt\n*** End Patch\n"
    )
    desk.call("patch", diff=envelope)
    assert (tmp_path / "new" / "b.txt").read_text() == "first\nsecond\n"
    assert (tmp_path / "a.py").read_text() == "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    assert not (tmp_path / "old.txt").exists()
    wrong = envelope.replace("return 1", "return 7").replace("new/b.txt", "c.txt").replace("old.txt", "a.py")
    assert desk.error("patch", diff=wrong) and not (tmp_path / "c.txt").exists()
