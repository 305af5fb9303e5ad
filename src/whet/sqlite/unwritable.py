"""Open a database that this process may only read: on a read-only disk, or in another user's folder.

A file with a write-ahead log can be read only if its index (-shm) exists or can be created. Otherwise no
process is writing, because a writer has an index. Then an empty log is ignored (`immutable`), and a file with
a log is read from a private copy of both.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import apsw

_READ = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def open_readable(path: Path) -> tuple[apsw.Connection, str, TemporaryDirectory[str] | None]:
    """Open a file for reading. Returns the connection, the URI for opening more of them, and the copy that
    they read, or None if they read the file itself. Raises apsw.Error, OSError."""
    name = f"file:{quote(str(path))}"
    try:
        return _connect(name), name, None
    except apsw.CantOpenError:
        log_path = path.with_name(f"{path.name}-wal")
        if not log_path.exists() or not log_path.stat().st_size:
            name += "?immutable=1"
            return _connect(name), name, None
    copy = TemporaryDirectory(prefix="whet-")
    try:
        for source in (path, log_path):
            shutil.copyfile(source, Path(copy.name) / source.name)
        name = f"file:{quote(copy.name)}/{quote(path.name)}"
        return _connect(name), name, copy
    except BaseException:
        copy.cleanup()
        raise


def _connect(name: str) -> apsw.Connection:
    connection = apsw.Connection(name, flags=_READ)
    try:
        connection.pragma("user_version")  # the first statement opens the log
    except BaseException:
        connection.close()
        raise
    return connection
