"""Detect that the reader of standard output has closed the pipe."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress


def watch_reader(stop: Callable[[], object], fd: int = 1) -> None:
    """Call `stop` from the running loop once the last reader of the pipe `fd` has closed it.

    A write would fail as well, but while the model is silent nothing is written. Does nothing if `fd` is not
    the write end of a pipe.
    """
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(fd)
        stop()

    with suppress(OSError):  # it is closed, or the system can't watch it
        is_written = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        if is_written and stat.S_ISFIFO(os.fstat(fd).st_mode):
            # the write end of a pipe becomes readable when the pipe has no reader
            loop.add_reader(fd, end)
