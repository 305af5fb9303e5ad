"""Write to PostgreSQL from one process: one connection, one thread, group commit.

This is the lane of SQLite (`sqlite/lane.py`) with two differences. A batch of plain rows is sent as one
message and one transaction, so a worker can't pause in the middle of it. Functions read before they write and
assume that nobody else writes, so a batch with functions takes locks: functions of one scope (`ScopedWrite`)
run in one process of the team at a time, and a function without a scope runs alone.

If the connection is lost, the batch runs again on a new one, unless a row that the lane writes with each
commit (`commits.py`) shows that it was committed. The lane also waits while the disk is full, so that a
model's answer is not lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec
import psycopg

from whet.contract.errors import StoreError
from whet.postgres.commits import COMMIT, CommitNumbers
from whet.postgres.connection import PostgresConnection
from whet.postgres.driver import lock_number
from whet.postgres.faults import is_away, is_lost, log_wait, may_run_again, translate_error
from whet.sqlite.lane import GroupLane, Outcome, RowStatement, ScopedWrite, Write

WRITE_LOCK = 0x57524954
_BEGIN = "SELECT {locks}, whet_commit(?, ?)"
_MAX_RUNS = 8
_PAUSE_S = 0.2
_MAX_JOINED = 3
_TABLE = re.compile(r"(?:INTO|UPDATE|DELETE FROM) (\w+)")
_WORD = re.compile(r"\w+")


class TeamLane(GroupLane):
    """Commits writes in the order they were queued, many in one transaction."""

    name = "team-lane"

    def __init__(self, connect: Callable[[], PostgresConnection], url: str, patience_s: float) -> None:
        super().__init__()
        self._connect = connect
        self._url = url
        self._patience_s = patience_s
        self._connection: PostgresConnection | None = None
        self._numbers = CommitNumbers()

    def begin(self, connection: PostgresConnection, row: tuple[str, int], writes: Sequence[Write]) -> None:
        """Wait for the locks of a batch with functions, and write the attempt's row."""
        locks = _list_locks(writes)
        calls = ", ".join(f"pg_advisory_xact_lock{'_shared' * is_shared}(?)" for _, is_shared in locks)
        connection.execute(_BEGIN.format(locks=calls), (*(number for number, _ in locks), *row))

    def end(self, connection: PostgresConnection) -> None:
        """Add statements to a batch with functions before it is committed. Does nothing here."""

    def roll_back(self, connection: PostgresConnection) -> None:
        """Handle a transaction that was rolled back or whose outcome is unknown. Does nothing here."""

    def close(self) -> None:
        """Commit the queued writes, stop the thread and close the connection."""
        super().close()
        if self._connection is not None:
            self._connection.raw.close()

    def _commit_group(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit all writes in one transaction or, after a failure, each in its own."""
        if not writes:
            return []
        try:
            return self._commit_durably(writes)
        except BaseException as error:  # noqa: BLE001  the error becomes the outcome
            if len(writes) == 1:
                return [(None, self._translate(error))]
        return [outcome for write in writes for outcome in self._commit_group((write,))]

    def _commit_durably(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit writes. Retries for `patience_s` if the connection is lost, and a few times after a conflict
        with another process."""
        until_s = time.monotonic() + self._patience_s
        runs = 0
        while True:
            attempt = _Attempt(self._numbers.next_row())
            try:
                return self._try(writes, attempt)
            except psycopg.Error as error:
                runs += 1
                if is_away(error):
                    was_asked = is_lost(error) and attempt.may_be_committed
                    if is_lost(error):
                        self._drop()
                    if was_asked and self._check_commit(attempt, until_s):
                        return attempt.outcomes
                    if time.monotonic() > until_s:
                        raise
                    log_wait(error, self._url, self._patience_s, runs)
                    if not was_asked:  # the check has opened a new connection: use it at once
                        time.sleep(_PAUSE_S)
                elif not may_run_again(error) or runs >= _MAX_RUNS:
                    raise

    def _try(self, writes: Sequence[Write], attempt: _Attempt) -> list[Outcome]:
        connection = self._connected()
        try:
            self._run_all(connection, writes, attempt)
        except BaseException:
            self.roll_back(connection)
            raise
        finally:
            connection.roll_back()
        return attempt.outcomes

    def _connected(self) -> PostgresConnection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _run_all(self, connection: PostgresConnection, writes: Sequence[Write], attempt: _Attempt) -> None:
        connection.begin()
        if not any(callable(write) for write in writes):
            attempt.outcomes = [(None, None)] * len(writes)
            _write_rows(
                connection, [row for write in writes if not callable(write) for row in write], attempt
            )
        else:
            self.begin(connection, attempt.row, writes)
            outcomes: list[Outcome] = []
            for write in writes:
                if callable(write):
                    outcomes.append((write(connection), None))  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that writes make
                else:
                    for statement, values in write:
                        connection.write_rows(statement, [values])
                    outcomes.append((None, None))
            self.end(connection)
            attempt.outcomes = outcomes
        attempt.may_be_committed = True
        connection.end()

    def _check_commit(self, attempt: _Attempt, until_s: float) -> bool:
        """Ask on a new connection whether an attempt was committed. Raises psycopg.Error if the database does
        not answer before `until_s`."""
        while True:
            try:
                return self._numbers.was_committed(self._connected(), attempt.row)
            except psycopg.Error as error:
                if is_lost(error):
                    self._drop()
                if time.monotonic() > until_s:
                    raise
            time.sleep(_PAUSE_S)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.raw.close()
            self._connection = None

    def _translate(self, error: BaseException) -> BaseException:
        if isinstance(error, apsw.Error):
            store_error = StoreError(
                f"the team's database refused a row: {error}", hint="run `whet team status`"
            )
        elif isinstance(error, psycopg.Error):
            store_error = translate_error(error, self._url)
        else:
            return error
        store_error.__cause__ = error
        return store_error


class _Attempt(msgspec.Struct):
    """One attempt to commit a batch: its row of the commit log, whether the database was asked to commit it,
    and the outcomes of its writes."""

    row: tuple[str, int]
    may_be_committed: bool = False
    outcomes: list[Outcome] = []


def _list_locks(writes: Sequence[Write]) -> list[tuple[int, bool]]:
    """Return the locks of a batch: the number of each, and whether it is shared. There is one for each scope,
    in the same order in every process, or a single one that excludes all others."""
    scopes: set[int] = set()
    for write in writes:
        if isinstance(write, ScopedWrite):
            scopes.add(lock_number(write.scope))
        elif callable(write):
            return [(WRITE_LOCK, False)]
    return [(WRITE_LOCK, True), *((number, False) for number in sorted(scopes))]


def _write_rows(
    connection: PostgresConnection,
    rows: Sequence[tuple[RowStatement, tuple[Any, ...]]],
    attempt: _Attempt,
) -> None:
    """Queue the attempt's row, the checks of fences, and the plain rows. The first rows, if they belong to
    different tables, join the same statement."""
    first_sql, first_values = COMMIT.sql, attempt.row
    joined: list[tuple[RowStatement, tuple[Any, ...]]] = []
    others: list[tuple[RowStatement, tuple[Any, ...]]] = []
    tables: set[str] = set()
    for statement, values in rows:
        if statement.sql.startswith("SELECT "):  # a check, such as a fence's
            first_sql, first_values = f"{first_sql}, {statement.sql[7:]}", (*first_values, *values)
        elif not others and len(joined) < _MAX_JOINED and tables.isdisjoint(_WORD.findall(statement.sql)):
            tables.add(_TABLE.findall(statement.sql)[0])
            joined.append((statement, values))
        else:
            others.append((statement, values))
    connection.write_joined(first_sql, first_values, joined)
    for statement, values in others:
        connection.write_rows(statement, [values])
