"""Receives descriptors over sockets and keeps them from the programs that a process starts.

Whet uses it, and sends it to the jail together with `launcher.py`; so it imports the standard library only.
`socket.recv_fds` is not used: it ignores its flags, so programs started later would inherit the descriptors.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import struct

TYPE_CHECKING = False  # type checkers take it as true
if TYPE_CHECKING:
    from collections.abc import Sequence

_INT_BYTES = 4
_CLOSE_RANGE, _UINT_MAX, _CLOSE_ON_EXEC = 436, 0xFFFFFFFF, 4


def receive_descriptors(channel: _socket.socket, size_bytes: int, count: int) -> tuple[bytes, list[int]]:
    """Receive a message with at most `count` descriptors, which are closed in every program that this process
    starts. Raises OSError."""
    numbers: list[int] = []
    flags = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, _, _ = channel.recvmsg(size_bytes, _socket.CMSG_LEN(count * _INT_BYTES), flags)
    for level, kind, content in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            whole = content[: len(content) - len(content) % _INT_BYTES]
            numbers += struct.unpack(f"{len(whole) // _INT_BYTES}i", whole)
    return data, numbers


def send_descriptors(channel: _socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    """Send a short message with descriptors. Raises OSError."""
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))
    channel.sendmsg([data], [rights])


def close_descriptors_on_exec(libc: ctypes.CDLL) -> None:
    """Mark every descriptor from 3 on to be closed in the programs that this process starts."""
    range_ = (ctypes.c_uint(3), ctypes.c_uint(_UINT_MAX), ctypes.c_uint(_CLOSE_ON_EXEC))
    if libc.syscall(ctypes.c_long(_CLOSE_RANGE), *range_) >= 0:
        return
    for name in os.listdir("/proc/self/fd"):  # before Linux 5.11
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the folder's own descriptor, which is closed
