"""A team's database, PostgreSQL, with the calls of the home's file; several machines share it."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any, TypeVar

import psycopg

from whet.contract.errors import StoreError
from whet.postgres import schema
from whet.postgres.connection import PostgresConnection, connect
from whet.postgres.faults import as_store_error, is_lost
from whet.postgres.lane import TeamLane
from whet.sqlite.database import Work
from whet.sqlite.gather import Gather
from whet.sqlite.lane import RowStatement
from whet.store import claims, team_claims
from whet.store.database import StateDatabase
from whet.store.migrations import STEPS

T = TypeVar("T")
_IDLE_S = 5


class TeamDatabase(StateDatabase):
    """An open team's database. Safe to use from any thread and event loop.

    Writes wait for `patience_s` over a lost connection. While it is open, the sessions whose turns run in
    this process are kept for it (`team_claims.py`).
    """

    is_team = True

    def __init__(self, url: str, *, lease_s: float, patience_s: float) -> None:
        self.url = url
        self.lease_s = lease_s
        self._patience_s = patience_s
        self._texts: dict[str, bytes] = {}
        self._team_lane = TeamLane(self.connected, url, patience_s)
        self._lane = self._team_lane  # pyright: ignore[reportIncompatibleVariableOverride,reportAttributeAccessIssue] it has the calls that are made of it
        self._gather: Gather | None = None
        self._idle: list[PostgresConnection] = []
        self._idle_lock = threading.Lock()
        self._later = {}
        self._closed = False
        self.keeper: team_claims.Keeper = team_claims.Keeper(self.connected, lease_s)

    @classmethod
    def open_url(cls, url: str, *, lease_s: float = 20.0, patience_s: float = 30.0) -> TeamDatabase:
        """Open the database. Raises StoreError where it can't be reached or its schema does not fit."""
        database = cls(url, lease_s=lease_s, patience_s=patience_s)
        connection: PostgresConnection | None = None
        try:
            connection = database.connected()
            schema.check(connection.raw, STEPS)
        except (psycopg.Error, StoreError) as error:
            if connection is not None:
                connection.raw.close()
            raise (as_store_error(error, url) if isinstance(error, psycopg.Error) else error) from error
        database._idle.append(connection)
        return database

    def connected(self) -> PostgresConnection:
        """Open a connection whose transactions end by themselves where this process stops in one."""
        options = (
            f"-c idle_in_transaction_session_timeout={_IDLE_S}s -c lock_timeout=30s -c timezone=UTC"
            f" -c whet.lease_s={self.lease_s:g}"
        )
        return PostgresConnection(connect(self.url, timeout_s=10, options=options), self._texts)

    def read_now(self, work: Work[T]) -> T:
        """Read on the caller's thread; sees one consistent state. Raises StoreError."""
        for is_last in (False, True):
            reader = self._take()
            try:
                result = self._read_with(reader, work)
            except psycopg.Error as error:
                reader.raw.close()
                if is_last or not is_lost(error):
                    raise as_store_error(error, self.url) from error
            except BaseException:
                self._give_back(reader)
                raise
            else:
                self._give_back(reader)
                return result
        raise AssertionError("a read gave neither result nor error")

    @staticmethod
    def _read_with(reader: PostgresConnection, work: Work[T]) -> T:
        reader.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            return work(reader)  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that works make
        finally:
            if not reader.raw.closed and reader.in_transaction:
                reader.raw.execute("ROLLBACK")

    def write_now(self, work: Work[T]) -> T:
        """Write and wait; for synchronous callers."""
        return self.submit(work).result()

    def run(self, work: Work[T]) -> T:
        """Run one statement in a transaction of its own, beside the lane. Raises StoreError."""
        connection = self._take()
        try:
            return work(connection)  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that works make
        except psycopg.Error as error:
            connection.raw.close()
            raise as_store_error(error, self.url) from error
        finally:
            self._give_back(connection)

    def keep_claims(self) -> None:
        """Renew what this process claims from now on."""
        self.keeper.begin(claims.live_tokens)

    def let_go(self, key: int, holder: claims.Holder) -> None:
        """Give free what `holder` may still have, before whatever is written next."""
        if holder.fence and not self._closed:
            self.submit(lambda connection: team_claims.forget(connection, key, holder))

    def fence(self, key: int, holder: claims.Holder) -> tuple[RowStatement, tuple[Any, ...]]:
        """Give the row that fails the transaction where `holder` has lost the session."""
        return team_claims.FENCE, (key, holder.token, holder.fence)

    def scrub(self) -> None:
        """Let the database free what was deleted; its backups and log keep it as long as they are kept."""
        connection = self._take()
        try:
            connection.raw.execute("VACUUM messages, message_words, tool_calls, ledger, learned_texts")
        except psycopg.Error as error:
            raise as_store_error(error, self.url) from error
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Commit what was submitted and close every connection. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._submit_what_waits()
        self._lane.close()
        self.keeper.close()
        self._wait_for_readers()
        for reader in self._idle:
            reader.raw.close()

    def _take(self) -> PostgresConnection:
        with self._idle_lock:
            if self._closed:
                raise StoreError("the database is closed")
            if self._idle:
                return self._idle.pop()
        try:
            return self.connected()
        except psycopg.Error as error:
            raise as_store_error(error, self.url) from error

    def _give_back(self, reader: PostgresConnection) -> None:
        with self._idle_lock:
            if not self._closed and not reader.raw.closed:
                self._idle.append(reader)
                return
        reader.raw.close()


def init(url: str) -> list[str]:
    """Set up the database, or bring it up to date; give the names of the steps applied. Raises StoreError."""
    try:
        with closing(connect(url, timeout_s=10)) as raw:
            return schema.init(raw, STEPS)
    except psycopg.Error as error:
        raise as_store_error(error, url) from error
