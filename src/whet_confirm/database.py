"""The service's own database file, confirmations.db. Several processes may share it.

Quick reads run on the caller's thread. Every commit is synced to disk before its writers are notified.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar, cast

import apsw

from whet.contract.errors import StoreBusy, StoreCorrupt, StoreError, StoreUnwritable
from whet.sqlite.database import DatabaseFile, Layout, Work
from whet.sqlite.faults import FAULTS, translate_error
from whet_confirm.schema import STEPS
from whet_confirm.sealer import SealedConnection, Sealer, sealer_of

T = TypeVar("T")

# The writer blocks while it checkpoints the WAL into the file, so most of that is done early, in parallel.
# The WAL stays small, because a sync that lengthens a file takes twice as long as one that overwrites it.
_EARLY_PAGES, _CHECKPOINT_PAGES = 1_000, 4_000
_HINT = "check the folder's permissions, or name another file with --db-path"


class ConfirmDatabase(DatabaseFile):
    """An open confirmations.db. Read on the loop's thread only with queries that an index answers at once."""

    layout: ClassVar[Layout] = Layout(
        steps=STEPS,
        newer_hint="name another file with --db-path",
        access_hint=_HINT,
        wal_limit_bytes=64_000_000,
        page_bytes=2048,  # a submission changes a row in each of seven pages
        checkpoint_pages=_CHECKPOINT_PAGES,
        writer_cache_kb=16_000,
        read_patience_s=1.0,
        many_writers=True,
    )
    writer: ClassVar[type[apsw.Connection]] = SealedConnection
    wall: Callable[[], float] = staticmethod(time.time)
    """The clock that all users of the database share."""
    sealer: Sealer
    has_cheap_change_counter: ClassVar[bool] = True
    """Whether `change_counter` costs next to nothing."""
    committed: Callable[[], object] | None = None
    """Called on the loop after each commit, before the waiting writers resume."""
    _watcher: apsw.Connection | None = None
    _identity: tuple[int, int] | None = None

    def __init__(self, path: Path, connection: apsw.Connection, patience_s: float) -> None:
        super().__init__(path, connection, patience_s)
        self._path_text = str(path)
        self.sealer = sealer_of(connection)
        self._lane.before_commit = self._seal

    @classmethod
    def open(cls, path: Path, *, patience_s: float = 10.0) -> ConfirmDatabase:
        """Open or create the file and its folder, and migrate its schema, as `open_file` does."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreUnwritable(f"can't make {path.parent}: {error.strerror}", hint=_HINT) from error
        database = cls.open_file(path, "", patience_s)
        try:
            # a lock that is never released stops the start, not the first request
            database.write_now(lambda _: None)
        except StoreError as error:
            database.close()
            raise cls.add_hint(error, path) from error
        return database

    def _on_commit(self) -> None:
        if self.committed is not None:
            self.committed()

    def _seal(self, connection: apsw.Connection) -> None:
        self._check_file_identity()
        self.sealer.seal(connection)

    def _check_file_identity(self) -> None:
        """Raise StoreCorrupt if another file has replaced the one that was opened.

        Writes to the old file would be lost when this process ends, and the new file's content is not
        ours.
        """
        try:
            status = os.stat(self._path_text)  # a str: formatting a Path runs Python code before each commit
            now = status.st_dev, status.st_ino
        except OSError:
            now = (0, 0)
        self._identity = self._identity or now
        if now != self._identity:
            raise StoreCorrupt(
                f"{self.path} was replaced or removed while the service ran",
                hint="stop the service, put the right file back, and start it again",
            )

    def _connect(self) -> apsw.Connection:
        connection = super()._connect()
        try:
            self._check_file_identity()
        except StoreCorrupt:
            connection.close()
            raise
        return connection

    @classmethod
    def add_hint(cls, error: StoreError, path: Path) -> StoreError:
        """Set the hint on an error about a file that can't be opened."""
        if isinstance(error, StoreCorrupt):
            error.hint = (
                f"move it away (mv {path} {path}.broken) and restore a backup; without one, start over: "
                "what was pending is then denied"
            )
        elif isinstance(error, StoreBusy):
            error.hint = f"another process holds a lock on it: see which one (fuser {path}) and stop that"
        elif isinstance(error, StoreUnwritable):
            error.hint = "check the owner and mode of the file and its folder, or name another with --db-path"
        return error

    def read_one(self, sql: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        """Return the first row of a statement, or None. This is the fastest read."""
        reader = self._take_reader()
        try:
            return reader.execute(sql, values).fetchone()  # type: ignore[arg-type]
        except FAULTS as error:
            raise translate_error(error, str(self.path), reader.system_errno) from error
        finally:
            self._return_reader(reader)

    async def read_long(self, work: Work[T]) -> T:
        """Read on a separate thread with its own connection, for queries that may take long."""
        return await asyncio.to_thread(self.read_now, work)

    async def checkpoint_early(self) -> None:
        """Move most of a long WAL into the file on another thread, which leaves little for the writer."""
        if self._lane.log_pages >= _EARLY_PAGES:
            await asyncio.to_thread(self._checkpoint_wal)

    def _checkpoint_wal(self) -> None:
        # A failure costs nothing: a later checkpoint moves the rest.
        with contextlib.suppress(apsw.Error, StoreError), contextlib.closing(self._connect()) as connection:
            connection.pragma("synchronous", "full")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def change_counter(self) -> int:
        """Return a number that changes with every commit, whether by this process or another."""
        if self._watcher is None:
            self._watcher = self._connect()  # the number belongs to the connection
        try:
            row = self._watcher.execute("PRAGMA data_version").fetchone()
        except FAULTS as error:
            raise translate_error(error, str(self.path), self._watcher.system_errno) from error
        return cast("int", row[0]) if row else 0

    def sign_last_seal(self) -> None:
        """Sign the last seal if this process left it unsigned. If that fails, the next start signs it."""
        if not self._closed and self.sealer.has_unsigned_seal:
            with contextlib.suppress(StoreError):
                self.write_now(lambda _: self.sealer.sign())

    def close(self) -> None:
        """Commit pending writes, sign the last seal and close every connection. May be called again."""
        self.sign_last_seal()
        super().close()
        if self._watcher is not None:
            self._watcher.close()
