"""Open the session database: the home's state.db, or the team's database of the setting `store.url`."""

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
from whet.postgres.driver import lock_number, needs_driver
from whet.sqlite.database import DatabaseFile, Layout, Work
from whet.sqlite.faults import translate_error
from whet.sqlite.lane import RowStatement, ScopedWrite
from whet.store import rows
from whet.store.migrations import STEPS
from whet.store.rows import is_team as is_team

if TYPE_CHECKING:
    from whet.store.claims import Holder


T = TypeVar("T")

_READERS = 4


def read_time(connection: apsw.Connection, clock: Clock) -> datetime:
    """Return the time for deadlines that several processes share.

    A team uses the database's time, because the clocks of machines differ; else it is `clock`'s.
    """
    if not is_team(connection):
        return clock.now()
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None  # a query without a table always returns a row
    return datetime.fromtimestamp(row[0], UTC)


def lock_scope(connection: apsw.Connection, scope: str) -> None:
    """In a team, lock what `scope` names until the transaction's end. Wait while another process has it."""
    if is_team(connection):
        connection.execute("SELECT pg_advisory_xact_lock(?)", (lock_number(scope),))


class CallStart(NamedTuple):
    """The start of a call, whose result will be message `seq`. `decided_by` tells why it may run, `is_repeat`
    whether it was started before and may run twice."""

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
    """Whether several machines write to it, so that each write of a turn must be fenced."""
    _pool: ThreadPoolExecutor | None = None

    @classmethod
    def open(cls, path: Path, clock: Clock, *, patience_s: float = 30.0) -> StateDatabase:
        """Open or create the file and update its schema, as `open_file` does.

        A writer waits up to `patience_s` for the writers of other processes.
        """
        return cls.open_file(path, iso(clock.now()), patience_s)

    async def write(self, work: Work[T]) -> T:
        """Write on the writer thread, however long it takes. A cancel stops waiting but undoes nothing."""
        return await self._get_batcher(work.scope if isinstance(work, ScopedWrite) else "").write_large(work)

    async def read(self, work: Work[T]) -> T:
        """Read on a thread with a connection of its own; sees one consistent state."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="store-read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.read_now, work)

    async def look(self, work: Work[T]) -> T:
        """Read a few rows. The home's own file is read on the caller's thread, which is quicker."""
        return await self.read(work) if self.is_team else self.read_now(work)

    def keep_claims(self) -> None:
        """Renew the claims of this process in a team. The home's own file needs no renewal, because others
        can see whether the process lives."""

    def release_session(self, key: int, holder: Holder) -> None:
        """Release the session of a closed holder in a team. The home's own file needs no release, because
        others can see that the holder is closed."""

    def fence(self, key: int, holder: Holder) -> tuple[RowStatement, tuple[Any, ...]]:
        """Return the row that makes its transaction fail unless `holder` has the session."""
        raise StoreError("the home's own file needs no fence")

    def call_start(self, key: int, holder: Holder, call: CallStart) -> tuple[RowStatement, tuple[Any, ...]]:
        """Return the row that starts a call, which fails the transaction if `holder` has lost the session."""
        seq, at_ms, decided_by, is_repeat = call
        return rows.CALL_STARTED, (at_ms, decided_by, key, seq, holder.token, is_repeat)

    def scrub(self) -> None:
        """Rewrite the file and truncate its log, so that no deleted data remains on the disk.

        This takes about a second for a few hundred megabytes, and needs as much free space as the file has.
        Raises StoreBusy if other processes keep using the file, and StoreFull.
        """
        connection = self._connect()
        try:
            connection.set_busy_timeout(self._patience_ms)
            connection.execute("VACUUM")
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        except apsw.Error as error:
            raise translate_error(error, str(self.path)) from error
        finally:
            connection.close()
        if is_busy:
            raise StoreBusy("other processes are using the database", hint="ask again in a moment")

    def _wait_for_readers(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)


_VARIABLE = "WHET_STORE_URL"


def read_team_url(home: Home) -> tuple[str, float]:
    """Return the address of the team's database and the length of its leases in seconds, or ("", 0.0) for the
    home's own file."""
    url = os.environ.get(_VARIABLE, "")
    # A file without the scheme can't name a database, so most homes need not be parsed twice.
    if not url and "postgres" not in (read_small(home.config) or ""):
        return "", 0.0
    from whet.config.load import load  # noqa: PLC0415 - brings YAML, 8 ms

    settings = load(home, environ=os.environ).settings.store
    if settings.url:
        check_team_url(settings.url, "store.url")
    return settings.url, settings.lease_s


def check_team_url(url: str, name: str) -> None:
    """Raise ConfigError if `url`, the value of the setting `name`, is not the address of a team's
    database."""
    if not url.startswith(DATABASE_SCHEMES):
        raise ConfigError(
            f"{name} is not the address of a PostgreSQL database",
            hint="write postgresql://user@host/database",
        )


def open_store(home: Home, clock: Clock) -> StateDatabase:
    """Open the home's store. Raises StoreError, ConfigError."""
    url, lease_s = read_team_url(home)
    return open_team(url, lease_s) if url else StateDatabase.open(home.database, clock)


def open_team(url: str, lease_s: float) -> StateDatabase:
    """Open a team's database. Raises ConfigError if its driver is not installed, StoreError."""
    with needs_driver():
        from whet.store.team import TeamDatabase  # noqa: PLC0415 - brings psycopg, 60 ms, which is an extra

        return TeamDatabase.open_url(url, lease_s=lease_s)


def has_store(home: Home) -> bool:
    """Return whether a store may have content: the home's file exists, or a team's database is configured."""
    return home.database.exists() or bool(read_team_url(home)[0])
