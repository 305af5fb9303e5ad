"""Run one command in a container or on another machine and wait for it.

It is a separate program, so that a remote command is a local process, with input, output and signals that
end it. Killing this program ends the remote command too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from whet.contract.texts import from_json
from whet.sandbox.guard import Guard
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.syncing import SyncedTree, SyncFailed

_ENDING_S = 20
_MAX_LINES = 10


class RemoteSync(msgspec.Struct, frozen=True):
    """A workspace to synchronise: its path `there`, the state file `kept`, and `ask`, the command line
    without the shell text."""

    there: str
    kept: str
    ask: list[str]


class RemoteCommand(msgspec.Struct, frozen=True):
    """The command to run, and the one that ends it. Changes to the workspace's `protected` names are undone
    or not brought back."""

    run: list[str]
    end: list[str]
    workspace: str
    aside: str
    protected: list[str]
    sync: RemoteSync | None = None


def main() -> int:
    """Run the command read from a descriptor and return its exit code."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        remote = from_json(file.read(), RemoteCommand)
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda which, _: stopped.append(which))
    steps = _WorkspaceSteps(remote)
    watcher = _start_watcher(remote, steps)
    try:
        steps.before()
        code = subprocess.Popen(remote.run).wait()
        if stopped:
            _end(remote)
            code = 128 + stopped[0]
        steps.after()
    except SyncFailed as error:
        _say(f"[the workspace can't be brought over: {error}]")
        code = 255
    except OSError as error:
        _say(f"[{remote.run[0]} can't be started: {error.strerror}]")
        code = 127
    os.write(watcher, b"+")
    return 128 - code if code < 0 else code


class _WorkspaceSteps:
    """The steps before and after a command."""

    def __init__(self, remote: RemoteCommand) -> None:
        workspace = Path(remote.workspace)
        policy = SandboxPolicy(workspace, Path(os.devnull), protected=tuple(remote.protected))
        self._guard = None if remote.sync else Guard(policy, Path(remote.aside))
        # The container's mounts are older than this command; whether they are still in place can't be seen
        # from here.
        self._before = self._guard.record() if self._guard else None
        self._tree: SyncedTree | None = None
        if (sync := remote.sync) is not None:
            self._tree = SyncedTree(
                workspace,
                sync.there,
                Path(sync.kept),
                remote.protected,
                lambda text: [*sync.ask, _quote_shell(text)],
            )

    def before(self) -> None:
        if self._tree is not None:
            self._tree.push()

    def after(self) -> None:
        lines = self._tree.pull() if self._tree is not None else []
        lines += [f"{path}: may start programs here, and was taken back" for path in self.restore()]
        for line in lines[:_MAX_LINES]:
            _say(f"[{line}]")
        if len(lines) > _MAX_LINES:
            _say(f"[and {len(lines) - _MAX_LINES} more]")

    def restore(self) -> list[Path]:
        return self._guard.restore(self._before, ()) if self._guard and self._before else []


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _quote_shell(text: str) -> str:
    import shlex  # noqa: PLC0415  a millisecond, and only where a workspace is brought over

    return f"sh -c {shlex.quote(text)}"


def _end(remote: RemoteCommand) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            remote.end,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ENDING_S,
            check=False,
        )


def _start_watcher(remote: RemoteCommand, steps: _WorkspaceSteps) -> int:
    """Start a process that ends the command if this program is killed. Returns the descriptor on which to
    report the normal end."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(read_end)
        return write_end
    os.setsid()
    os.close(write_end)
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in range(3):
        os.dup2(nothing, handle)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not os.read(read_end, 1):
        _end(remote)
        steps.restore()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
