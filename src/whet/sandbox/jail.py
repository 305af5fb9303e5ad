"""A jail: one launcher that runs commands under one policy.

The launcher is started with the first command and serves later ones too. It ends with `close` or with this
process, and its commands with it. If it died, the next command starts another one.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path

import msgspec

from whet.contract.errors import ToolError
from whet.sandbox.command_channel import JailedCommand as JailedCommand
from whet.sandbox.command_channel import await_start, pid_of, send_command
from whet.sandbox.descriptors import receive_descriptors
from whet.sandbox.guard import Guard, PathStates
from whet.sandbox.hardlinks import WorkspaceLinks, links_of
from whet.sandbox.jailed_process import JailedProcess as JailedProcess
from whet.sandbox.mount_check import MountTracker
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.proxy import Proxy
from whet.sandbox.restoring import ProtectedRestorer
from whet.sandbox.seatbelt import SANDBOX_EXEC, seatbelt_profile
from whet.sandbox.setup import LAUNCHER_IMPORTS, JailPlan
from whet.sandbox.stopping import JobStopper, children_of
from whet.sandbox.tree_gate import HeldTrees

_START_S = 20.0
_STARTS = 3
_RUN_CAP_BYTES = 4_000_000
Handles = tuple[int, int, int]
"""A command's input, output and error output, as descriptors of this process."""


Started = JailedProcess | subprocess.Popen[bytes]
"""A confined command, or a Popen if the system's own program confines it."""


