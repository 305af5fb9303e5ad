"""The handle of a confined command outside its jail: its process id, its exit code, and signals to it.

The exit code comes from the kernel, by the command's own descriptor. Before Linux 6.15 only the launcher can
read it, and reports it on a socket that no command gets.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_REPORT_S = 2.0
# PIDFD_GET_INFO for the first version of `struct pidfd_info`: 64 bytes, mask first, the wait status last.
_GET_INFO, _INFO_BYTES, _INFO_EXIT, _STATUS_AT = 0xC040FF0B, 64, 1 << 3, 60


class JailedProcess:
    """A confined command, with the part of Popen's interface that its users need.

    `pid` is its process id outside the jail. After its end `restored_paths` are the protected paths that
    changed while it ran and were restored; `aside` is the folder with the replaced versions. `cpu_s` is the
    CPU time that it and its children used, or None if it is unknown.
    """

    def __init__(self, report: socket.socket, pid: int, pidfd: int) -> None:
        self.restored_paths: list[Path] = []
        self.aside: Path | None = None
        self.ended: Callable[[], list[Path]] | None = None
        self.stdin: BinaryIO | None = None
        self.stdout: BinaryIO | None = None
        self.stderr: BinaryIO | None = None
        self.pid = pid
        self.returncode: int | None = None
        self.cpu_s: float | None = None
        self._report = report
        self._pidfd = pidfd
        self._dead_s = 0.0
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code (-n after signal n), or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a confined command", timeout or 0)
        return code

    def end_handle(self) -> int:
        """Return a descriptor that becomes readable once the command has ended; the caller closes it. Raises
        OSError if the command is known to have ended."""
        with self._lock:
            return os.dup(self._pidfd if self.returncode is None else -1)

    def send_signal(self, number: int) -> None:
        """Signal the command itself, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kill the command itself."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                ready, _, _ = select.select([self._report, self._pidfd], [], [], timeout)
                if self._report in ready:
                    self._end(self._read())
                elif ready:
                    self._expect(timeout)
            return self.returncode

    def _expect(self, timeout: float | None) -> None:
        """Wait for the launcher's report on a command that has ended. A stopped launcher never sends it."""
        now = time.monotonic()
        self._dead_s = self._dead_s or now
        left = max(0.0, self._dead_s + _REPORT_S - now)
        within = left if timeout is None else min(left, timeout)
        if select.select([self._report], [], [], within)[0]:
            self._end(self._read())
        elif within >= left:
            self._end(b"")

    def _read(self) -> bytes:
        try:
            return self._report.recv(64)
        except OSError:
            return b""

    def _end(self, report: bytes) -> None:
        code = exit_code_of(self._pidfd)
        reported_code, self.cpu_s = _read_report(report)
        self.returncode = reported_code if code is None else code
        self._report.close()
        os.close(self._pidfd)
        if self.ended is not None:
            self.restored_paths = self.ended()


def exit_code_of(pidfd: int) -> int | None:
    """Return the exit code of a process that was waited for, -n after signal n. None while it runs, until it
    was waited for, and if the kernel does not say (Linux before 6.15)."""
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("=Q", info)[0] & _INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(struct.unpack_from("=i", info, _STATUS_AT)[0])


def _read_report(report: bytes) -> tuple[int, float | None]:
    """Return the exit code and the CPU seconds that the launcher reported; none are reported if the launcher
    was killed, and its commands with it."""
    with contextlib.suppress(ValueError):
        if report.startswith(b"X"):
            code, _, cpu_ms = report[1:].partition(b" ")
            return int(code), int(cpu_ms) / 1000 if cpu_ms else None
    return -signal.SIGKILL, None
