"""Standard input and output of a one-shot that are pipes: whether input may come, whether anyone reads."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress


def is_piped(fd: int = 0) -> bool:
    """Return whether `fd` is a pipe, a socket or a file, so that it may hold input."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


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
            loop.add_reader(
                fd, end
            )  # a pipe's end for writing is ready to be read only when it has no reader
