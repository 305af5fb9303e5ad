"""The service's tables in a team's database: any number of processes, one writer at a time.

A writer locks one row, the tail, until its commit, so every decision is made on the current state, and the
audit log is one chain. A process that stops while it holds the tail is disconnected after 5 s. The database's
clock is used. Triggers note each written row (`team_schema.py`).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import psycopg

from whet.postgres import roles
from whet.postgres.commits import COMMIT
from whet.postgres.connection import PostgresConnection
from whet.postgres.driver import hide_password
from whet.postgres.lane import TeamLane
from whet.postgres.pool import ConnectionPool, use_once
from whet.postgres.rows import StatementRows
from whet.sqlite.database import Work
from whet.sqlite.lane import Write as QueuedWrite
from whet_confirm import team_schema
from whet_confirm.database import ConfirmDatabase
from whet_confirm.sealer import Sealer
from whet_confirm.team_schema import NOTED

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_WRITES = re.compile(r"\s*(?:INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM) (\w+)")
_TAIL = (
    f"UPDATE {NOTED}.tail SET number = number + 1, xact = pg_current_xact_id()"
    " RETURNING number, extract(epoch FROM now())::float8"
)
_NUMBER = f"SELECT number FROM {NOTED}.tail"
_EXTRA = 3  # columns of a noted row in addition to the table's own


class NotedRow(NamedTuple):
    """One row that this transaction wrote: before and after, each None if it did not exist."""

    table_name: str
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None


class SealedPostgres(PostgresConnection):
    """The writing connection. It reports each written row, as SQLite's does."""

    def __init__(self, raw: psycopg.Connection, texts: dict[str, bytes]) -> None:
        super().__init__(raw, texts)
        self._tables = frozenset(team_schema.list_noted_tables())
        self._note: Callable[[Any], None] | None = None
        self._on_rollback: Callable[[], None] | None = None
        self._number = -1
        self._others = 0
        self._newest_id: Any = 0
        self.clock_off_s: float = 0.0
        self.sealer: Sealer = Sealer(self)  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that a sealer makes

    def preupdate_hook(self, note: Callable[[Any], None] | None) -> None:
        """Call `note` for each row that is written."""
        self._note = note

    def set_rollback_hook(self, handle_rollback: Callable[[], None] | None) -> None:
        """Call `handle_rollback` after a transaction is rolled back."""
        self._on_rollback = handle_rollback

    def pragma(self, name: str) -> int:
        """Return a number that changes when another connection has written."""
        assert name == "data_version", name  # a sealer reads nothing else
        return self._others

    def data_version(self) -> int:
        """Return a value that never matches an expected one: `pragma` is just as cheap."""
        return -2

    def execute(self, sql: str, values: Any = ()) -> StatementRows:
        """Run a statement and report the rows that it wrote. Raises as `PostgresConnection.execute` does."""
        cursor = super().execute(sql, values)
        self._report_rows(sql)
        return cursor

    def executemany(self, sql: str, rows: Any) -> None:
        """Run a statement for each of the rows, as `execute` does."""
        super().executemany(sql, rows)
        self._report_rows(sql)

    def last_insert_rowid(self) -> int:
        """Return the id of the last new row. The database itself would return the noted row's."""
        return self._newest_id

    def lock_tail(self) -> None:
        """Lock the tail: until the commit no other process can write."""
        row = self._add(_TAIL.encode(), ()).fetchone()
        assert row is not None  # the set-up created the row
        number, now_s = row
        if number != self._number + 1:
            self._others += 1
        self._number = number
        self.clock_off_s = now_s - time.time()

    def handle_rollback(self) -> None:
        """Handle a transaction that was rolled back or whose end is unknown."""
        self._number = -1
        if self._on_rollback is not None:
            self._on_rollback()

    def _report_rows(self, statement: str) -> None:
        """Report the rows that a statement has written."""
        written = _WRITES.match(statement)
        if written is None or (table := written[1]) not in self._tables:
            return
        sql = f"DELETE FROM {NOTED}.{table} WHERE xact = pg_current_xact_id() RETURNING *"
        rows = self._add(sql.encode(), ()).fetchall()
        for row in sorted(rows, key=lambda row: row[-1]):
            cells, is_new = row[:-_EXTRA], row[-_EXTRA]
            if is_new:
                self._newest_id = cells[0]
            if self._note is not None:
                self._note(NotedRow(table, None if is_new else cells, cells if is_new else None))


