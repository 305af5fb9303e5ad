"""The session database: state.db, a file of ours with reads on threads, or the team's of `store.url`."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import apsw

from whet.clock import Clock, iso
from whet.config.paths import Home, read_small
from whet.contract.errors import ConfigError, StoreBusy, StoreError
from whet.contract.forms import DATABASE_SCHEMES
from whet.postgres.driver import needs_driver
from whet.sqlite.database import DatabaseFile, Layout, Work
from whet.sqlite.faults import as_store_error
from whet.sqlite.lane import RowStatement
from whet.store import rows
from whet.store.migrations import STEPS

if TYPE_CHECKING:
    from whet.store.claims import Holder  # which asks this module what a connection is to


T = TypeVar("T")

_READERS = 4


def is_team(connection: apsw.Connection) -> bool:
    """Whether it is a team's: there leases count and not processes, and the search index is another."""
    return not isinstance(connection, apsw.Connection)  # pyright: ignore[reportUnnecessaryIsInstance] the team's has the same calls


def time_of(connection: apsw.Connection, clock: Clock) -> datetime:
    """Give the time by which what several processes wait for is measured: `clock`'s, but the database's in a
    team, where the clocks of machines differ."""
    if not is_team(connection):
        return clock.now()
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None  # a query without a table always gives a row
    return datetime.fromtimestamp(row[0], UTC)


class CallStart(NamedTuple):
    """The start of a call: the number of its result, when, why it may run, and whether it was started before
    and is one that may run twice."""

    seq: int
    at_ms: int
    decided_by: str
    is_repeat: bool


class StateDatabase(DatabaseFile):
    """An open state.db. Safe to use from any thread and event loop."""

    layout: ClassVar[Layout] = Layout(
        steps=tuple(STEPS.values()),
        step_names=tuple(STEPS),
        newer_hint="set WHET_HOME to another folder",
        access_hint="check the folder's permissions, or set WHET_HOME to one that you can write",
        wal_limit_bytes=16_000_000,
    )
    is_team: ClassVar[bool] = False
    """Whether several machines write it, so that each write of a turn has to be fenced."""
    _pool: ThreadPoolExecutor | None = None

    @classmethod
    def open(cls, path: Path, clock: Clock, *, patience_s: float = 10.0) -> StateDatabase:
        """Open or make the file and bring its schema up to date, as `open_file` does."""
        return cls.open_file(path, iso(clock.now()), patience_s)

    async def write(self, work: Work[T]) -> T:
        """Write on the lane's thread, however long it takes. A cancel leaves, and undoes nothing."""
        return await self._gather_here().large(work)

    async def read(self, work: Work[T]) -> T:
        """Read on a thread with a connection of its own; sees one consistent state."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="store-read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.read_now, work)

    def keep_claims(self) -> None:
        """Renew what this process claims; in the home's own file others see whether it lives."""

    def let_go(self, key: int, holder: Holder) -> None:
        """Have a session be free whose holder is gone; in the home's own file others see that."""

    def fence(self, key: int, holder: Holder) -> tuple[RowStatement, tuple[Any, ...]]:
        """Give the row that lets the rows beside it be written only while `holder` has the session."""
        raise StoreError("the home's own file needs no fence")

    def call_start(self, key: int, holder: Holder, call: CallStart) -> tuple[RowStatement, tuple[Any, ...]]:
        """Return the row that starts a call, which fails the transaction if `holder` has lost the session."""
        seq, at_ms, decided_by, is_repeat = call
        return rows.CALL_STARTED, (at_ms, decided_by, key, seq, holder.token, is_repeat)

    def scrub(self) -> None:
        """Rewrite the file without what was deleted, and cut its log: none of it is on the disk then.

        Takes a second for some hundred megabytes, and as much room again. Raises StoreBusy where others
        keep on using the file, StoreFull.
        """
        connection = self._connect()
        try:
            connection.set_busy_timeout(self._patience_ms)
            connection.execute("VACUUM")
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        except apsw.Error as error:
            raise as_store_error(error, str(self.path)) from error
        finally:
            connection.close()
        if is_busy:
            raise StoreBusy("other processes are using the database", hint="ask again in a moment")

    def _wait_for_readers(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)


_VARIABLE = "WHET_STORE_URL"


def team_url(home: Home) -> tuple[str, float]:
    """Give the address of the team's database and how long its leases are; "" for the home's own file."""
    url = os.environ.get(_VARIABLE, "")
    # A file that does not name the scheme can't name a database: most homes need not be read twice.
    if not url and "postgres" not in (read_small(home.config) or ""):
        return "", 0.0
    from whet.config.load import load  # noqa: PLC0415 - brings YAML, 8 ms

    settings = load(home, environ=os.environ).settings.store
    if settings.url and not settings.url.startswith(DATABASE_SCHEMES):
        raise ConfigError(
            "store.url is not the address of a PostgreSQL database",
            hint="write postgresql://user@host/database",
        )
    return settings.url, settings.lease_s


def open_store(home: Home, clock: Clock) -> StateDatabase:
    """Open the home's store. Raises StoreError, ConfigError."""
    url, lease_s = team_url(home)
    return open_team(url, lease_s) if url else StateDatabase.open(home.database, clock)


def open_team(url: str, lease_s: float) -> StateDatabase:
    """Open a team's database. Raises ConfigError where its driver is not installed, StoreError."""
    with needs_driver():
        from whet.store.team import TeamDatabase  # noqa: PLC0415 - brings psycopg, 60 ms, which is an extra

        return TeamDatabase.open_url(url, lease_s=lease_s)


def has_store(home: Home) -> bool:
    """Whether there may be anything stored: the home's file is there, or a team's database is named."""
    return home.database.exists() or bool(team_url(home)[0])