class Jail:
    """Runs commands under one policy. Thread-safe. `is_here`: it is on this machine."""

    is_here: bool = True

    def __init__(self, plan: JailPlan) -> None:
        self.plan: JailPlan = plan
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._launcher: subprocess.Popen[bytes] | None = None
        self._commands: weakref.WeakSet[JailedProcess] = weakref.WeakSet()
        self._guard = Guard(plan.policy, plan.aside)
        self._holding = MountTracker(plan.policy, has_mounts=plan.engine.own_network)
        self.links: WorkspaceLinks = links_of(plan.policy)
        self._proxy: Proxy | None = None
        self._received_bytes, self._inside = 0, -1 if plan.engine.name == "seatbelt" else 0
        self._state = self._inside_fd = -1
        self._trees = HeldTrees(plan.policy, self.links, has_mounts=plan.engine.own_network)
        self._ends = ProtectedRestorer(self._guard, self._holding, self._has_leftovers)
        self.jobs: JobStopper = JobStopper(self._lock, lambda: self._inside, self._shut)

    @property
    def policy(self) -> SandboxPolicy:
        """The policy that is enforced."""
        return self.plan.policy

    @property
    def is_busy(self) -> bool:
        """Whether one of its commands is still running."""
        return any(command.poll() is None for command in list(self._commands))

    def environment(self, source: Mapping[str, str]) -> dict[str, str]:
        """Return a command's environment: no addresses of outside sockets, and the private folders."""
        if not self.plan.can_reach:
            return self.plan.environment(source)
        self.open()
        return self.plan.environment(source, self._proxy.port if self._proxy is not None else 0)

    @property
    def launcher_pid(self) -> int:
        """The launcher's process id, or 0 if it is not running."""
        return 0 if self._launcher is None else self._launcher.pid

    @property
    def received_bytes(self) -> int | None:
        """The bytes that its commands received from the network, or None if they are not counted."""
        if self.plan.engine.name in ("seatbelt", "ssh"):
            return None
        return self._received_bytes + (self._proxy.received_bytes if self._proxy is not None else 0)

    def take_refused_hosts(self) -> list[str]:
        """Return the hosts that the proxy refused since the last call."""
        if self._proxy is None:
            return []
        hosts = list(self._proxy.refused)
        del self._proxy.refused[: len(hosts)]
        return hosts

    def open(self) -> None:
        """Start the launcher unless it is running. Raises ToolError if it can't be started."""
        if self.plan.engine.name == "seatbelt":
            return
        with self._lock:
            self._ensure_launcher(self._guard.read_states())

    def spawn(self, command: JailedCommand, handles: Handles, extra_fd: int = -1) -> Started:
        """Run a command. The descriptors stay the caller's.

        If `extra_fd` is a descriptor, the command inherits it and gets its number as an additional last
        argument. Raises OSError as Popen does, and ToolError if the sandbox can't be started.
        """
        descriptors = handles if extra_fd < 0 else (*handles, extra_fd)
        if self.plan.engine.name == "seatbelt":
            self.links.separate()
            return _under_sandbox_exec(self.plan, command, descriptors)
        with self._lock:
            self.jobs.begin()
            self._ends.settle()
            if not command.is_probe:
                self._separate_links()
            before = self._guard.record()
            try:
                before.mounted = self._ensure_launcher(before.looked)
                if not command.is_probe:
                    self._trees.separate()  # if it was started again
                started = self._start_command(command, descriptors)
            except BaseException:
                self._guard.forget(before)
                raise
            started.aside, started.ended = self.plan.aside, lambda: self._ends.finish(before)
            self._commands.add(started)
            return started

    def spawn_with_pipes(self, command: JailedCommand) -> Started:
        """Run a command with a pipe for each standard descriptor; the process's file objects are the other
        ends."""
        pipes = [os.pipe() for _ in range(3)]
        inside = (pipes[0][0], pipes[1][1], pipes[2][1])
        outside = (pipes[0][1], pipes[1][0], pipes[2][0])
        try:
            started = self.spawn(command, inside)
        except BaseException:
            for handle in outside:
                os.close(handle)
            raise
        finally:
            for handle in inside:
                os.close(handle)
        started.stdin = os.fdopen(outside[0], "wb", 0)
        started.stdout, started.stderr = os.fdopen(outside[1], "rb", 0), os.fdopen(outside[2], "rb", 0)
        return started

    def run(self, command: JailedCommand, timeout_s: float) -> tuple[int, str]:
        """Run a command without input and return its exit code and output. Blocks. A command that exceeds the
        limit is killed with its process group and returns code 124."""
        with tempfile.TemporaryFile() as printed, open(os.devnull, "rb") as nothing:
            out = printed.fileno()
            started = self.spawn(command, (nothing.fileno(), out, out))
            try:
                code = started.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = 124
            with contextlib.suppress(OSError):
                os.killpg(started.pid, signal.SIGKILL)
            printed.seek(0)
            output = printed.read(_RUN_CAP_BYTES).decode("utf-8", "replace")
            return (128 - code if code < 0 else code), output

    def close(self) -> None:
        """End the launcher and every command in it."""
        with self._lock:
            self._shut()
        self._ends.settle()

    def _separate_links(self) -> None:
        if self._trees.is_due:
            self._ensure_launcher(self._guard.read_states())
        elif self._trees.is_over and not self.is_busy and not self._has_leftovers():
            self._shut()  # the next one need not ask
        self._trees.separate()

    def _has_leftovers(self) -> bool:
        return self._launcher is not None and _runs_others(self._launcher, self._inside, self._commands)

    def _start_command(self, command: JailedCommand, handles: Sequence[int]) -> JailedProcess:
        try:
            channel = send_command(self._control, command, handles)
        except (BrokenPipeError, ConnectionResetError):
            self._shut()
            self._start_launcher()
            channel = send_command(self._control, command, handles)
        try:
            return await_start(channel, command, self._is_stopped)
        except BaseException as error:
            channel.close()
            if isinstance(error, ToolError):
                self._shut()
            raise

    def _start_launcher(self) -> None:
        report, why, starts_left = b"", b"", _STARTS
        # a path that disappears while it is mounted ends bubblewrap before it reports anything
        while not report and starts_left:
            (report, why), starts_left = self._try_start(), starts_left - 1
        if report != b"+" and self._trees.release():
            report, why = self._try_start()
        if report != b"+":
            raise ToolError(
                f"the sandbox can't be started: {why.decode(errors='replace').strip()}",
                hint="whet sandbox status",
            )

    def _try_start(self) -> tuple[bytes, bytes]:
        """Start the launcher. Returns its report, which is b"+" on success, and the error text."""
        ours, theirs = socket.socketpair()
        ours.settimeout(_START_S)
        self._holding.plan()
        trees = self._trees.plan()
        plan = msgspec.structs.replace(self.plan, held=tuple(trees))
        setup, inside = plan.setup(), 0
        with tempfile.TemporaryFile() as script, theirs:
            script.write(_compiled_code())
            script.seek(0)
            self._launcher = _start(plan.command(), script.fileno(), theirs.fileno())
        try:
            ours.sendall(struct.pack("!I", len(setup)) + setup)
            report, handles = receive_descriptors(ours, 1024, 4)
            if handles:
                self._inside = inside = pid_of(handles[0])
                self._inside_fd = handles[0]
            if trees and handles:
                self._trees.start(trees, handles.pop(1), handles.pop(1))
            if handles[1:]:
                self._proxy = Proxy(socket.socket(fileno=handles[1]), self.policy.hosts)
        except TimeoutError as error:
            report = b"!" + str(error).encode()
        except OSError:
            report = b""  # it ended before it read the setup; its error output says why
        if report != b"+":
            why = report[1:] or _last_words(self._launcher)
            ours.close()
            self._shut()
            return report, why
        ours.settimeout(None)
        self._control = ours
        self._state = os.open(f"/proc/{inside}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._holding.record_mounts(inside)
        return report, b""

    def _ensure_launcher(self, states: PathStates) -> frozenset[str]:
        """Start the launcher if it is not running, and restart it if names have changed and no command is
        running.

        Returns the names that mounts cover.
        """
        mounts = self._holding.mounts(states)
        is_gone = self._launcher is None or self._launcher.poll() is not None or self._is_stopped()
        if is_gone or (self._holding.needs_restart(mounts) and not self.is_busy):
            self._shut()
            self._start_launcher()
            mounts = self._holding.mounts(self._guard.read_states())
        return mounts

    def _is_stopped(self) -> bool:
        """Return whether a command has stopped (SIGSTOP) the launcher, which then never answers."""
        try:
            return os.pread(self._state, 200, 0).rpartition(b")")[2].split()[0] == b"T"
        except (OSError, IndexError):
            return False

    def _shut(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        self._trees.close()
        if self._proxy is not None:
            self._proxy.close()
            self._received_bytes += self._proxy.received_bytes
            self._proxy = None
        is_stopped = self._is_stopped()
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            _end(launcher, self._inside_fd, is_stopped=is_stopped)
        for handle in (self._state, self._inside_fd):
            if handle >= 0:
                os.close(handle)
        self._state, self._inside_fd, self._inside = -1, -1, 0
        for command in list(self._commands):
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(1)


def _runs_others(launcher: subprocess.Popen[bytes], inside: int, commands: Iterable[JailedProcess]) -> bool:
    """Return whether processes run in a launcher that are neither commands nor children of one."""
    children = children_of(inside)
    if children is None:
        return launcher.poll() is None  # unknown, so assume yes while the launcher runs
    return bool(children - {command.pid for command in list(commands) if command.returncode is None})


def _end(launcher: subprocess.Popen[bytes], inside: int, *, is_stopped: bool) -> None:
    """Wait for the launcher to end, which closing its socket causes.

    A launcher that is stopped or hangs is killed by its own handle, and its watcher then ends the
    remaining processes. With bubblewrap, the first process is only the launcher's parent.
    """
    if launcher.stderr is not None:
        launcher.stderr.close()
    for within_s in (0.0 if is_stopped else 3.0, 3.0):
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(within_s)
            return
        if inside >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(inside, signal.SIGKILL)
    launcher.kill()
    launcher.wait()


def _compiled_code() -> bytes:
    """Return the launcher's modules as compiled code, as `LAUNCH` reads them: there is no package inside,
    and compiling them is most of what a launcher's start costs."""
    folder = Path(__file__).parent
    names = [f"whet.sandbox.{name}" for name in (*LAUNCHER_IMPORTS, "launcher")]
    files = [SourceFileLoader(name, str(folder / f"{name.rpartition('.')[2]}.py")) for name in names]
    return marshal.dumps([(name, file.get_code(name)) for file, name in zip(files, names, strict=True)])


def _under_sandbox_exec(plan: JailPlan, command: JailedCommand, handles: Sequence[int]) -> Started:
    """Run a command under macOS's sandbox-exec, which needs no launcher: it starts in a millisecond."""
    profile = seatbelt_profile(plan.policy, plan.scratch)
    return subprocess.Popen(
        [SANDBOX_EXEC, "-p", profile, *command.argv, *map(str, handles[3:])],
        pass_fds=handles[3:],
        stdin=handles[0],
        stdout=handles[1],
        stderr=handles[2],
        cwd=command.cwd,
        env=dict(command.environment),
        start_new_session=True,
    )


def _start(command: Sequence[str], script: int, control: int) -> subprocess.Popen[bytes]:
    """Start the launcher with its script as input and the socket's number as its argument."""
    return subprocess.Popen(
        [*command, str(control)],
        stdin=script,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        pass_fds=(control,),
        start_new_session=True,
    )


def _last_words(launcher: subprocess.Popen[bytes]) -> bytes:
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(2)
    assert launcher.stderr is not None
    os.set_blocking(launcher.stderr.fileno(), False)
    lines = (launcher.stderr.read() or b"").strip().splitlines()
    return lines[-1] if lines else b"it ended without an error message"
