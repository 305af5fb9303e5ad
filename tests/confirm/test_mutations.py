"""Two thousand changes from outside, over every table and file: each is found, or refused at the start."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import apsw
import pytest

from tests.confirm.running import SUBMIT, Running
from tests.confirm.test_tampering import columns, look, other, paths
from whet.contract.errors import ConfigError, StoreError
from whet_confirm import audit
from whet_confirm.open import ServicePaths, StartTerms, open_service
from whet_confirm.service import CallerLimits

__all__ = ["paths"]  # the fixture

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_600)]

CHANGED, TAKEN, ADDED, FLIPPED, CUT, ROLLED_BACK = 1_000, 300, 300, 200, 100, 100


class Table:
    """One table's shape."""

    def __init__(self, db: apsw.Connection, name: str) -> None:
        rows = [*db.execute(f"PRAGMA table_info({name})")]
        self.name = name
        self.kinds = {str(row[1]): str(row[2]) for row in rows}
        self.keys = [str(row[1]) for row in rows if row[5]]
        unique = [row[1] for row in db.execute(f"PRAGMA index_list({name})") if row[2]]
        infos = [row for index in unique for row in db.execute(f"PRAGMA index_info({index})")]
        self.unique = {*self.keys, *(str(row[2]) for row in infos)}
        self.where = " AND ".join(f"{key} = ?" for key in self.keys)

    def any_row(self, db: apsw.Connection, dice: random.Random) -> tuple[object, ...]:
        count = int(db.execute(f"SELECT count(*) FROM {self.name}").fetchone()[0])  # type: ignore[index]
        sql = f"SELECT * FROM {self.name} LIMIT 1 OFFSET {dice.randrange(count)}"
        return tuple(db.execute(sql).fetchone())  # type: ignore[arg-type]

    def key_of(self, row: tuple[object, ...]) -> tuple[object, ...]:
        names = [*self.kinds]
        return tuple(row[names.index(key)] for key in self.keys)


@contextmanager
def undone(db: apsw.Connection) -> Iterator[None]:
    """Let a change be there for as long as it is looked at: no file is copied."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def change(db: apsw.Connection, table: Table, dice: random.Random) -> str:
    row = table.any_row(db, dice)
    name = dice.choice([*table.kinds])
    value = other(row[[*table.kinds].index(name)], table.kinds[name], dice)
    db.execute(f"UPDATE {table.name} SET {name} = ? WHERE {table.where}", (value, *table.key_of(row)))  # type: ignore[arg-type]
    return f"{table.name}.{name}"


def take(db: apsw.Connection, table: Table, dice: random.Random) -> str:
    key = table.key_of(table.any_row(db, dice))
    db.execute(f"DELETE FROM {table.name} WHERE {table.where}", key)  # type: ignore[arg-type]
    return table.name


def add(db: apsw.Connection, table: Table, dice: random.Random) -> str:
    """Write a row like another under a key of its own."""
    row, names = [*table.any_row(db, dice)], [*table.kinds]
    for key in table.unique:
        at, kind = names.index(key), table.kinds[key]
        is_number = kind == "INTEGER"
        row[at] = dice.randrange(10**6, 10**9) if is_number else other(row[at], kind, dice)
    db.execute(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(row))})", row)  # type: ignore[arg-type]
    return table.name


@pytest.mark.parametrize(("what", "count"), [(change, CHANGED), (take, TAKEN), (add, ADDED)])
def test_rows_that_are_changed_taken_or_added_are_found(paths, tmp_path, what, count):
    copy = shutil.copy(paths.database, tmp_path / "copy.db")
    keys, marks = audit.read_keys(paths.public_key), audit.read_checkpoints(paths.checkpoints)
    dice, missed, reached = random.Random(16), [], Counter[str]()
    db = apsw.Connection(str(copy))
    tables = [Table(db, name) for name in dict.fromkeys(table for table, _, _ in columns(paths))]
    for table in islice(cycle(tables), 3 * count):
        if reached.total() == count:
            break
        with undone(db):
            try:
                place = what(db, table, dice)
            except apsw.ConstraintError:  # SQLite itself does not take it: another one is tried
                continue
            reached[place] += 1
            if audit.verify(db, keys, marks).is_good:
                missed.append(place)
    db.close()
    only_one = {"seal"} if what is add else set[str]()  # it has one row, and SQLite takes no second
    assert not missed and reached.total() == count
    assert {text.partition(".")[0] for text in reached} == {table.name for table in tables} - only_one


def content(path: Path) -> list[object] | None:
    """Everything that the tables of a file hold; None where it can't be read."""
    db = sqlite3.connect(path)
    db.text_factory = bytes
    try:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        names = [name.decode() for (name,) in tables]
        schema = db.execute("SELECT * FROM sqlite_master ORDER BY 2, 3").fetchall()
        return [schema, *(db.execute(f"SELECT * FROM {name}").fetchall() for name in names)]
    except (sqlite3.Error, UnicodeDecodeError):
        return None
    finally:
        db.close()


