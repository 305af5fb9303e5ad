"""The record of one workspace, in its own SQLite file: contents by hash, each path's states by version, the
steps, and an unfinished rewind.

The version number grows with every scan that found a change. An entry is valid from version `since` until
before version `until`. A commit writes whole pages, so new rows go to the end of their tables, and
numbers that rows show are not stored again. Every function takes a connection inside a transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import ClassVar, Literal

import apsw
import msgspec

from whet.rewind.states import KnownState, PathState, Stamp, Tree, split_path
from whet.sqlite.database import DatabaseFile, Layout, T, Work
from whet.sqlite.lane import ScopedWrite

OPEN = 1 << 62
"""The `until` of current entries."""
RecordKind = Literal["step", "rewind"]

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO facts VALUES ('version', 0);
CREATE TABLE entries (
  path BLOB NOT NULL,
  since INTEGER NOT NULL,
  until INTEGER NOT NULL,
  kind TEXT NOT NULL,                      -- file | folder | link | left_out
  mode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  content BLOB NOT NULL,                   -- a file's SHA-256, a link's target, why it is left out
  mtime_ns INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL,               -- 0: read it again
  inode INTEGER NOT NULL,
  PRIMARY KEY (path, since)
) WITHOUT ROWID;
CREATE INDEX entries_by_until ON entries (until);
CREATE INDEX entries_by_since ON entries (since);
CREATE TABLE blobs (
  id INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  codec INTEGER NOT NULL,                  -- 0 as it is, 1 zlib, 2 in linked/
  data BLOB NOT NULL
);
CREATE TABLE parts (                       -- a large file is a row of blobs
  hash BLOB NOT NULL,
  number INTEGER NOT NULL,
  part BLOB NOT NULL,
  PRIMARY KEY (hash, number)
) WITHOUT ROWID;
CREATE TABLE records (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  session TEXT NOT NULL,
  turn INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,                      -- step | rewind
  before INTEGER NOT NULL,
  after INTEGER,                           -- empty while it runs, or where a crash came
  at_ms INTEGER NOT NULL,
  rewind TEXT NOT NULL DEFAULT '',         -- its number in the store of sessions
  plan BLOB NOT NULL DEFAULT x''           -- what a rewind under way does, MessagePack
);
CREATE INDEX records_by_session ON records (session, id);
CREATE INDEX records_open ON records (id) WHERE kind = 'rewind' AND after IS NULL;
"""
_PARTIAL_INDEXES = f"""
DROP INDEX entries_by_until;
CREATE INDEX entries_ended ON entries (until) WHERE until < {OPEN};
CREATE INDEX entries_left_out ON entries (until) WHERE kind = 'left_out';
"""
_ENTRIES_IN_ORDER = f"""
CREATE TABLE ordered (                     -- new states come last, not among the older ones of their paths
  path BLOB NOT NULL,
  since INTEGER NOT NULL,
  until INTEGER NOT NULL,
  is_gone INTEGER NOT NULL DEFAULT 0,      -- 1: no later entry of the path begins where this one ends
  kind TEXT NOT NULL,
  mode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  content BLOB NOT NULL,
  mtime_ns INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  PRIMARY KEY (since, path)
) WITHOUT ROWID;
INSERT INTO ordered SELECT path, since, until,
  until < {OPEN} AND NOT EXISTS (SELECT 1 FROM entries n WHERE n.path = e.path AND n.since = e.until),
  kind, mode, size, content, mtime_ns, ctime_ns, inode FROM entries e ORDER BY since, path;
DROP TABLE entries;
ALTER TABLE ordered RENAME TO entries;
CREATE INDEX entries_by_path ON entries (path, since);
CREATE INDEX entries_gone ON entries (until) WHERE is_gone = 1;
CREATE INDEX entries_left_out ON entries (until) WHERE kind = 'left_out';
CREATE TABLE numbered (
  id INTEGER PRIMARY KEY,                  -- never used again: see `keep_numbers`
  session TEXT NOT NULL,
  turn INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,
  before INTEGER NOT NULL,
  after INTEGER,
  at_ms INTEGER NOT NULL,
  rewind TEXT NOT NULL DEFAULT '',
  plan BLOB NOT NULL DEFAULT x''
);
INSERT INTO numbered SELECT id, session, turn, step, kind, before, after, at_ms, rewind, plan FROM records;
INSERT INTO facts SELECT 'record', seq FROM sqlite_sequence WHERE name = 'records';
DROP TABLE records;
ALTER TABLE numbered RENAME TO records;
CREATE INDEX records_by_session ON records (session, id);
CREATE INDEX records_open ON records (id) WHERE kind = 'rewind' AND after IS NULL;
"""
_LAST_RECORD = (
    "SELECT max((SELECT coalesce(max(id), 0) FROM records),"
    " coalesce((SELECT value FROM facts WHERE name = 'record'), 0))"
)
_LAST_VERSION = (
    "SELECT max((SELECT coalesce(max(since), 0) FROM entries),"
    " (SELECT coalesce(max(until), 0) FROM entries WHERE is_gone = 1),"
    " (SELECT value FROM facts WHERE name = 'version'))"
)
_CURRENT = f"path = ?1 AND since = (SELECT max(since) FROM entries WHERE path = ?1) AND until = {OPEN}"


