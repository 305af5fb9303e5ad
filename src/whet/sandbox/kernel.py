"""The kernel calls by which the launcher confines itself. Imports only the standard library."""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import os
import struct

TYPE_CHECKING = False  # type checkers take it as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Kernel numbers, equal on both machine types. Tested by the launcher's own tests in a real sandbox.
SYS = {
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict": 446,
}
REFER = 1 << 13  # Landlock's right to move a file into another folder
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
PR_CAP_AMBIENT = 47
LIBC = ctypes.CDLL(None, use_errno=True)


class Ignored:
    """Ends a `with` block at these errors, as `contextlib.suppress` does, which takes 3 ms to import."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Return whether the error is one of these."""
        return kind is not None and issubclass(kind, self._errors)


def check(result: int, call_name: str) -> int:
    """Raise OSError if a call of the C library failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call_name}: {os.strerror(code)}")
    return result


def syscall(name: str, *arguments: Any) -> int:
    """Make a system call that Python has no function for."""
    return check(LIBC.syscall(ctypes.c_long(SYS[name]), *arguments), name)


def prctl(option: int, *values: Any) -> int:
    """Call prctl on this process."""
    padded = [
        ctypes.c_ulong(value) if isinstance(value, int) else value for value in (*values, 0, 0, 0, 0)[:4]
    ]
    return check(LIBC.prctl(option, *padded), f"prctl {option}")


def mount(source: str, target: str, kind: str | None, flags: int, options: bytes | None = None) -> None:
    """Mount a file system, or change a mount."""
    arguments = [text.encode() if text is not None else None for text in (source, target, kind)]
    check(LIBC.mount(*arguments, ctypes.c_ulong(flags), options), f"mount {target}")


def set_read_only(path: str, *, recursive: bool, is_read_only: bool = True) -> None:
    """Set or clear the read-only flag of a mount, and optionally of those below it."""
    attributes = struct.pack("QQQQ", int(is_read_only), int(not is_read_only), 0, 0)
    flags = 0x8000 if recursive else 0
    syscall("mount_setattr", -100, path.encode(), ctypes.c_uint(flags), attributes, ctypes.c_size_t(32))


def raise_loopback() -> None:
    """Activate the namespace's loopback interface, so that servers and clients in one sandbox reach each
    other."""
    handle = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(handle, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))
    handle.close()


def drop_capabilities() -> None:
    """Drop every capability for this process and the programs it starts, root's too."""
    for number in range(64):
        if LIBC.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break
    LIBC.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(4), 0, 0, 0)
    header = struct.pack("Ii", 0x20080522, 0)
    check(LIBC.capset(header, struct.pack("6I", 0, 0, 0, 0, 0, 0)), "capset")


def restrict_files(handled: Sequence[int], rules: Sequence[tuple[str, int]]) -> None:
    """Restrict this process to the paths of the rules. `handled` are the restricted rights and scopes."""
    files, net, scoped = handled
    attributes = struct.pack("QQQ", files, net, scoped)
    size = 24 if scoped else 16 if net else 8
    ruleset = syscall("landlock_create_ruleset", attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    for path, rights in rules:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # removed since the policy was made: there is no path to grant
        try:
            rule = struct.pack("=Qi", rights, handle)
            syscall("landlock_add_rule", ruleset, 1, rule, ctypes.c_uint(0))
        finally:
            os.close(handle)
    syscall("landlock_restrict", ruleset, ctypes.c_uint(0))
    os.close(ruleset)


def filter_calls(program: bytes, listen: int = 0) -> int:
    """Install the seccomp filter.

    With `listen`, the number of the seccomp call, returns a descriptor on which the kernel asks about
    supervised calls.
    """
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    filter_program = Program(len(program) // 8, ctypes.addressof(code))
    if listen:
        return check(
            LIBC.syscall(ctypes.c_long(listen), 1, ctypes.c_uint(8), ctypes.byref(filter_program)), "seccomp"
        )
    return prctl(PR_SET_SECCOMP, 2, ctypes.byref(filter_program))
