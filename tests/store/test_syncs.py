"""What a power cut leaves: everything up to the last synced commit, in SQLite's own log."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.store.support import USAGE, answer, asking, begin_session, finish, run_child
from whet.clock import SystemClock
from whet.rewind import database
from whet.rewind.contents import read_content
from whet.rewind.recorder import Workspace
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript


class CountedFile(apsw.VFSFile):
    """A file that knows how large its log was at each sync."""

    def __init__(self, vfs: str, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__(vfs, name, flags)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self.path is not None:
            SYNCED.append((os.path.basename(self.path), os.path.getsize(self.path)))


class CountingDisk(apsw.VFS):
    """The system's files, with their syncs counted."""

    def __init__(self) -> None:
        self.base = apsw.vfs_names()[0]
        super().__init__("counting", self.base, makedefault=True)

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        return CountedFile(self.base, name, flags)


SYNCED: list[tuple[str, int]] = []


def cut_power(file: Path, to: Path) -> None:
    """Copy a database as a power cut would leave it now: its log as long as it was when last synced."""
    log = f"{file.name}-wal"
    length = max((size for name, size in SYNCED if name == log), default=0)
    to.mkdir()
    shutil.copy(file, to / file.name)
    (to / log).write_bytes(file.with_name(log).read_bytes()[:length])


async def call_and_cut(folder: Path) -> None:
    """Cut the power after an answer with a call, after the call's start, and after its result."""
    db = StateDatabase.open_file(folder / "state.db", "now", 1.0)
    log, turn = await begin_session(db, SystemClock(), "do it")
    await log.append_reply(turn, asking("a"), USAGE, "m1")
    cut_power(db.path, folder / "answered")
    [call] = log.open_calls(turn)
    await log.store_call_start(turn, call, "rule")
    cut_power(db.path, folder / "started")
    await finish(log, turn, call)
    cut_power(db.path, folder / "finished")
    log.live.fold_results()
    await log.append_reply(turn, answer("ok"), USAGE, "m1")
    cut_power(db.path, folder / "told")


def record_steps(folder: Path, turns: int) -> None:
    """Print the syncs of ten steps, each in the next of these turns, that write a file. Then print the sync
    of one more that follows an edit by a person, and cut the power after it has begun."""
    work = folder / "work"
    work.mkdir()
    workspace = Workspace(work, folder / "home", RecordLimits(), SystemClock())
    begin_step(workspace, "s", 0, 1)
    SYNCED.clear()
    for number in range(10):
        record, _ = begin_step(workspace, "s", 1 + number % turns, number + 1)
        (work / "a.txt").write_text(f"{number}\n" * 40)
        end_step(workspace, record)
    print(len(SYNCED))
    SYNCED.clear()
    (work / "mine.txt").write_text("typed by a person")
    begin_step(workspace, "s", turns, 11)
    print(len(SYNCED))
    cut_power(workspace.file.path, folder / "cut")


def read_back(folder: Path) -> tuple[list[str], list[bool]]:
    """Return the roles of the messages that a power cut left, and of each call whether it had started."""
    with closing(StateDatabase.open_file(folder / "state.db", "now", 1.0)) as db:
        log = asyncio.run(Transcript.open(db, "s1", SystemClock()))
        started = db.read_now(lambda c: c.execute("SELECT started IS NOT NULL FROM tool_calls").fetchall())
        return [message.role for message in log.messages], [bool(one) for (one,) in started]


@pytest.mark.slow
def test_a_power_cut_costs_at_most_an_answer_whose_calls_had_not_started(tmp_path: Path) -> None:
    code, output = run_child("from tests.store.test_syncs import main; main()", "call", str(tmp_path))
    assert code == 0, output
    assert read_back(tmp_path / "answered") in [(["user"], []), (["user", "assistant"], [False])]
    assert read_back(tmp_path / "started") == (["user", "assistant"], [True])
    assert read_back(tmp_path / "finished")[0] == ["user", "assistant", "tool"]
    assert read_back(tmp_path / "told")[0] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "syncs"), [(10, "10"), (1, "1")])
def test_the_record_is_synced_before_a_turn_and_at_a_change(tmp_path: Path, turns: int, syncs: str) -> None:
    code, output = run_child("from tests.store.test_syncs import main; main()", str(turns), str(tmp_path))
    assert (code, output.split()) == (0, [syncs, "1"]), output
    with closing(database.RecordFile.open_file(tmp_path / "cut" / "files.db", "now", 1.0)) as file:
        before = file.read_now(database.read_version)
        assert read_text(file, "a.txt", before) == b"9\n" * 40
        assert read_text(file, "mine.txt", before) == b"typed by a person"


def read_text(file: database.RecordFile, path: str, version: int) -> bytes | None:
    """Return what a path held in a version of the record."""
    state = file.read_now(lambda db: database.state_at(db, path, version))
    assert state is not None
    return file.read_now(lambda db: read_content(db, state))


@pytest.mark.slow
def test_a_power_cut_in_a_turn_leaves_the_point_before_the_turn(tmp_path: Path) -> None:
    code, output = run_child("from tests.store.test_syncs import main; main()", "turn", str(tmp_path))
    assert (code, output.split()) == (0, ["0"]), output
    [record] = (tmp_path / "home").rglob("files.db")
    shutil.rmtree(record.parent)
    (tmp_path / "cut").rename(record.parent)
    workspace = Workspace(tmp_path / "work", tmp_path / "home", RecordLimits(), SystemClock())
    with closing(workspace):
        assert end_step(workspace, begin_step(workspace, "s", 2, 1)[0]) == []
        records = workspace.file.read_now(lambda db: database.list_records(db, "s"))
        assert [(record.turn, record.step) for record in records] == [(1, 1), (2, 1)]
        assert records[0].after == records[1].before
        assert read_text(workspace.file, "a.txt", records[0].before) == b"before the turn"
        assert read_text(workspace.file, "a.txt", records[0].after) == b"4\n" * 40


def cut_turn(folder: Path) -> None:
    """Print the syncs of a turn's later steps, and cut the power within the last one."""
    work, home = folder / "work", folder / "home"
    work.mkdir()
    (work / "a.txt").write_text("before the turn")
    workspace = Workspace(work, home, RecordLimits(), SystemClock())
    counts: list[int] = []
    for number in range(5):
        record, _ = begin_step(workspace, "s", 1, number + 1)
        counts.append(len(SYNCED))
        (work / "a.txt").write_text(f"{number}\n" * 40)
        if number < 4:
            end_step(workspace, record)
    print(len(SYNCED) - counts[0])
    cut_power(workspace.file.path, folder / "cut")


def main() -> None:
    """Run one of these in this process, whose files are counted."""
    folder, disk = Path(sys.argv[2]), CountingDisk()
    match sys.argv[1]:
        case "call":
            asyncio.run(call_and_cut(folder))
        case "turn":
            cut_turn(folder)
        case turns:
            record_steps(folder, int(turns))
    disk.unregister()