class _SealingLane(TeamLane):
    """Locks the tail before a batch, and seals the batch at its end."""

    def __init__(self, database: TeamConfirmDatabase, url: str, patience_s: float) -> None:
        super().__init__(database.open_writer, url, patience_s)
        self._database = database

    def begin(
        self, connection: PostgresConnection, row: tuple[str, int], writes: Sequence[QueuedWrite]
    ) -> None:
        """Write the attempt's row and lock the tail."""
        connection.execute(COMMIT.sql, row)
        self._database.writing(connection).lock_tail()

    def end(self, connection: PostgresConnection) -> None:
        """Seal the batch."""
        self._database.sealer.seal(connection)  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that a sealer makes

    def roll_back(self, connection: PostgresConnection) -> None:
        """Drop the sums in memory, so that the next transaction reads them again."""
        self._database.writing(connection).handle_rollback()


class TeamConfirmDatabase(ConfirmDatabase):
    """The service's tables in a team's database, with the same calls as its own file."""

    has_cheap_change_counter: ClassVar[bool] = False

    def __init__(self, url: str, patience_s: float) -> None:
        self.path: Path = Path(hide_password(url))
        self._pool = ConnectionPool(url, team_schema.SEARCH_PATH, patience_s)
        self._writer: SealedPostgres | None = None
        lane = _SealingLane(self, url, patience_s)
        self._lane = lane  # pyright: ignore[reportIncompatibleVariableOverride,reportAttributeAccessIssue] it has the calls that are made of it
        self._batchers = {}
        self._closed = False
        self.wall: Callable[[], float] = self._now_s

    @classmethod
    def open_url(cls, url: str, *, patience_s: float = 10.0) -> TeamConfirmDatabase:
        """Open the tables. Raises StoreError if they can't be reached or have the wrong schema."""
        database = cls(url, patience_s)
        database._pool.check_database(_check)
        try:
            database.write_now(lambda _: None)
        except BaseException:
            database.close()
            raise
        return database

    def writing(self, connection: PostgresConnection) -> SealedPostgres:
        """Return the connection as the writing one."""
        assert isinstance(connection, SealedPostgres)  # the lane gets no others
        return connection

    def read_now(self, work: Work[T]) -> T:
        """Read on the caller's thread, from one consistent state. Raises StoreError."""
        return self._pool.read_now(work)  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that writes make

    def read_one(self, sql: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        """Return the first row of a statement, or None. This is the fastest read."""
        return self._pool.run(lambda connection: connection.execute(sql, values).fetchone())

    async def checkpoint_early(self) -> None:
        """Do nothing: the database maintains its own WAL."""

    def change_counter(self) -> int:
        """Return a number that changes with every commit, whether by this process or another."""
        row = self.read_one(_NUMBER, ())
        return int(row[0]) if row else 0  # pyright: ignore[reportArgumentType] a whole number

    def close(self) -> None:
        """Commit pending writes and close every connection. Calling it again does nothing."""
        if self._closed:
            return
        if self._writer is not None:
            self.sign_last_seal()
        self._closed = True
        self._lane.close()
        self._pool.close()

    def open_writer(self) -> PostgresConnection:
        """Open the connection that writes. Raises psycopg.Error."""
        connection = SealedPostgres(self._pool.open_raw(), self._pool.texts)
        if self._writer is not None:
            connection.sealer.use_keys_of(self._writer.sealer)
        self._writer = connection
        self.sealer: Sealer = connection.sealer
        return connection

    def _now_s(self) -> float:
        return time.time() + (self._writer.clock_off_s if self._writer is not None else 0.0)


def init(url: str) -> list[str]:
    """Create or migrate the service's tables and return the applied steps. Raises StoreError."""
    return use_once(url, team_schema.init)


def _check(raw: psycopg.Connection) -> None:
    """Raise StoreError if the schema is wrong. Log a warning if the role has more rights than it needs."""
    team_schema.check(raw)
    schemas = (team_schema.HOME, team_schema.NOTED)
    if excess := roles.describe_excess(raw, schemas, "confirm"):
        _LOG.warning("%s", excess)


def grant_confirm_role(url: str, *, create: bool) -> list[str]:
    """Grant the service's role its rights, and return the statements that were run.

    Returns none if the role does not exist and `create` is not set. Raises StoreError.
    """
    return use_once(url, lambda raw: roles.grant_rights(raw, "confirm", team_schema.GRANTS, create=create))
