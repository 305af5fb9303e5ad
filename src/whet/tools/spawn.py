"""Start a shell command as a child process, with its input and output, inside or outside the sandbox."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from whet.sandbox.jail import Jail, Started


class ProcessSpec(msgspec.Struct, frozen=True):
    """A command to run. `text` is for the `shell`, a path, or "" for the usual one. `stdin` None is
    /dev/null; otherwise it is sent (at most 1 MB) and then ended, unless `keep_stdin`. `jail` None: the
    command runs unconfined. `workspace`: record the folder it ends in, if that is below this one. `withheld`
    are variables that it does not get. `received_bytes` is the number of bytes that the sandbox's commands
    had received before, or None if they are not counted. `session_id` is the session that it belongs to."""

    text: str
    workdir: Path
    environment: Mapping[str, str]
    pty: bool = False
    stdin: bytes | None = None
    keep_stdin: bool = False
    output_cap_bytes: int = 131_072
    jail: Jail | None = None
    workspace: Path | None = None
    received_bytes: int | None = None
    withheld: frozenset[str] = frozenset()
    shell: str = ""
    session_id: str = ""

    @property
    def has_received(self) -> bool | None:
        """Whether bytes from the network may have reached it since. None if they are not counted."""
        if self.jail is None or self.received_bytes is None:
            return None
        return self.jail.received_bytes != self.received_bytes

    @property
    def may_receive(self) -> bool | None:
        """Whether bytes from the network may reach it while it runs. None if they would not be counted."""
        return self.has_received if self.jail is None or self.has_received else self.jail.plan.can_reach


def start_unconfined(
    command: ProcessSpec, arguments: list[str], child_fd: int, extra_fd: int
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command unconfined. Returns it and the other end of its input, or -1."""
    if command.pty:
        # Opened by name in the new session, the terminal becomes the controlling one; a function between fork
        # and exec would be unsafe in a program with threads.
        arguments = ["/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&1', os.ttyname(child_fd), *arguments]
    wants_pipe = not command.pty and command.stdin is not None
    inherited = () if extra_fd < 0 else (extra_fd,)
    popen = subprocess.Popen(
        [*arguments, *map(str, inherited)],
        pass_fds=inherited,
        cwd=command.workdir,
        env=_encoded(tuple(command.environment.items())),
        stdin=subprocess.PIPE if wants_pipe else subprocess.DEVNULL,
        stdout=child_fd,
        stderr=child_fd,
        start_new_session=True,
        bufsize=0,
    )
    if popen.stdin is None:
        return popen, -1
    in_fd = os.dup(popen.stdin.fileno())
    popen.stdin.close()
    popen.stdin = None
    return popen, in_fd


@lru_cache(maxsize=8)
def _encoded(environment: tuple[tuple[str, str], ...]) -> Mapping[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in environment}


def start_jailed(
    command: ProcessSpec, jail: Jail, arguments: list[str], child_fd: int, extra_fd: int
) -> tuple[Started, int]:
    """Start a command in its sandbox. Returns it and the other end of its input, or -1."""
    from whet.sandbox.jail import JailedCommand  # noqa: PLC0415 - only where commands are confined

    jailed_command = JailedCommand(
        arguments, jail.environment(command.environment), command.workdir, command.pty
    )
    wants_pipe = not command.pty and command.stdin is not None
    read_fd, write_fd = os.pipe() if wants_pipe else (os.open(os.devnull, os.O_RDONLY), -1)
    try:
        handles = (child_fd if command.pty else read_fd, child_fd, child_fd)
        return jail.spawn(jailed_command, handles, extra_fd), write_fd
    except BaseException:
        if write_fd >= 0:
            os.close(write_fd)
        raise
    finally:
        os.close(read_fd)
