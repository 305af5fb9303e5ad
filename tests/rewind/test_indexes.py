"""What each step reads of a record is found by an index, however many files and versions it holds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from whet.clock import SystemClock
from whet.rewind import database
from whet.rewind.recorder import Workspace
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step

_PROFILE = 2
"""SQLITE_TRACE_PROFILE."""


def record_two_steps(folder: Path, files: int = 0) -> Path:
    """Record a workspace with a file that is too large, and a step that changes two files; return the
    record's path. `files`: how many more the workspace has."""
    work = folder / "work"
    work.mkdir()
    for number in range(files):
        (work / f"f{number}").write_text(f"{number}")
    (work / "large").write_bytes(b"x" * 200)
    (work / "a").write_text("before")
    workspace = Workspace(work, folder / "home", RecordLimits(file_bytes=100), SystemClock())
    with closing(workspace):
        number, _ = begin_step(workspace, "s", 1, 1)
        (work / "a").write_text("after it")
        (work / "b").write_text("new")
        end_step(workspace, number)
        return workspace.file.path


def test_what_a_step_reads_of_a_record_does_not_grow_with_its_files(tmp_path: Path) -> None:
    steps: list[int] = []

    def note(event: Any) -> None:
        steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    counts: list[int] = []
    for files in (10, 300):
        folder = tmp_path / str(files)
        folder.mkdir()
        connection: Any = apsw.Connection(str(record_two_steps(folder, files)))
        connection.trace_v2(_PROFILE, note)
        assert [path for path, _ in database.find_left_out(connection)] == ["large"]
        assert database.find_changed_paths(connection, 1, 2) == {"a", "b"}
        counts.append(sum(steps))
        steps.clear()
        connection.close()
    assert counts[1] < counts[0] * 1.2, counts


def test_a_record_of_an_older_version_goes_on(tmp_path: Path) -> None:
    path = record_two_steps(tmp_path)
    connection = apsw.Connection(str(path))
    for name in ("entries_ended", "entries_left_out"):
        connection.execute(f"DROP INDEX {name}")
    connection.execute("CREATE INDEX entries_by_until ON entries (until)")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    limits = RecordLimits(file_bytes=100)
    workspace = Workspace(tmp_path / "work", tmp_path / "home", limits, SystemClock())
    with closing(workspace):
        number, _ = begin_step(workspace, "s", 2, 1)
        (tmp_path / "work" / "b").unlink()
        assert end_step(workspace, number) == [("b", 0, 1)]
        assert [item.path for item in workspace.left_out()] == ["large"]


def test_a_state_that_ended_keeps_no_stamp_and_a_current_one_does(tmp_path: Path) -> None:
    connection = apsw.Connection(str(record_two_steps(tmp_path)))
    stamps = "SELECT mtime_ns, ctime_ns, inode FROM entries WHERE kind = 'left_out'"
    status = (tmp_path / "work" / "large").stat()
    assert [*connection.execute(stamps)] == [(status.st_mtime_ns, status.st_ctime_ns, status.st_ino)]
    workspace = Workspace(tmp_path / "work", tmp_path / "home", RecordLimits(100), SystemClock())
    with closing(workspace):
        number, _ = begin_step(workspace, "s", 2, 1)
        (tmp_path / "work" / "large").unlink()
        end_step(workspace, number)
    assert [*connection.execute(stamps)] == [(0, 0, 0)]
    connection.close()
