from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import stat
import threading
from contextlib import closing

import apsw
import pytest

from tests.store.support import ONLY_SQLITE, child, run_child
from tests.support import cancel_task
from tests.templates import step_by_step
from whet.contract.errors import SchemaTooNew, StoreBusy, StoreCorrupt, StoreError, StoreUnwritable
from whet.sqlite.lane import RowStatement
from whet.store.database import StateDatabase
from whet.store.migrations import STEPS


@pytest.fixture(autouse=True, scope="module")
def made_as_the_product_does():
    with step_by_step():
        yield


def _table(connection):
    connection.execute("CREATE TABLE t (n INTEGER UNIQUE)")


def _add(n):
    return lambda connection: connection.execute("INSERT INTO t VALUES (?)", (n,)) and n


def _all(connection):
    return [row[0] for row in connection.execute("SELECT n FROM t ORDER BY n")]


def test_a_new_file_is_private_and_a_wider_one_is_narrowed(tmp_path, clock):
    path = tmp_path / "state.db"
    StateDatabase.open(path, clock).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    db = StateDatabase.open(path, clock)
    db.write_now(_table)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(f"{path}-wal").st_mode) == 0o600
    db.close()
    db.close()


@ONLY_SQLITE
def test_every_commit_is_synced(db):
    assert db.write_now(lambda c: (c.pragma("journal_mode"), c.pragma("synchronous"))) == ("wal", 2)


async def test_a_write_is_seen_by_readers_when_it_returns(db):
    await db.write(_table)
    assert await db.append(_add(1)) == 1
    assert await db.read(_all) == [1]
    assert db.submit(_add(2)).result(10) == 2
    assert db.write_now(_add(3)) == 3
    assert db.read_now(_all) == [1, 2, 3]


