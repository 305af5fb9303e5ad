"""What each step reads of a record is found by an index, however many files and versions it holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from whet.clock import SystemClock
from whet.rewind import database
from whet.rewind.database import OPEN, RecordFile
from whet.rewind.pruning import forget_sessions
from whet.rewind.record_path import record_path
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
    old = RecordFile.layout
    for version in range(1, len(old.steps)):
        (tmp_path / str(version)).mkdir()
        assert_goes_on(tmp_path / str(version), old.steps[:version])


def assert_goes_on(folder: Path, steps: Sequence[str]) -> None:
    """Write a record as an older version did, and record and rewind in it."""
    work, home = folder / "work", folder / "home"
    work.mkdir()
    for name, text in (("a", "after it"), ("b", "new"), ("large", "x" * 200)):
        (work / name).write_text(text)
    path = record_path(home, str(work))
    path.parent.mkdir(parents=True)
    connection = apsw.Connection(str(path))
    for step in steps:
        connection.execute(step)
    states = [("a", 1, 2), ("a", 2, OPEN), ("b", 2, OPEN), ("large", 1, OPEN), ("c", 1, 2)]
    for name, since, until in states:
        kind, content = ("left_out", b"too large|1.2.3") if name == "large" else ("file", bytes([since]) * 32)
        values = (name.encode(), since, until, kind, content)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, 420, 5, ?, 0, 0, 0)", values)
    for number in (7, 8):
        values = (number, number, 1 if number == 7 else 2)
        connection.execute("INSERT INTO records VALUES (?, 's', 1, ?, 'step', 1, ?, 0, '', x'')", values)
    connection.execute("DELETE FROM records WHERE id = 8")
    connection.execute("UPDATE facts SET value = 2 WHERE name = 'version'")
    connection.execute(f"PRAGMA user_version = {len(steps)}")
    connection.close()
    limits = RecordLimits(file_bytes=100)
    with closing(Workspace(work, home, limits, SystemClock())) as workspace:
        changed = workspace.file.read_now(lambda db: database.find_changed_paths(db, 1, 2))
        assert changed == {"a", "b", "c"}
        number, _ = begin_step(workspace, "s", 2, 1)
        assert number == 9
        (work / "b").unlink()
        assert [(file.path, file.added, file.removed) for file in end_step(workspace, number)] == [
            ("b", 0, 1)
        ]
        assert [item.path for item in workspace.left_out()] == ["large"]


def test_a_step_that_changes_a_file_writes_few_pages_of_the_record(tmp_path: Path) -> None:
    path = record_two_steps(tmp_path, 300)
    steps, frame_bytes = 60, 1024 + 24
    changed = tmp_path / "work" / "f1"
    with closing(
        Workspace(tmp_path / "work", tmp_path / "home", RecordLimits(100), SystemClock())
    ) as workspace:
        sizes: list[int] = []
        for step in range(1, steps + 2):
            number, _ = begin_step(workspace, "a session's key of 26 chars", 2, step)
            changed.write_text(f"{step}")
            end_step(workspace, number)
            sizes.append(path.with_name("files.db-wal").stat().st_size)
    assert (sizes[-1] - sizes[0]) / steps / frame_bytes <= 8


def test_numbers_of_deleted_versions_and_records_are_not_used_again(tmp_path: Path) -> None:
    record_two_steps(tmp_path)
    with closing(
        Workspace(tmp_path / "work", tmp_path / "home", RecordLimits(100), SystemClock())
    ) as workspace:
        number, _ = begin_step(workspace, "t", 1, 1)
        (tmp_path / "work" / "b").unlink()
        end_step(workspace, number)
        version = workspace.file.read_now(database.read_version)
        forget_sessions(workspace.file, ["t"])
        assert workspace.file.read_now(database.read_version) == version
        assert begin_step(workspace, "s", 2, 1)[0] == number + 1
        forget_sessions(workspace.file, ["s"])
        assert workspace.file.read_now(database.read_version) > version
        assert begin_step(workspace, "s", 3, 1)[0] == number + 2


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
