"""A command on its way into a jail: sends it to the launcher, and waits until it runs."""

from __future__ import annotations

import contextlib
import marshal
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from whet.contract.errors import ToolError
from whet.late import late_pattern
from whet.sandbox.descriptors import receive_descriptors
from whet.sandbox.jailed_process import JailedProcess

_ANSWER_S, _LOOK_S = 20.0, 0.5
_PID = late_pattern(rb"^Pid:\s*(-?\d+)", re.MULTILINE)


class JailedCommand(msgspec.Struct, frozen=True):
    """A command to run. `environment` is complete; `cwd` is inside a granted folder.

    With `tty`, its output is a terminal that becomes its controlling terminal. `is_probe`: it only shows
    that the sandbox works, so files with hard links elsewhere stay as they are.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path
    tty: bool = False
    is_probe: bool = False


def send_command(
    control: socket.socket | None, command: JailedCommand, handles: Sequence[int]
) -> socket.socket:
    """Send a command and return the socket for its answer. Raises OSError if the launcher can't have
    received it."""
    assert control is not None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = _encode_command(command)
    try:
        with theirs:
            sent = socket.send_fds(control, [message], [*handles[:3], theirs.fileno(), *handles[3:]])
            if sent < len(message):  # otherwise it has everything, and may already have started and ended
                control.sendall(message[sent:])
        return ours
    except BaseException:
        ours.close()
        raise


def _encode_command(command: JailedCommand) -> bytes:
    argv, env = list(command.argv), dict(command.environment)
    body = marshal.dumps(dict(argv=argv, env=env, cwd=str(command.cwd), tty=command.tty))
    return struct.pack("!I", len(body)) + body


def await_start(ours: socket.socket, command: JailedCommand, is_over: Callable[[], bool]) -> JailedProcess:
    """Wait for the launcher to confirm that the command runs, and return its handle.

    Raises OSError if the command can't be run, and ToolError if the launcher ends or stops first. The
    command may have caused that, so it is not run again.
    """
    answer = b""
    handles: list[int] = []
    ours.settimeout(_LOOK_S)
    deadline = time.monotonic() + _ANSWER_S
    while not answer:
        try:
            answer, handles = receive_descriptors(ours, 64, 1)
        except TimeoutError:
            if not is_over() and time.monotonic() < deadline:
                continue
        if not answer:
            raise ToolError(
                "the sandbox ended as the command began; whether it ran is not known",
                hint="look what it did before you run it again",
            )
    ours.settimeout(None)
    if answer.startswith(b"P") and handles:
        pid = pid_of(handles[0])
        with contextlib.suppress(OSError):  # ended meanwhile: the command's end reports that
            ours.send(b"+")
        return JailedProcess(ours, pid, handles[0])
    number = int(answer[1:] or b"5")
    raise OSError(number, os.strerror(number), str(command.argv[0]))


def pid_of(pidfd: int) -> int:
    """Return the outside process id of a process. Its id in the launcher's namespace differs."""
    handle = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        info = os.read(handle, 4096)
    finally:
        os.close(handle)
    if (match := _PID.search(info)) is not None:
        return int(match[1])
    raise ToolError("the kernel does not say which process a descriptor is")
