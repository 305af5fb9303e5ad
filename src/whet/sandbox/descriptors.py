"""Receives descriptors over sockets and keeps them from the programs that a process starts.

Whet uses it, and sends it to the jail together with `launcher.py`; so it imports the standard library only.
`socket.recv_fds` ignores its flags, and what it receives reaches every program that is started afterwards.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import socket

_CLOSE_RANGE, _UINT_MAX, _CLOSE_ON_EXEC = 436, 0xFFFFFFFF, 4


def receive_descriptors(channel: socket.socket, size_bytes: int, count: int) -> tuple[bytes, list[int]]:
    """Receive a message with at most `count` descriptors, which are closed in every program that this process
    starts. Raises OSError."""
    numbers = array.array("i")
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, _, _ = channel.recvmsg(size_bytes, socket.CMSG_LEN(count * numbers.itemsize), flags)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return data, list(numbers)


def keep_descriptors(libc: ctypes.CDLL) -> None:
    """Have every descriptor from 3 on closed in the programs that this process starts from here on."""
    range_ = (ctypes.c_uint(3), ctypes.c_uint(_UINT_MAX), ctypes.c_uint(_CLOSE_ON_EXEC))
    if libc.syscall(ctypes.c_long(_CLOSE_RANGE), *range_) >= 0:
        return
    for name in os.listdir("/proc/self/fd"):  # before Linux 5.11
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
