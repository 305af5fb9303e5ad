"""The checks of `whet doctor` on the databases: that they open, have a known schema and are not damaged.

state.db is opened without the store, which would migrate or refuse it. The checks only read.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from whet.cli.checks import DoctorFinding, State
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.contract.texts import plural
from whet.postgres.driver import needs_driver
from whet.sqlite.faults import translate_error
from whet.sqlite.unwritable import open_readable
from whet.store import claims
from whet.store.database import read_team_url
from whet.store.migrations import STEPS
from whet.store.rows import ids_of
from whet.terminal.output import size

_SAFE_SQLITE = (3, 51, 3)
CHECKED_WHOLE_BYTES = 50_000_000
_END_ROWS = 20


def check_database(home: Home, *, full: bool = False) -> Iterator[DoctorFinding]:
    """Check SQLite itself, and that state.db is intact and has a known schema.

    In a large file, only the ends of the tables are read, unless `full` is set.
    """
    version = _sqlite_version()
    state: State = "ok" if tuple(map(int, version.split("."))) >= _SAFE_SQLITE else "warning"
    fix = "" if state == "ok" else "pip install --upgrade apsw: older SQLite can damage a WAL file"
    yield DoctorFinding("sqlite", state, version, fix)
    path = home.database
    if url := read_team_url(home)[0]:
        yield _check_team_database(url)
        return
    if not path.exists():
        yield DoctorFinding("database", "ok", "none yet")
        return
    try:
        with _open_to_check(path) as connection:
            try:
                yield from _check_state_database(path, connection, full=full)
            except (apsw.CorruptError, apsw.NotADBError) as error:
                text = f"{path}: {error}; {_describe_readable(connection)}"
                yield DoctorFinding("database", "failed", text, _restore_hint(path))
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield DoctorFinding("database", "failed", f"{path}: {error}", _restore_hint(path))
    except apsw.Error as error:
        fault = translate_error(error, str(path))
        yield DoctorFinding("database", "failed", f"{path}: {error}", fault.hint)


@contextmanager
def _open_to_check(path: Path) -> Generator[apsw.Connection]:
    """Open a database for reading. One that can't be written is read as the store reads it. Raises
    apsw.Error."""
    copy = None
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(2000)
        connection.pragma("query_only", True)
        with suppress(apsw.CorruptError, apsw.NotADBError):  # the checks report them
            connection.pragma("user_version")
    except (apsw.ReadOnlyError, apsw.CantOpenError):
        connection, _, copy = open_readable(path)
    with closing(connection):
        try:
            yield connection
        finally:
            if copy is not None:
                copy.cleanup()


def _check_team_database(url: str) -> DoctorFinding:
    try:
        with needs_driver():
            from whet.store.team_status import read_status  # noqa: PLC0415 - brings psycopg, an extra

            status = read_status(url, 1.0)
    except WhetError as error:
        return DoctorFinding("database", "failed", error.message, error.hint)
    text = f"{status.server}, {plural(status.steps, 'step')}, {status.address}"
    if status.excess:
        return DoctorFinding("database", "warning", f"{text}; {status.excess}")
    return DoctorFinding("database", "ok", text)


def _sqlite_version() -> str:
    with closing(apsw.Connection(":memory:")) as connection:
        row = connection.execute("SELECT sqlite_version()").fetchone()
    return str(row[0]) if row else "0"


def _check_state_database(path: Path, connection: apsw.Connection, *, full: bool) -> Iterator[DoctorFinding]:
    schema = int(connection.pragma("user_version"))
    if schema > len(STEPS):
        text = f"schema {schema} is newer than this Whet knows ({len(STEPS)})"
        yield DoctorFinding("database", "failed", text, "upgrade Whet, or set WHET_HOME to another folder")
        return
    companions = (path, path.with_name(path.name + "-wal"))
    total = sum(file.stat().st_size for file in companions if file.exists())
    is_whole = full or total <= CHECKED_WHOLE_BYTES
    problem = _check_pages(connection) if is_whole else _check_table_ends(connection)
    if problem != "ok":
        text = f"{path} is damaged: {problem.splitlines()[-1]}; {_describe_readable(connection)}"
        yield DoctorFinding("database", "failed", text, _restore_hint(path))
        return
    extent = "whole" if is_whole else "opens and reads (all of it: whet doctor --full)"
    yield DoctorFinding("database", "ok", f"{extent}, schema {schema}, {size(total)}")
    if schema:
        rows = connection.execute("SELECT host, pid, born FROM claims").fetchall()
        busy = [
            str(pid)
            for host, pid, born in rows
            if host == os.uname().nodename and claims.read_process_birth(pid) == born
        ]
        if busy:
            yield DoctorFinding(
                "in use", "ok", f"a session is open in process {', '.join(sorted(set(busy)))}"
            )


def _check_pages(connection: apsw.Connection) -> str:
    """Check every page, at about 100 MB a second. Returns "ok" or a description of the damage."""
    row = connection.execute("PRAGMA quick_check(1)").fetchone()
    return str(row[0]) if row else "no answer"


def _check_table_ends(connection: apsw.Connection) -> str:
    """Read the first and last rows of every table, in milliseconds at any size, and return "ok".

    Raises apsw.CorruptError at a damaged page.
    """
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    for (name,) in tables:
        columns = connection.execute(f"SELECT name FROM pragma_table_info('{name}') ORDER BY pk = 0, pk")
        key = columns.fetchall()[0][0]
        for order in ("", "DESC"):
            connection.execute(
                f'SELECT * FROM "{name}" ORDER BY "{key}" {order} LIMIT {_END_ROWS}'
            ).fetchall()
    return "ok"


def _describe_readable(connection: apsw.Connection) -> str:
    """Return a text that counts the sessions whose messages can all still be read."""
    try:
        keys = [int(row[0]) for row in connection.execute("SELECT key FROM sessions").fetchall()]
    except apsw.Error:
        return "no session can be read"
    whole = sum(_is_readable(connection, key) for key in keys)
    return f"{whole} of {plural(len(keys), 'session')} can still be read (whet sessions export ID)"


def _is_readable(connection: apsw.Connection, key: int) -> bool:
    try:
        query = "SELECT sum(length(content) + length(extra)) FROM messages WHERE id > ? AND id < ?"
        connection.execute(query, ids_of(key)).fetchall()
    except apsw.Error:
        return False
    return True


def _restore_hint(path: Path) -> str:
    return f"restore a backup, or keep what is left: mv {path} {path}.broken (a new one is made)"
