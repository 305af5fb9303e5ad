"""Open a team's database, a PostgreSQL that several machines share, with the interface of the home's file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from whet.postgres import roles, schema
from whet.postgres.connection import PostgresConnection
from whet.postgres.driver import lock_number
from whet.postgres.lane import TeamLane
from whet.postgres.pool import ConnectionPool, use_once
from whet.sqlite.database import Work
from whet.sqlite.lane import RowStatement
from whet.store import claims, team_claims
from whet.store.database import CallStart, StateDatabase
from whet.store.migrations import STEPS

T = TypeVar("T")
_logger = logging.getLogger("whet.team")
_SCHEMAS = ("public",)
_LANES = 3
_VACUUM = "VACUUM messages, message_words, tool_calls, ledger, learned_texts"


class TeamDatabase(StateDatabase):
    """An open team's database. Safe to use from any thread and event loop.

    Writes wait up to `patience_s` for a lost connection. While it is open, the claims of sessions whose
    turns run in this process are renewed (`team_claims.py`).
    """

    is_team = True

    def __init__(self, url: str, *, lease_s: float, patience_s: float) -> None:
        self.url = url
        self.lease_s = lease_s
        self._connections = ConnectionPool(url, f"-c whet.lease_s={lease_s:g}", patience_s)
        self.connected: Callable[[], PostgresConnection] = self._connections.open_connection
        self._lane_aside, *self._lanes = (
            TeamLane(self.connected, url, patience_s) for _ in range(1 + _LANES)
        )
        self._lane = self._lanes[0]  # pyright: ignore[reportIncompatibleVariableOverride,reportAttributeAccessIssue] it has the calls that are made of it
        self._batchers = {}
        self._later = {}
        self._closed = False
        self.keeper: team_claims.Keeper = team_claims.Keeper(self.connected, lease_s)

    @classmethod
    def open_url(cls, url: str, *, lease_s: float = 20.0, patience_s: float = 30.0) -> TeamDatabase:
        """Open the database. Raises StoreError if it can't be reached or its schema does not fit."""
        database = cls(url, lease_s=lease_s, patience_s=patience_s)
        database._connections.check_database(lambda raw: schema.check(raw, STEPS))
        return database

    def read_now(self, work: Work[T]) -> T:
        """Read on the caller's thread; sees one consistent state. Raises StoreError."""
        return self._connections.read_now(work)  # pyright: ignore[reportArgumentType] it has the calls of SQLite's that works make

    def _lane_of(self, scope: str) -> TeamLane:
        """Return a scope's lane: its writes keep their order, and wait for few others."""
        return self._lanes[lock_number(scope) % _LANES if scope else 0]

    def submit_aside(self, work: Work[T]) -> Future[T]:
        """Queue a write that nobody waits for, on a connection for such writes."""
        return self._put(self._lane_aside, work)

    def run(self, work: Work[T]) -> T:
        """Run one statement in a transaction of its own, beside the lane. Raises StoreError."""
        return self._connections.run(work)  # pyright: ignore[reportArgumentType] as above

    def describe_excess(self) -> str:
        """Return a line about the rights of this process's role that turns do not need, or an empty string.

        Raises StoreError.
        """
        return self._connections.check_database(lambda raw: roles.describe_excess(raw, _SCHEMAS, "agent"))

    def keep_claims(self) -> None:
        """Renew the claims of this process and its own lease from now on.

        The first time, log a warning if the process's role has more rights than turns need.
        """
        if self.keeper.begin(claims.claiming_process()) and (excess := self.describe_excess()):
            _logger.warning("%s", excess)

    def release_session(self, key: int, holder: claims.Holder) -> None:
        """Release any claim of `holder` before the next write."""
        if holder.fence and not self._closed:
            self.submit(lambda connection: team_claims.delete_claim(connection, key, holder))

    def fence(self, key: int, holder: claims.Holder) -> tuple[RowStatement, tuple[Any, ...]]:
        """Return the row that fails the transaction if `holder` has lost the session."""
        return team_claims.FENCE, (key, holder.token, holder.fence)

    def call_start(
        self, key: int, holder: claims.Holder, call: CallStart
    ) -> tuple[RowStatement, tuple[Any, ...]]:
        """Return the row that starts a call, which fails the transaction if `holder` has lost the session."""
        values = (key, holder.token, holder.fence, call.seq, call.at_ms, call.decided_by, call.is_repeat)
        return team_claims.START_CALL, values

    def scrub(self) -> None:
        """Let the database free deleted data. Its backups and log keep that data for their own time."""
        self._connections.run(lambda connection: connection.raw.execute(_VACUUM))

    def close(self) -> None:
        """Commit the submitted writes and close every connection. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._submit_delayed_writes()
        for lane in (*self._lanes, self._lane_aside):
            lane.close()
        self.keeper.close()
        self._wait_for_readers()
        self._connections.close()


def grant_agent_role(url: str, *, create: bool) -> list[str]:
    """Give the role of workers, servers and gateways its rights, and return the executed statements.

    Nothing is done if the role does not exist and `create` is not set. Raises StoreError.
    """
    return use_once(url, lambda raw: roles.grant_rights(raw, "agent", roles.AGENT_GRANTS, create=create))


def init(url: str) -> list[str]:
    """Set up the database or bring it up to date, and return the applied steps' names. Raises StoreError."""
    return use_once(url, lambda raw: schema.init(raw, STEPS))
