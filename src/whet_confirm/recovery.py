"""Check at the start that the log, the clock and the tables continue from the last run.

A database that is older than a signed checkpoint, or that another program changed, is not served until an
admin accepts it with a reason. A clock that was far ahead is corrected: everything that was open then
expires, because its deadline is meaningless.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import apsw

from whet.contract.errors import ConfigError
from whet_confirm import audit, decide
from whet_confirm.database import ConfirmDatabase
from whet_confirm.index_check import START_S, index_problem_at_start, rebuild_indexes
from whet_confirm.ledger import Tx
from whet_confirm.sealer import SEALED
from whet_confirm.seals import read_seal
from whet_confirm.watermark import LogMark

BY_START = "system:start"
CLOCK_BOUND_S = 3600.0
BATCH = 500
_LOG = logging.getLogger("whet_confirm.recovery")


def find_rollback(db: apsw.Connection, marks: Sequence[LogMark]) -> str:
    """Return how the log differs from a known earlier end of it, or an empty string."""
    ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM events")
    for mark in marks:
        if mark.size > last:
            return (
                f"the database is older than it was: its log ends at event {last}, but event {mark.size} was"
                " there before"
            )
        row = db.execute("SELECT hash FROM events WHERE id = ?", (mark.size,)).fetchone()
        if row is not None and row[0].hex() != mark.head:
            return f"the database has another history: event {mark.size} is not the one that was there before"
    return ""


def check_start(database: ConfirmDatabase, marks: Sequence[LogMark], why: str, keys: audit.Keys) -> str:
    """Return the problem that was accepted for the reason `why`, or an empty string if there was no problem.

    Raises ConfigError if there is a problem and no reason.
    """
    problem = database.read_now(lambda db: find_rollback(db, marks))
    problem = problem or database.write_now(lambda _: database.sealer.find_problem())
    problem = problem or _index_problem(database)
    problem = problem or database.read_now(lambda db: _unsealed_problem(db, keys))
    if not problem:
        return ""
    if not why.strip():
        raise ConfigError(
            f"{database.path} is not served: {problem}",
            hint="restore the newest copy, or look at it (whet confirm audit verify) and take it as it is:"
            " whet confirm serve --accept-state 'why'",
        )
    return problem


def _unsealed_problem(db: apsw.Connection, keys: audit.Keys) -> str:
    """Return the problem of a database that no seal covers yet, because an older version wrote it.

    It is checked because the first seal will vouch for its contents.
    """
    if read_seal(db) is not None or db.execute("SELECT 1 FROM events LIMIT 1").fetchone() is None:
        return ""
    return next(iter(audit.verify(db, keys).problems), "")


def _index_problem(database: ConfirmDatabase) -> str:
    problem, unfinished = database.read_now(index_problem_at_start)
    if unfinished:
        _LOG.warning(
            "the indexes from the table %s on were not checked within %.0f s: run whet confirm audit verify",
            unfinished,
            START_S,
        )
    return problem


def start_time(database: ConfirmDatabase, wall: Callable[[], float] = time.time) -> tuple[float, float]:
    """Return the time from which the log continues, and by how much its newest event is ahead of the clock.

    The second value is 0.0 if the difference is small enough to continue.
    """
    newest_s = database.read_now(newest_time)
    ahead_s = newest_s - wall()
    return (newest_s, 0.0) if ahead_s <= CLOCK_BOUND_S else (0.0, ahead_s)


def newest_time(db: apsw.Connection) -> float:
    """Return the time of the newest event, or 0.0 if there are no events."""
    row = db.execute("SELECT at FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return float(row[0]) if row else 0.0


def record_state(tx: Tx, problem: str, why: str) -> None:
    """Record that the database is sealed from here on and, if a problem was accepted, the reason."""
    if problem:
        rebuild_indexes(tx.connection)
        tx.sealer.accept()
        tx.record("state_accepted", principal=BY_START, data={"problem": problem, "why": why.strip()})
    row = tx.connection.execute("SELECT 1 FROM facts WHERE name = 'sealed'").fetchone()
    if row is None:
        tx.record(SEALED, principal=BY_START)
        tx.connection.execute("INSERT INTO facts VALUES ('sealed', '1')")


def correct_clock(tx: Tx, ahead_s: float) -> None:
    """Return to the clock's time after a run whose clock was ahead.

    Everything that was open then expires, and nothing lasts longer than intended.
    """
    tx.record("clock_corrected", principal=BY_START, data={"ahead_s": round(ahead_s, 3)})
    while decide.expire_all(tx, BATCH):
        pass
    for table in ("tokens", "whitelist"):
        tx.connection.execute(
            f"UPDATE {table} SET expires_at = expires_at - created_at + ?, created_at = ?"
            " WHERE created_at > ? AND expires_at IS NOT NULL",
            (tx.now_s, tx.now_s, tx.now_s),
        )
    tx.connection.execute("DELETE FROM web_sessions WHERE created_at > ?", (tx.now_s,))
    for table in ("deliveries", "callbacks"):
        tx.connection.execute(
            f"UPDATE {table} SET run_after = ? WHERE run_after > ?", (tx.now_s, tx.now_s + CLOCK_BOUND_S)
        )
    tx.connection.execute(
        "UPDATE second_factors SET last_step = 0, failed_at = 0 WHERE failed_at > ? OR last_step * 30 > ?",
        (tx.now_s, tx.now_s + CLOCK_BOUND_S),
    )
