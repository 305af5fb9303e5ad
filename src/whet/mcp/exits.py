"""Wait for the end of a child process that leads a process group, and kill the remaining group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from whet.lanes import call_in_loop
from whet.tools.process import SYSTEM_PIDFD

if TYPE_CHECKING:
    from whet.sandbox.jail import Started

_REAP_S = 1.0


class ChildExit:
    """Sets `ended` when a child ends. The child stays unreaped until `kill_group`, so that its group number
    can't be reused meanwhile."""

    def __init__(self, popen: Started) -> None:
        self.ended: asyncio.Event = asyncio.Event()
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        try:
            self._pid_fd = SYSTEM_PIDFD(popen.pid) if SYSTEM_PIDFD else -1
        except OSError:
            self._pid_fd = -1
        if self._pid_fd >= 0:
            self._loop.add_reader(self._pid_fd, self._handle_exit)
        else:  # a system without pidfds
            threading.Thread(target=self._wait, name=f"wait-{popen.pid}", daemon=True).start()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the end, up to `timeout_s`. Returns whether the child has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        return self.ended.is_set()

    def kill_group(self) -> int | None:
        """Kill the remaining group, reap the child, and return its exit code, or None if it did not end."""
        if self._popen.returncode is None:
            signal_group(self._popen.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_REAP_S)
        self._unwatch()
        return self._popen.returncode

    def _handle_exit(self) -> None:
        self._unwatch()
        self.ended.set()

    def _unwatch(self) -> None:
        fd, self._pid_fd = self._pid_fd, -1
        if fd >= 0:
            self._loop.remove_reader(fd)
            os.close(fd)

    def _wait(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # already reaped
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS before Python 3.13; the remaining group is then not killed
            self._popen.wait()
        call_in_loop(self._loop, self.ended.set)


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group that may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