def test_bytes_that_are_flipped_in_the_file_are_found(paths, tmp_path):
    """A bit anywhere in the file: what changes nothing that is read (unused space) does not count."""
    whole, before = paths.database.read_bytes(), content(paths.database)
    dice, missed, count, path = random.Random(4), [], 0, tmp_path / "flipped.db"
    while count < FLIPPED:
        at, bit = dice.randrange(len(whole)), 1 << dice.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        for end in ("-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        if (now := content(path)) == before:
            continue
        count += 1
        try:
            is_found = not look(path, paths).is_good
        except (apsw.Error, StoreError):
            is_found = True
        if not is_found:
            missed.append((at, bit, now is None))
    assert not missed


def test_a_log_or_its_checkpoints_that_are_cut_are_found(paths, tmp_path):
    copy = shutil.copy(paths.database, tmp_path / "copy.db")
    keys, marks = audit.read_keys(paths.public_key), audit.read_checkpoints(paths.checkpoints)
    dice, missed = random.Random(5), []
    db = apsw.Connection(str(copy))
    last = int(db.execute("SELECT max(id) FROM events").fetchone()[0])  # type: ignore[index]
    for number in range(CUT):
        at = dice.randrange(last)
        with undone(db):
            db.execute("DELETE FROM events WHERE id > ?", (at,))
            if number % 2:  # and all that speaks of it, as far as whoever has no key can write it
                head = db.execute("SELECT hash FROM events ORDER BY id DESC LIMIT 1").fetchone()
                db.execute("DELETE FROM checkpoints WHERE size > ?", (at,))
                db.execute("UPDATE seal SET size = ?, head = ?", (at, head[0] if head else b""))
            if audit.verify(db, keys, marks if number % 3 else ()).is_good:
                missed.append(at)
    db.close()
    assert not missed


def test_a_service_rolled_back_to_any_earlier_state_does_not_start(tmp_path):
    """The database alone; with its watermark; with all its files, where a witness elsewhere has more."""
    home, witness, kept = tmp_path / "home", tmp_path / "elsewhere.jsonl", tmp_path / "kept"
    home.mkdir()
    with Running(home, rate=10**6, upkeep=False) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        steps = ROLLED_BACK // 4
        for number in range(steps):
            shutil.copytree(home, kept / str(number))
            request = agent.post("/confirm", json=SUBMIT).json()
            alice.post(f"/confirm/{request['id']}/approve")
        where = server.paths
    shutil.copy(where.checkpoints, witness)
    served = []
    for number in range(steps):
        for way in range(4):
            now = tmp_path / f"now{number}-{way}"
            shutil.copytree(home, now)
            old, files = kept / str(number), [f"confirmations.db{end}" for end in ("", "-wal", "-shm")]
            files += ["confirm/latest.json"] if way in (1, 3) else []
            files += ["confirm/checkpoints.jsonl"] if way == 3 else []
            for name in files:
                (now / name).unlink(missing_ok=True)
                if (old / name).exists():
                    shutil.copy(old / name, now / name)
            if way == 2:
                (now / "confirm" / "latest.json").unlink()
            terms = StartTerms(witnesses=(witness,) if way == 3 else ())
            places_now = ServicePaths(now / "confirmations.db", now / "confirm")
            try:
                open_service(places_now, policy=None, limits=CallerLimits(), terms=terms).database.close()
                served.append((number, way))
            except (ConfigError, StoreError):
                pass
            shutil.rmtree(now)
    assert not served
