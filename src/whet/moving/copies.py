"""A foreign SQLite file opened for reading, without a byte written beside it.

A database in write-ahead mode whose log is not empty can't be read in place without making files next to
it; such a one is copied first. Raises ConfigError in a person's words where it can't be read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from whet.contract.errors import ConfigError

_TRIES = 3


@contextmanager
def reading(path: Path) -> Generator[apsw.Connection]:
    """Open the database at `path`; what its writer had committed is there."""
    log = Path(f"{path}-wal")
    try:
        if not path.is_file():
            raise ConfigError(f"there is no {path}", hint="name the folder that holds it")
        if not log.exists() or log.stat().st_size == 0:
            with closing(_open(path)) as connection:
                yield connection
            return
        with (
            tempfile.TemporaryDirectory(prefix="whet-import-") as folder,
            closing(_open(_copy(path, log, Path(folder)))) as connection,
        ):
            yield connection
    except apsw.Error as error:
        raise ConfigError(
            f"{path} can't be read ({error})", hint="it is no SQLite database, or a broken one"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror})") from error


def refuse_broken(connection: apsw.Connection, tables: Sequence[str]) -> None:
    """Read `tables` whole and raise ConfigError where one is damaged, before anything of it is stored."""
    for table in tables:
        row = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        said = str(row[0]) if row else "no answer"
        if said != "ok":
            raise ConfigError(
                f"the database is damaged in its table {table} ({said.splitlines()[0][:120]})",
                hint="mend it first: sqlite3 state.db .recover | sqlite3 mended.db",
            )


def _open(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(str(path.absolute()))}?immutable=1", flags=flags)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def _copy(path: Path, log: Path, folder: Path) -> Path:
    """Copy file and log as they were at one moment: neither changed while it was copied."""
    copy = folder / "copy.db"
    for _ in range(_TRIES):
        before = _stamps(path, log)
        shutil.copyfile(path, copy)
        shutil.copyfile(log, f"{copy}-wal")
        if _stamps(path, log) == before:
            connection = apsw.Connection(str(copy))
            connection.pragma("journal_mode", "delete")  # takes the log in
            connection.close()
            return copy
    raise ConfigError(f"{path} is being written to all the time", hint="stop that program, then try again")


def _stamps(*paths: Path) -> list[tuple[int, int]]:
    found = [os.stat(path) for path in paths]
    return [(stat.st_mtime_ns, stat.st_size) for stat in found]
