"""Reads files that any command may have put there, for what Whet reads by itself and shows to nobody first.

A pipe under a known name would hold the reader up for good, a device or a file of many gigabytes would fill
its memory, and a link would bring a key into what a model reads.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from io import BufferedReader
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_regular(path: str | Path, most_bytes: int, within: Path | None = None) -> bytes:
    """Give the beginning of a regular file. Raises OSError for anything else, and with `within` for a file
    that is not in that folder, whatever links lead to it."""
    with open_regular(path, within) as file:
        return file.read(most_bytes)


def open_regular(path: str | Path, within: Path | None = None) -> BufferedReader:
    """Open a regular file to read it. Raises OSError as `read_regular` does."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # to open a device may already do something
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    file = os.fdopen(os.open(path, _FLAGS), "rb")
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if within is not None and not _place(file.fileno()).is_relative_to(os.path.realpath(within)):
            raise OSError(errno.EXDEV, "leads out of its folder", str(path))
    except OSError:
        file.close()
        raise
    return file


def read_regular_text(path: str | Path, most_bytes: int, within: Path | None = None) -> str:
    """Give the same as text, with marks for what is no UTF-8."""
    return read_regular(path, most_bytes, within).decode("utf-8", "replace")


def _place(handle: int) -> Path:
    """Give where an open file really is; its name may have come to mean another one."""
    if sys.platform == "darwin":
        from fcntl import F_GETPATH, fcntl  # noqa: PLC0415  other systems have no such call

        return Path(os.fsdecode(fcntl(handle, F_GETPATH, bytes(1024)).rstrip(b"\0")))
    return Path(os.readlink(f"/proc/self/fd/{handle}"))