class RecordFile(DatabaseFile):
    """The records of one workspace."""

    layout: ClassVar[Layout] = Layout(
        steps=(_SCHEMA, _PARTIAL_INDEXES, _ENTRIES_IN_ORDER),
        newer_hint="set WHET_HOME to another folder",
        access_hint="check the folder's permissions",
        wal_limit_bytes=64_000_000,
        page_bytes=1024,  # a step changes few rows; with 4096 it would write four times as much
        checkpoint_pages=4000,
    )

    def write_unsynced(self, work: Work[T]) -> T:
        """Write and wait, as `write_now`, but without a sync: until the file's next synced commit a power cut
        may undo it, but not the end of the process."""
        return self.write_now(ScopedWrite("", work, is_synced=False))

    def compact(self) -> None:
        """Rewrite the file without deleted data. If another process is using it, SQLite does so later."""
        connection = self._connect()
        try:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except apsw.BusyError:
            pass
        finally:
            connection.close()


class Record(msgspec.Struct, frozen=True):
    """One step, or one rewind: the versions before and after it."""

    id: int
    session: str
    turn: int
    step: int
    kind: RecordKind
    before: int
    after: int
    at_ms: int
    rewind: str = ""


_RECORD = (
    "SELECT id, session, turn, step, kind, before, coalesce(after,"
    " (SELECT min(n.before) FROM records n WHERE n.id > r.id),"
    f" ({_LAST_VERSION})), at_ms, rewind FROM records r"
)


def read_version(connection: apsw.Connection) -> int:
    """Return the number of the last version."""
    ((number,),) = connection.execute(_LAST_VERSION)
    return number


def keep_numbers(connection: apsw.Connection) -> None:
    """Store the last numbers of versions and records. Call it before rows are deleted, so that no number is
    used again."""
    set_fact(connection, "version", read_version(connection))
    connection.execute(f"INSERT OR REPLACE INTO facts VALUES ('record', ({_LAST_RECORD}))")


