"""Opens another program's SQLite file for reading, without writing a byte beside it.

A database whose log or journal is not empty can't be read in place without writing to it or next to it, so
it is copied first. Raises ConfigError, worded for a person, if it can't be read.
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

_TRIES = 5
_LOGS = ("-wal", "-journal")
_LOG_HEADER_BYTES = 32


@contextmanager
def open_copy(path: Path) -> Generator[apsw.Connection]:
    """Open the database at `path`, including everything that its writer had committed."""
    try:
        if not path.is_file():
            raise ConfigError(f"there is no {path}", hint="name the folder that holds it")
        logs = [Path(f"{path}{suffix}") for suffix in _LOGS if _size(Path(f"{path}{suffix}"))]
        if not logs:
            with closing(_open_immutable(path)) as connection:
                yield connection
            return
        with (
            tempfile.TemporaryDirectory(prefix="whet-import-") as folder,
            closing(_open_immutable(_copy(path, logs, Path(folder)))) as connection,
        ):
            yield connection
    except apsw.Error as error:
        raise ConfigError(
            f"{path} can't be read ({error})",
            hint="name a SQLite database that is not damaged",
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror})") from error


def check_tables(connection: apsw.Connection, tables: Sequence[str]) -> None:
    """Check `tables` in full before anything is stored. Raises ConfigError if one is damaged."""
    for table in tables:
        row = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        answer = str(row[0]) if row else "no answer"
        if answer != "ok":
            raise ConfigError(
                f"the database is damaged in its table {table} ({answer.splitlines()[0][:120]})",
                hint="mend it first: sqlite3 state.db .recover | sqlite3 mended.db",
            )


def _open_immutable(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(str(path.absolute()))}?immutable=1", flags=flags)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def _copy(path: Path, logs: Sequence[Path], folder: Path) -> Path:
    """Copy the file and its logs as of one moment.

    A log may grow meanwhile: additions are whole commits, or are ignored as torn. The file itself and the
    log's header must not change.
    """
    copy = folder / "copy.db"
    for _ in range(_TRIES):
        before = _state(path, logs)
        try:
            shutil.copyfile(path, copy)
            for log in logs:
                shutil.copyfile(log, f"{copy}{log.name.removeprefix(path.name)}")
        except FileNotFoundError:
            continue  # the log was merged into the file just now
        except OSError as error:
            raise ConfigError(
                f"{path} can't be copied to {folder.parent} ({error.strerror})",
                hint="it is in use; a copy needs room there, or in the folder that TMPDIR names",
            ) from error
        if _state(path, logs) == before:
            connection = apsw.Connection(str(copy))
            connection.pragma("journal_mode", "delete")  # merges the log into the copy
            connection.close()
            return copy
    raise ConfigError(f"{path} is being written to all the time", hint="stop that program, then try again")


def _state(path: Path, logs: Sequence[Path]) -> tuple[object, ...]:
    stat = os.stat(path)
    return stat.st_mtime_ns, stat.st_size, *(_header(log) for log in logs)


def _header(log: Path) -> bytes:
    """Return the header of a log. It changes when the log is written from its start again."""
    try:
        with log.open("rb") as file:
            return file.read(_LOG_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
