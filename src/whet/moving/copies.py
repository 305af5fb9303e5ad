"""Open another program's SQLite database for reading, without writing to its folder.

A database whose log or journal is not empty can't be read in place without writing, so it is copied first.
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
    """Open the database at `path` with everything that its program has committed. Raises ConfigError."""
    try:
        if not path.is_file():
            raise ConfigError(f"there is no {path}", hint="name the folder that holds it")
        logs = [Path(f"{path}{suffix}") for suffix in _LOGS if _read_size(Path(f"{path}{suffix}"))]
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
    """Check the whole of `tables`. Raises ConfigError if one is damaged."""
    for table in tables:
        row = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        result = str(row[0]) if row else "no answer"
        if result != "ok":
            raise ConfigError(
                f"the database is damaged in its table {table} ({result.splitlines()[0][:120]})",
                hint="mend it first: sqlite3 state.db .recover | sqlite3 mended.db",
            )


def _open_immutable(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(str(path.absolute()))}?immutable=1", flags=flags)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def _copy(path: Path, logs: Sequence[Path], folder: Path) -> Path:
    """Copy a consistent state of the file and its logs. Raises ConfigError.

    The file and the logs' headers must not change meanwhile, but a log may grow: SQLite ignores an addition
    that is not a whole commit.
    """
    copy = folder / "copy.db"
    for _ in range(_TRIES):
        before = _read_state(path, logs)
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
        if _read_state(path, logs) == before:
            connection = apsw.Connection(str(copy))
            connection.pragma("journal_mode", "delete")  # merges the log into the copy
            connection.close()
            return copy
    raise ConfigError(f"{path} is being written to all the time", hint="stop that program, then try again")


def _read_state(path: Path, logs: Sequence[Path]) -> tuple[object, ...]:
    stat = os.stat(path)
    return stat.st_mtime_ns, stat.st_size, *(_read_header(log) for log in logs)


def _read_header(log: Path) -> bytes:
    """Return the header of a log, which changes when the log is overwritten from its start."""
    try:
        with log.open("rb") as file:
            return file.read(_LOG_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _read_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
