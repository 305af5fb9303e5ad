"""Checks that the indexes of the service's file match its tables.

The sealed sums cover the rows, but not the indexes. A key that was changed in an index hides a row or leads
to another one. SQLite's integrity check compares each row with its entry in every index.
"""

from __future__ import annotations

import time

import apsw

from whet.contract.errors import StoreCorrupt
from whet_confirm import seals

START_S = 5.0
"""The time limit of the check at a start. `audit verify` has none."""
_STEPS = 20_000  # of SQLite's machine, a few milliseconds
_OK = "ok"
# The tables that control permissions are small, and come first.
_FIRST_TABLES = ("tokens", "people", "whitelist", "delegations", "deliveries", "requests", "events")


def index_problems(db: apsw.Connection) -> list[str]:
    """Return the problems of the file's indexes and pages, as lines for a person.

    A team's database is not checked.
    """
    if not _is_file(db):
        return []
    rows = db.execute("PRAGMA integrity_check(5)").fetchall()
    return [_describe(str(row[0])) for row in rows if row[0] != _OK]


def index_problem_at_start(db: apsw.Connection, limit_s: float = START_S) -> tuple[str, str]:
    """Return the first problem, and the table at which the time was up. Each is "" if there is none."""
    if not _is_file(db):
        return "", ""
    until_s = time.monotonic() + limit_s
    tables = [*seals.list_sealed_tables(db), "events"]
    order = [
        *(name for name in _FIRST_TABLES if name in tables),
        *(name for name in tables if name not in _FIRST_TABLES),
    ]
    db.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
    try:
        for table in order:
            try:
                row = db.execute(f"PRAGMA integrity_check('{table}')").fetchone()
            except apsw.InterruptError:
                return "", table
            if row is not None and row[0] != _OK:
                return _describe(str(row[0])), ""
    finally:
        db.set_progress_handler(None)
    return "", ""


def rebuild_indexes(db: apsw.Connection) -> None:
    """Rebuild every index from its table. Raises StoreCorrupt if the rows can't be indexed."""
    if not _is_file(db):
        return
    try:
        db.execute("REINDEX")
    except apsw.ConstraintError as error:
        raise StoreCorrupt(
            f"the database's rows can't be indexed: {error}", hint="restore a backup"
        ) from error


def _is_file(db: apsw.Connection) -> bool:
    return isinstance(db, apsw.Connection)  # pyright: ignore[reportUnnecessaryIsInstance] a team's has the same calls


def _describe(text: str) -> str:
    return f"an index or a page of the database is not what its tables hold: {text.splitlines()[-1][:200]}"