def read_fact(connection: apsw.Connection, name: str) -> str:
    """Return a fact about the file, or an empty string."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return str(row[0]) if row else ""


def set_fact(connection: apsw.Connection, name: str, value: str | int | bytes) -> None:
    """Store a fact about the file."""
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def load_tree(connection: apsw.Connection) -> tuple[int, Tree]:
    """Return the last version and its complete tree."""
    tree: Tree = {}
    for path, kind, mode, size, content, mtime_ns, ctime_ns, inode in connection.execute(
        "SELECT path, kind, mode, size, content, mtime_ns, ctime_ns, inode FROM entries WHERE until = ?",
        (OPEN,),
    ):
        folder, name = split_path(os.fsdecode(path))
        stamp = (size, mtime_ns, ctime_ns, inode) if ctime_ns else None
        tree.setdefault(folder, {})[name] = KnownState(PathState(kind, mode, size, content), stamp)
    return read_version(connection), tree


def advance(
    connection: apsw.Connection, changed: Iterable[tuple[str, KnownState]], gone: Iterable[str]
) -> int:
    """Begin a version with these changed and deleted paths, and return its number. The entries that end keep
    no stamp: only current ones are compared, and a page then holds a quarter more of them."""
    number = read_version(connection) + 1
    changes = [(os.fsencode(path), known) for path, known in changed]
    ended = [*((path, number, 0) for path, _ in changes), *((os.fsencode(path), number, 1) for path in gone)]
    connection.executemany(
        "UPDATE entries SET until = ?2, is_gone = ?3, mtime_ns = 0, ctime_ns = 0, inode = 0"
        f" WHERE {_CURRENT}",
        ended if number > 1 else (),
    )
    _insert_entries(connection, number, changes)
    return number


def add_deferred(
    connection: apsw.Connection, states: Iterable[tuple[str, KnownState]], deferred: Iterable[str]
) -> int:
    """Add paths as they were before the first version, and store which folders are still recorded later.
    Returns the new version number, which makes every process load them."""
    _insert_entries(connection, 0, [(os.fsencode(path), known) for path, known in states])
    defer_folders(connection, deferred)
    set_fact(connection, "version", number := read_version(connection) + 1)
    return number


def defer_folders(connection: apsw.Connection, folders: Iterable[str]) -> None:
    """Store which folders are recorded only before something may change them."""
    set_fact(connection, "deferred", b"\0".join(map(os.fsencode, sorted(folders))))


def read_deferred(connection: apsw.Connection) -> frozenset[str]:
    """Return the folders that are recorded only before something may change them."""
    row = connection.execute("SELECT value FROM facts WHERE name = 'deferred'").fetchone()
    return frozenset(map(os.fsdecode, row[0].split(b"\0"))) if row and row[0] else frozenset()


def _insert_entries(
    connection: apsw.Connection, number: int, changes: Iterable[tuple[bytes, KnownState]]
) -> None:
    connection.executemany(
        "INSERT INTO entries (path, since, until, kind, mode, size, content, mtime_ns, ctime_ns, inode)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(path, number, OPEN, known.state.kind, known.state.mode, known.state.size),
                *(known.state.content, *_stamp_columns(known.stamp)),
            )
            for path, known in sorted(changes, key=itemgetter(0))
        ],
    )


def restamp(connection: apsw.Connection, stamps: Iterable[tuple[str, Stamp | None]]) -> None:
    """Update the stamps of files whose times changed but whose content did not."""
    connection.executemany(
        f"UPDATE entries SET mtime_ns = ?2, ctime_ns = ?3, inode = ?4 WHERE {_CURRENT}",
        [(os.fsencode(path), *_stamp_columns(stamp)) for path, stamp in stamps],
    )


def _stamp_columns(stamp: Stamp | None) -> tuple[int, int, int]:
    return (0, 0, 0) if stamp is None else stamp[1:]


def state_at(connection: apsw.Connection, path: str, number: int) -> PathState | None:
    """Return a path's state in a version, or None if it did not exist."""
    row = connection.execute(
        "SELECT kind, mode, size, content FROM entries WHERE path = ?1 AND until > ?2"
        " AND since = (SELECT max(since) FROM entries WHERE path = ?1 AND since <= ?2)",
        (os.fsencode(path), number),
    ).fetchone()
    return PathState(*row) if row else None


def find_changed_paths(connection: apsw.Connection, first: int, last: int) -> set[str]:
    """Return the paths that differ between two versions."""
    if first == last:
        return set()
    rows = connection.execute(
        "SELECT path FROM entries WHERE since > ?1 AND since <= ?2"
        " UNION SELECT path FROM entries WHERE until > ?1 AND until <= ?2 AND is_gone = 1",
        (first, last),
    )
    paths = [os.fsdecode(path) for (path,) in rows]
    return {path for path in paths if state_at(connection, path, first) != state_at(connection, path, last)}


def list_change_versions(connection: apsw.Connection, path: str, first: int, last: int) -> list[int]:
    """Return the versions after `first`, up to `last`, that changed a path."""
    rows = connection.execute(
        "SELECT since FROM entries WHERE path = ?1 AND since > ?2 AND since <= ?3"
        " UNION SELECT until FROM entries WHERE path = ?1 AND until > ?2 AND until <= ?3",
        (os.fsencode(path), first, last),
    )
    return [version for (version,) in rows]


def find_paths_below(connection: apsw.Connection, folder: str) -> list[str]:
    """Return the paths that are currently below a folder."""
    low = os.fsencode(folder) + b"/"
    rows = connection.execute(
        "SELECT path FROM entries WHERE path > ? AND path < ? AND until = ?", (low, low[:-1] + b"0", OPEN)
    )
    return [os.fsdecode(path) for (path,) in rows]


