"""Database files are their owner's only, from before SQLite writes the first byte."""

from __future__ import annotations

import os
from pathlib import Path

from whet.contract.errors import StoreFull, StoreUnwritable
from whet.sqlite.faults import DISK_FULL


def make_private(path: Path, hint: str) -> None:
    """Make the file, or take others' rights on it away. Raises StoreFull, StoreUnwritable (with `hint`).

    An existing file is never opened here: closing it would drop the locks of this process's other
    connections (POSIX locks belong to the process, not to the descriptor).
    """
    try:
        try:
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
        except FileNotFoundError:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StoreFull(f"no space is left to make {path}", hint="free some disk space") from error
        raise StoreUnwritable(f"can't open {path} for writing: {error.strerror}", hint=hint) from error