async def test_a_failing_write_fails_alone(db):
    await db.write(_table)
    works = [_add(1), _add(1), lambda c: 1 // 0, _add(2)]
    first, second, third, fourth = await asyncio.gather(
        *(db.append(work) for work in works), return_exceptions=True
    )
    assert (first, fourth) == (1, 2)
    assert isinstance(second, StoreError) and isinstance(third, ZeroDivisionError)
    assert db.read_now(_all) == [1, 2]


@ONLY_SQLITE
async def test_rows_of_many_writes_are_one_commit_and_a_failing_row_fails_alone(db):
    put = RowStatement("INSERT INTO t VALUES (?)", conflict="it is taken")
    commits = []
    await db.write(_table)
    await db.write(lambda c: c.set_commit_hook(lambda: bool(commits.append(1))))
    commits.clear()
    good = await asyncio.gather(*(db.append(((put, (n,)),)) for n in range(8)))
    grouped = len(commits)
    assert (await asyncio.gather(db.append(((put, (20,)),)), db.append(_all)))[1] == [*range(8), 20]
    works = [((put, (8,)),), ((put, (9,)), (put, (1,))), lambda c: len(_all(c)), ((put, (10,)),)]
    rest = await asyncio.gather(*(db.append(work) for work in works), return_exceptions=True)
    good, grouped, (first, second, seen, last) = good, grouped, rest
    assert good == [None] * 8 and grouped == 1
    assert isinstance(second, StoreBusy) and second.message == "it is taken"
    assert (first, seen, last) == (None, 10, None)
    assert db.read_now(_all) == [*range(9), 10, 20]


async def test_a_lone_row_is_on_disk_or_refused(db):
    put = RowStatement("INSERT INTO t VALUES (?)", conflict="it is taken")
    db.write_now(_table)
    for n in range(6):  # the later ones are committed without a detour over the loop
        await db.append(((put, (n,)),))
    with pytest.raises(StoreBusy, match="taken"):
        await db.append(((put, (3,)),))
    await db.append(((put, (6,)),))
    assert db.read_now(_all) == list(range(7))


async def test_a_lone_row_waits_for_another_process(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock, patience_s=30.0)
    put = RowStatement("INSERT INTO t VALUES (?)")
    db.write_now(_table)
    other = apsw.Connection(str(db.path))
    for n in range(4):
        await db.append(((put, (n,)),))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(db.append(((put, (4,)),)))
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    await waiting
    assert db.read_now(_all) == list(range(5))
    other.close()
    db.close()


@ONLY_SQLITE
def test_writes_that_wait_together_share_a_commit(db):
    commits = []
    db.write_now(_table)
    db.write_now(lambda c: c.set_commit_hook(lambda: bool(commits.append(1))))
    held, go = threading.Event(), threading.Event()

    def hold(connection):
        held.set()
        go.wait(10)

    waiting = [db.submit(hold)]
    assert held.wait(10)
    waiting += [db.submit(_add(n)) for n in range(50)]
    go.set()
    for future in waiting:
        future.result(10)
    assert sum(commits) <= 3
    assert len(db.read_now(_all)) == 50


async def test_a_cancelled_waiter_undoes_nothing_and_memory_follows(db):
    db.write_now(_table)
    seen = []
    held, go = threading.Event(), threading.Event()
    blocker = asyncio.create_task(db.write(lambda c: (held.set(), go.wait(10))))
    await asyncio.to_thread(held.wait, 10)
    task = asyncio.create_task(db.append(_add(7), lambda value, error: seen.append((value, error))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await cancel_task(task)
    go.set()
    await blocker
    await db.write(lambda c: None)
    assert db.read_now(_all) == [7] and seen == [(7, None)]


def test_readers_cannot_write(db):
    with pytest.raises(StoreError):
        db.read_now(_table)


def test_a_closed_database_refuses(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    db.submit(_table)
    db.close()
    for attempt in (lambda: db.submit(_add(1)), lambda: db.read_now(_all)):
        with pytest.raises(StoreError, match="closed"):
            attempt()
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(db.append(_add(1)))


def test_close_writes_what_was_submitted(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    db.write_now(_table)
    futures = [db.submit(_add(n)) for n in range(20)]
    db.close()
    assert all(future.done() for future in futures)
    again = StateDatabase.open(tmp_path / "state.db", clock)
    assert again.read_now(_all) == list(range(20))
    again.close()


@pytest.mark.slow
def test_the_log_file_stays_small(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    db.write_now(lambda c: c.execute("CREATE TABLE big (x)"))
    for _ in range(60):
        db.write_now(lambda c: c.execute("INSERT INTO big VALUES (zeroblob(400000))"))
    db.write_now(lambda c: None)
    db.submit(lambda c: None).result(10)
    assert os.path.getsize(f"{db.path}-wal") < 20_000_000
    db.close()


@pytest.mark.parametrize(
    "content", [b"this is not a database, but long enough to be read " * 40, b"\0" * 5000]
)
def test_a_file_that_is_no_database_is_corrupt_and_left_alone(tmp_path, clock, content):
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt) as caught:
        StateDatabase.open(path, clock)
    assert caught.value.hint
    assert path.read_bytes() == content


def test_damage_inside_is_corrupt(tmp_path, clock):
    path = tmp_path / "state.db"
    StateDatabase.open(path, clock).close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreCorrupt), closing(StateDatabase.open(path, clock)) as db:
        db.read_now(lambda c: c.execute("SELECT * FROM sessions, turns, messages").fetchall())


def test_a_newer_schema_is_refused_untouched(tmp_path, clock):
    path = tmp_path / "state.db"
    StateDatabase.open(path, clock).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="newer Whet") as caught:
        StateDatabase.open(path, clock)
    assert "upgrade" in caught.value.hint
    assert path.read_bytes() == before


def test_migrations_are_recorded_once(tmp_path, clock):
    for _ in range(2):
        db = StateDatabase.open(tmp_path / "state.db", clock)
        names = db.read_now(lambda c: c.execute("SELECT name FROM migrations").fetchall())
        assert names == [(name,) for name in STEPS]
        db.close()


_OPEN_AS_NOBODY = """
import os, sys
from pathlib import Path
from whet.clock import SystemClock
from whet.contract.errors import StoreUnwritable
from whet.store.database import StateDatabase
from whet.sqlite.lane import RowStatement
if os.getuid() == 0:
    os.setuid(65534)
try:
    db = StateDatabase.open(Path(sys.argv[1]), SystemClock())
    db.write_now(lambda c: c.execute("CREATE TABLE x (y)"))
except StoreUnwritable as error:
    print("unwritable:", error.hint)
"""


@pytest.mark.slow
@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_folder_is_unwritable(tmp_path, clock, exists):
    folder = tmp_path / "home"
    folder.mkdir()
    if exists:
        StateDatabase.open(folder / "state.db", clock).close()
        (folder / "state.db").chmod(0o444)
    for part in (folder, *folder.parents):
        if (
            part.stat().st_uid == os.getuid()
            and part != part.parent
            and str(part).startswith(str(tmp_path.parents[2]))
        ):
            part.chmod(part.stat().st_mode | 0o055)
    folder.chmod(0o555)
    code, output = run_child(_OPEN_AS_NOBODY, str(folder / "state.db"))
    folder.chmod(0o755)
    assert code == 0 and output.startswith("unwritable:"), output


_FILL = """
import resource, signal, sys
from pathlib import Path
from whet.clock import SystemClock
from whet.contract.errors import StoreFull
from whet.store.database import StateDatabase
from whet.sqlite.lane import RowStatement
db = StateDatabase.open(Path(sys.argv[1]), SystemClock())
db.write_now(lambda c: c.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, x)"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
written = 0
try:
    while written < 1000:
        db.write_now(lambda c: c.execute("INSERT INTO t VALUES (NULL, zeroblob(20000))"))
        written += 1
except StoreFull as error:
    print(written, db.read_now(lambda c: c.execute("SELECT count(*) FROM t").fetchone()[0]), error.hint)
"""


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_written(tmp_path, clock):
    code, output = run_child(_FILL, str(tmp_path / "state.db"))
    assert code == 0, output
    written, kept, hint = output.split(maxsplit=2)
    assert 0 < int(written) < 1000 and written == kept and "free some disk space" in hint
    db = StateDatabase.open(tmp_path / "state.db", clock)
    assert db.read_now(lambda c: c.execute("SELECT count(*) FROM t").fetchone()) == (int(written),)
    assert db.read_now(lambda c: c.pragma("integrity_check")) == "ok"
    db.close()


@pytest.mark.slow
def test_two_processes_write_one_file(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    db.write_now(_table)
    code = """
import sys
from pathlib import Path
from whet.clock import SystemClock
from whet.store.database import StateDatabase
from whet.sqlite.lane import RowStatement
db = StateDatabase.open(Path(sys.argv[1]), SystemClock())
for n in range(1000, 1300):
    db.write_now(lambda c: c.execute("INSERT INTO t VALUES (?)", (n,)))
db.close()
"""
    process = child(code, str(db.path))
    for n in range(300):
        db.write_now(_add(n))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert len(db.read_now(_all)) == 600
    db.close()


def test_a_lock_held_too_long_is_busy(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock, patience_s=0.05)
    other = apsw.Connection(str(db.path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        db.write_now(lambda c: 1)
    with pytest.raises(StoreBusy):
        asyncio.run(db.append(lambda c: 1))
    other.execute("ROLLBACK")
    assert db.write_now(lambda c: 1) == 1
    other.close()
    db.close()


def test_a_new_file_waits_for_a_process_that_writes_its_first_tables(tmp_path, clock, monkeypatch):
    """SQLite does not wait for it when a file gets its write-ahead log."""
    other = apsw.Connection(str(tmp_path / "state.db"))
    other.execute("BEGIN IMMEDIATE; CREATE TABLE first (x)")
    switches = []

    def trace(cursor, statement, bindings):
        if statement.startswith('pragma "journal_mode"('):
            switches.append(statement)
            if len(switches) == 2:
                other.execute("COMMIT")
        return True

    monkeypatch.setattr(
        apsw, "connection_hooks", [lambda connection: setattr(connection, "exec_trace", trace)]
    )
    StateDatabase.open(tmp_path / "state.db", clock).close()
    assert len(switches) == 2


def test_a_folder_that_does_not_exist_is_unwritable(tmp_path, clock):
    with pytest.raises(StoreUnwritable):
        StateDatabase.open(tmp_path / "no" / "state.db", clock)


@ONLY_SQLITE
def test_a_number_beyond_the_database_is_one_line_in_reads_and_writes(db):
    db.write_now(_table)
    for work in (db.write_now, db.read_now):
        with pytest.raises(StoreError, match="larger than the database can hold"):
            work(lambda c: c.execute("SELECT * FROM t WHERE n = ?", (1 << 64,)).fetchall())
    db.write_now(_add(1))
    assert db.read_now(_all) == [1]


class ClosesUnseen(asyncio.SelectorEventLoop):
    """Says that it is open, as one does that closes right after it was asked."""

    hides = True

    def is_closed(self):
        return not self.hides and super().is_closed()


def test_a_loop_that_closes_before_its_write_is_answered_leaves_the_database_usable(db):
    """The lane's thread ended by the loop's error, and every later write waited for ever."""
    db.write_now(_table)
    loop, begun, closed = ClosesUnseen(), threading.Event(), threading.Event()

    def slow(connection):
        begun.set()
        assert closed.wait(20)
        return _add(1)(connection)

    async def main():
        writing = asyncio.create_task(db.write(slow))
        assert await asyncio.to_thread(begun.wait, 20)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    closed.set()
    assert db.submit(_add(2)).result(20) == 2
    assert db.read_now(_all) == [1, 2]
    loop.hides = False


def test_a_process_that_may_open_no_more_files_is_not_said_to_lack_rights(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    handle = os.open(os.devnull, os.O_RDONLY)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (handle, hard))
    try:
        with pytest.raises(StoreUnwritable, match=rf"all the files open that it may \({handle}\)") as caught:
            db.read_now(lambda c: 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(handle)
        db.close()
    assert "ulimit -n" in caught.value.hint


def test_a_read_that_fails_leaves_no_reader_at_an_old_state(tmp_path, clock):
    """The traceback of an error keeps the query that it interrupted."""

    def fail(connection):
        cursor = connection.execute("SELECT name FROM sqlite_schema")
        cursor.fetchone()
        raise ValueError("interrupted")

    database = StateDatabase.open(tmp_path / "state.db", clock)
    with pytest.raises(ValueError, match="interrupted") as kept:
        database.read_now(fail)
    database.write_now(lambda connection: connection.execute("CREATE TABLE later (x)").fetchall())
    count = "SELECT count(*) FROM sqlite_schema WHERE name = 'later'"
    assert database.read_now(lambda connection: connection.execute(count).fetchone()) == (1,), kept
    database.close()
