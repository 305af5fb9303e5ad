"""The way of one process's writes to PostgreSQL: one connection, one thread, group commit.

As SQLite's lane (`sqlite/lane.py`), with two differences. A batch of plain rows goes over the network in one
piece, which is one transaction: no worker ever stands still half-way through it. A batch with functions
takes a lock that one batch in the whole team holds at a time: the functions were written for one writer, and
read before they write.

If the connection is lost the batch is run again on a new one, unless it was committed, which a number of
the lane's own in the database tells (`commits.py`). A full disk is waited for, too: what a model has said is
not asked for again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import psycopg

from whet.contract.errors import StoreBusy, StoreError
from whet.postgres.commits import COMMIT, CommitNumbers, forget_old_lanes
from whet.postgres.connection import PostgresConnection
from whet.postgres.faults import is_away, is_lost, may_run_again, translate_error
from whet.postgres.rows import RowSender
from whet.sqlite.lane import GroupLane, Outcome, RowStatement, Work

WRITE_LOCK = 0x57524954
_BEGIN = "BEGIN; SELECT pg_advisory_xact_lock({lock}), whet_commit('{lane}', {number})"
_MAX_RUNS = 8
_PAUSE_S = 0.2
_LOG_AT_RUN = 3
_logger = logging.getLogger("whet.team")


class Round:
    """Hooks around the functions of a batch, which must be the only writer meanwhile."""

    def begin(self, connection: PostgresConnection, row: tuple[str, int]) -> None:
        """Begin a transaction, wait until no other process writes, and write the attempt's row, in one
        message."""
        lane, number = row
        connection.raw.execute(_BEGIN.format(lock=WRITE_LOCK, lane=lane, number=number).encode())

    def end(self, connection: PostgresConnection) -> None:
        """Do the work that belongs into the same transaction, at its end."""

    def roll_back(self) -> None:
        """Called after the transaction was rolled back, or if its end is unknown."""


class TeamLane(GroupLane):
    """Commits works in the order they were queued, many in one transaction. `around` is called for batches
    with functions."""

    name = "team-lane"

    def __init__(
        self,
        connect: Callable[[], PostgresConnection],
        url: str,
        patience_s: float,
        around: Round | None = None,
    ) -> None:
        super().__init__()
        self._around = around or Round()
        self._connect = connect
        self._url = url
        self._patience_s = patience_s
        self._connection: PostgresConnection | None = None
        self._sender: RowSender | None = None
        self._numbers = CommitNumbers()
        self._has_tidied = False

    def try_here(self, works: Sequence[Work]) -> list[Outcome] | None:
        """Do nothing: the caller's thread must never wait for the network."""
        return None

    def close(self) -> None:
        """Commit the queued works, stop the thread and close the connection."""
        super().close()
        if self._connection is not None:
            self._connection.raw.close()

    def _commit_group(self, works: Sequence[Work]) -> list[Outcome]:
        return self._commit(works) if works else []

    def _commit(self, works: Sequence[Work]) -> list[Outcome]:
        """Commit all works in one transaction or, after a failure, each in its own."""
        try:
            return self._commit_durably(works)
        except BaseException as error:  # noqa: BLE001  the one who waits for the result is told
            if len(works) == 1:
                return [(None, self._translate(error))]
        return [outcome for work in works for outcome in self._commit((work,))]

    def _commit_durably(self, works: Sequence[Work]) -> list[Outcome]:
        """Commit works, retrying for the lane's patience if the connection is lost or others' works meet."""
        until_s = time.monotonic() + self._patience_s
        runs = 0
        while True:
            attempt = _Attempt(self._numbers.next_row())
            try:
                return self._try(works, attempt)
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
                    self._log_wait(error, runs)
                    if not was_asked:  # the question opened a connection, which is used while it lives
                        time.sleep(_PAUSE_S)
                elif not may_run_again(error) or runs >= _MAX_RUNS:
                    raise

    def _try(self, works: Sequence[Work], attempt: _Attempt) -> list[Outcome]:
        connection = self._connected()
        try:
            self._run_all(connection, works, attempt)
        except BaseException:
            self._around.roll_back()
            raise
        finally:
            if not connection.raw.closed and connection.in_transaction:
                connection.raw.execute("ROLLBACK")
        return attempt.outcomes

    def _connected(self) -> PostgresConnection:
        if self._connection is None:
            self._connection = self._connect()
            if not self._has_tidied:
                forget_old_lanes(self._connection)
                self._has_tidied = True
        return self._connection

    def _run_all(self, connection: PostgresConnection, works: Sequence[Work], attempt: _Attempt) -> None:
        if not any(callable(work) for work in works):
            attempt.outcomes = [(None, None)] * len(works)
            self._send_rows(
                connection, [row for work in works if not callable(work) for row in work], attempt
            )
            return
        self._around.begin(connection, attempt.row)
        outcomes: list[Outcome] = []
        for work in works:
            if callable(work):
                outcomes.append((work(connection), None))  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that works make
            else:
                for statement, values in work:
                    _write(connection, statement, [values])
                outcomes.append((None, None))
        self._around.end(connection)
        attempt.outcomes, attempt.may_be_committed = outcomes, True
        connection.raw.execute("COMMIT")

    def _send_rows(
        self,
        connection: PostgresConnection,
        rows: Sequence[tuple[RowStatement, tuple[Any, ...]]],
        attempt: _Attempt,
    ) -> None:
        """Send plain rows, those of one statement together, in one piece, which is one transaction."""
        lists: dict[RowStatement, list[tuple[Any, ...]]] = {COMMIT: [attempt.row]}
        for statement, values in rows:
            lists.setdefault(statement, []).append(values)
        if self._sender is None or self._sender.connection is not connection:
            self._sender = RowSender(connection)
        attempt.may_be_committed = True
        try:
            self._sender.send([(statement.sql, row) for statement, values in lists.items() for row in values])
        except psycopg.errors.UniqueViolation as error:
            conflicting = next((statement for statement in lists if statement.conflict), None)
            raise StoreBusy(
                conflicting.conflict if conflicting else "a row is already there",
                hint=conflicting.hint if conflicting else "",
            ) from error

    def _check_commit(self, attempt: _Attempt, until_s: float) -> bool:
        """Return on a new connection whether an attempt was committed whose answer was lost. Raises
        psycopg.Error if the database can't say so before `until_s`."""
        while True:
            try:
                return self._numbers.was_committed(self._connected(), attempt.row)
            except psycopg.Error as error:
                if is_lost(error):
                    self._drop()
                if time.monotonic() > until_s:
                    raise
            time.sleep(_PAUSE_S)

    def _log_wait(self, error: psycopg.Error, runs: int) -> None:
        """Log the reason for the wait, unless it was over quickly."""
        if runs == _LOG_AT_RUN:
            _logger.warning(
                "waiting up to %.0f s: %s", self._patience_s, translate_error(error, self._url).message
            )

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


class _Attempt:
    """One attempt to commit a batch: its row of the commit log, whether the database was asked to commit it,
    and the outcomes of its works."""

    def __init__(self, row: tuple[str, int]) -> None:
        self.row = row
        self.may_be_committed = False
        self.outcomes: list[Outcome] = []


def _write(connection: PostgresConnection, statement: RowStatement, rows: list[tuple[Any, ...]]) -> None:
    try:
        connection.executemany(statement.sql, rows)
    except apsw.ConstraintError as error:
        raise StoreBusy(statement.conflict, hint=statement.hint) from error
