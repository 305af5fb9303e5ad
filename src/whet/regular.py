"""Read regular files that any command may have created.

A pipe under a known name would block the reader for ever, a device or a file of many gigabytes would fill
its memory, and a link could bring a secret key into text that a model reads.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from io import BufferedReader
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_regular(path: str | Path, max_bytes: int, within: Path | None = None) -> bytes:
    """Return the first `max_bytes` of a regular file. Raises OSError for anything else, and for a file that
    is outside the folder `within` after its links are followed."""
    with open_regular(path, within) as file:
        return file.read(max_bytes)


def open_regular(path: str | Path, within: Path | None = None) -> BufferedReader:
    """Open a regular file to read it. Raises OSError as `read_regular` does."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a device may already have an effect
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    file = os.fdopen(os.open(path, _FLAGS), "rb")
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if within is not None and not find_open_path(file.fileno()).is_relative_to(os.path.realpath(within)):
            raise OSError(errno.EXDEV, "leads out of its folder", str(path))
    except OSError:
        file.close()
        raise
    return file


def read_regular_text(path: str | Path, max_bytes: int, within: Path | None = None) -> str:
    """Return the beginning of a regular file as text, with replacement characters for invalid UTF-8."""
    return read_regular(path, max_bytes, within).decode("utf-8", "replace")


def find_open_path(handle: int) -> Path:
    """Return the real path of an open file. Its name may refer to another file by now."""
    if sys.platform == "darwin":
        from fcntl import F_GETPATH, fcntl  # noqa: PLC0415  other systems have no such call

        return Path(os.fsdecode(fcntl(handle, F_GETPATH, bytes(1024)).rstrip(b"\0")))
    return Path(os.readlink(f"/proc/self/fd/{handle}"))
