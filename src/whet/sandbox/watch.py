"""Make the changes of modes and times that Landlock does not check, for files inside the sandbox only.

The kernel stops such a call and asks here. The file is opened first and judged by its real path, and the
change is made on the opened file, so that it can't be swapped in between. This code is sent to the sandbox
together with `launcher.py` and imports the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct
import time

TYPE_CHECKING = False  # type checkers take it as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

RECEIVE, SEND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102


def supervise(listener: int, supervised: dict[str, Any], inner: int) -> None:
    """Answer the kernel's requests until the inner launcher ends."""
    ended = os.pidfd_open(inner)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        ready = [handle for handle, _ in poll.poll()]
        if ended in ready:
            os.close(ended)
            return
        while reap_other(inner):
            pass
        request = bytearray(80)
        try:
            fcntl.ioctl(listener, RECEIVE, request)
            ticket, pid, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", request)
            error = 0
            try:
                apply_change(supervised, supervised["calls"][str(number)], pid, arguments, (listener, ticket))
            except OSError as refused:
                error = -(refused.errno or errno.EPERM)
            fcntl.ioctl(listener, SEND, bytearray(struct.pack("=QqiI", ticket, 0, error, 0)))
        except OSError:
            continue  # the calling process has ended


def reap_other(inner: int) -> bool:
    """Reap an ended child, unless it is the inner launcher, whose end the loop must see."""
    try:
        child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    if child is None or child.si_pid in (0, inner):
        return False
    os.waitpid(child.si_pid, 0)
    return True


def apply_change(
    supervised: dict[str, Any], name: str, pid: int, arguments: Sequence[int], question: tuple[int, int]
) -> None:
    """Change a file's mode or times for a command, if the policy lets it write the file.

    The file is opened first and judged by its real path, so that it can't be swapped in between. Raises
    OSError.
    """
    if "chown" in name:
        check_owner(arguments[2:4] if name == "fchownat" else arguments[1:3])
        return
    has_folder = name in ("fchmodat", "fchmodat2", "futimesat", "utimensat")
    folder = ctypes.c_int(arguments[0]).value if has_folder or name == "fchmod" else -100
    values = arguments[1:] if has_folder or name == "fchmod" else arguments
    path = b""
    if name != "fchmod":
        path = read_text(pid, values[0]) if values[0] else b""
        values = values[1:]
    flags = values[1] if name in ("fchmodat2", "utimensat") else 0
    times = read_times(name, pid, values[0]) if "utime" in name or name == "futimesat" else None
    base = f"/proc/{pid}/cwd" if folder == -100 else f"/proc/{pid}/fd/{folder}"
    target = os.path.join(base.encode(), path) if path else base.encode()
    handle = os.open(target, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if path and flags & 0x100 else 0))
    try:
        fcntl.ioctl(question[0], IS_VALID, struct.pack("=Q", question[1]))  # the call is still waiting
        real_path = os.readlink(f"/proc/self/fd/{handle}")
        if not is_below(real_path, supervised["roots"]) or is_below(real_path, supervised["not"]):
            raise OSError(errno.EACCES, "outside")
        if times is None:
            os.chmod(f"/proc/self/fd/{handle}", values[0] & 0o1777)
        else:
            set_times(f"/proc/self/fd/{handle}", times)
    finally:
        os.close(handle)


def check_owner(owners: Sequence[int]) -> None:
    """Accept a change of owner to the owner that a command's files have anyway. Raises OSError for any
    other."""
    own_ids = (os.getuid(), os.getgid())
    if not all(ctypes.c_int(owner).value in (-1, mine) for owner, mine in zip(owners, own_ids, strict=True)):
        raise OSError(errno.EPERM, "owner")


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Return whether a path is one of these folders or inside one of them."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Read a command's memory at an address."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def read_text(pid: int, address: int) -> bytes:
    """Read a path from a command's memory, one page at a time, since the next page may not be mapped."""
    data = b""
    while b"\0" not in data and len(data) < 4096:
        data += read_memory(pid, address + len(data), 4096 - (address + len(data)) % 4096)
    return data.partition(b"\0")[0]


def read_times(name: str, pid: int, address: int) -> list[int | None]:
    """Read two times in nanoseconds: None for now, -1 for unchanged."""
    if not address:
        return [None, None]
    if name == "utime":
        return [seconds * 10**9 for seconds in struct.unpack("qq", read_memory(pid, address, 16))]
    parts = struct.unpack("qqqq", read_memory(pid, address, 32))
    factor = 1 if name == "utimensat" else 1000
    special = {0x3FFFFFFF: None, 0x3FFFFFFE: -1} if factor == 1 else {}
    return [special.get(n, s * 10**9 + n * factor) for s, n in (parts[:2], parts[2:])]


def set_times(path: str, times: Sequence[int | None]) -> None:
    """Set the access and modification times, keeping those that are -1."""
    old = os.stat(path)
    now = time.time_ns()
    current = (old.st_atime_ns, old.st_mtime_ns)
    accessed, changed = (
        now if t is None else k if t == -1 else t for t, k in zip(times, current, strict=True)
    )
    os.utime(path, ns=(accessed, changed))