def find_left_out(connection: apsw.Connection) -> list[tuple[str, PathState]]:
    """Return the paths that exist now but are not recorded."""
    rows = connection.execute(
        "SELECT path, kind, mode, size, content FROM entries WHERE until = ? AND kind = 'left_out'", (OPEN,)
    )
    return [(os.fsdecode(row[0]), PathState(*row[1:])) for row in rows]


def begin_record(connection: apsw.Connection, new: Record, plan: bytes = b"") -> int:
    """Store the beginning of a step or a rewind, and return its number. A step that exists already is not
    changed."""
    if new.kind == "step":
        row = connection.execute(
            "SELECT id FROM records WHERE session = ? AND turn = ? AND step = ? AND kind = 'step'",
            (new.session, new.turn, new.step),
        ).fetchone()
        if row is not None:
            return row[0]
    connection.execute(
        "INSERT INTO records (id, session, turn, step, kind, before, at_ms, rewind, plan)"
        f" VALUES (({_LAST_RECORD}) + 1, ?, ?, ?, ?, ?, ?, ?, ?)",
        (new.session, new.turn, new.step, new.kind, new.before, new.at_ms, new.rewind, plan),
    )
    return connection.last_insert_rowid()


def end_record(connection: apsw.Connection, number: int, after: int) -> int:
    """Store the end of a step or a rewind, and return the version at its beginning.

    Returns `after` if its record was deleted in the meantime.
    """
    sql = "UPDATE records SET after = ?, plan = x'' WHERE id = ? RETURNING before"
    row = connection.execute(sql, (after, number)).fetchone()
    return row[0] if row else after


def list_records(connection: apsw.Connection, session: str, first: int = 0) -> list[Record]:
    """Return a session's steps and rewinds from number `first` on, oldest first."""
    rows = connection.execute(f"{_RECORD} WHERE session = ? AND id >= ? ORDER BY id", (session, first))
    return [Record(*row) for row in rows]


def list_sessions(connection: apsw.Connection) -> set[str]:
    """Return the sessions that have records here."""
    return {row[0] for row in connection.execute("SELECT DISTINCT session FROM records")}


def list_records_since(connection: apsw.Connection, first_version: int) -> list[Record]:
    """Return the records, of all sessions, that ended after a version."""
    candidates = [Record(*row) for row in connection.execute(f"{_RECORD} ORDER BY id")]
    return [record for record in candidates if record.after > first_version and record.after > record.before]


def find_unfinished_rewind(connection: apsw.Connection) -> tuple[Record, bytes] | None:
    """Return the unfinished rewind and its plan, or None."""
    row = connection.execute(
        "SELECT id, plan FROM records WHERE kind = 'rewind' AND after IS NULL ORDER BY id LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    record_row = connection.execute(f"{_RECORD} WHERE id = ?", (row[0],)).fetchone()
    assert record_row is not None  # it was read in the same transaction
    return Record(*record_row), row[1]


def has_blob(connection: apsw.Connection, hash_: bytes) -> bool:
    """Return whether the content with this hash is stored, as one blob or in parts."""
    return (
        connection.execute(
            "SELECT 1 FROM blobs WHERE hash = ?1 UNION ALL SELECT 1 FROM parts WHERE hash = ?1 LIMIT 1",
            (hash_,),
        ).fetchone()
        is not None
    )


def blob_rows(connection: apsw.Connection, hash_: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the compressed pieces of the content with this hash, in order; none if it is not stored."""
    row = connection.execute("SELECT codec, data FROM blobs WHERE hash = ?", (hash_,)).fetchone()
    if row is not None:
        yield row
        return
    yield from connection.execute(
        "SELECT b.codec, b.data FROM parts p JOIN blobs b ON b.hash = p.part"
        " WHERE p.hash = ? ORDER BY p.number",
        (hash_,),
    )


def store_blobs(
    connection: apsw.Connection,
    blobs: Sequence[tuple[bytes, int, bytes]],
    parts: Sequence[tuple[bytes, int, bytes]] = (),
) -> None:
    """Store contents as (hash, codec, data), and the parts of larger ones as (whole, number, part)."""
    connection.executemany("INSERT OR IGNORE INTO blobs (hash, codec, data) VALUES (?, ?, ?)", blobs)
    connection.executemany("INSERT OR IGNORE INTO parts VALUES (?, ?, ?)", parts)


def used_bytes(connection: apsw.Connection) -> int:
    """Return how many bytes of the file are in use."""
    pages = connection.pragma("page_count") - connection.pragma("freelist_count")
    return int(pages) * int(connection.pragma("page_size"))
