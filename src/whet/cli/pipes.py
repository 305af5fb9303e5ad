"""Notice that the reader of a one-shot's output has left."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress


def watch_reader(stop: Callable[[], object], fd: int = 1) -> None:
    """Call `stop` from the running loop once the last reader of the pipe `fd` has closed it.

    A write fails then, too, but a silent model or command may keep the program from writing for long. Does
    nothing if `fd` is no pipe that is only written."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(fd)
        stop()

    with suppress(OSError):  # it is closed, or the system can't watch it
        is_written = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        if is_written and stat.S_ISFIFO(os.fstat(fd).st_mode):
            # a pipe's end for writing is ready to be read only when it has no reader
            loop.add_reader(fd, end)
