"""Sandboxes that are not on this machine: a container, or another machine by ssh.

They share Jail's interface. Each remote command is represented by a local process (`whet.sandbox.remote`).
When that process ends, it ends the remote command.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from whet.contract.errors import ToolDenied, ToolError
from whet.sandbox.backend import (
    ConfinementSettings,
    ContainerLines,
    SshLines,
    kill_line,
    portable_environment,
    recorded_command_line,
)
from whet.sandbox.engine_cache import OPEN
from whet.sandbox.jail import Handles, Jail, JailedCommand
from whet.sandbox.policy import ANY_HOST, SandboxPolicy, read_opening
from whet.sandbox.protected_names import PROTECTED
from whet.sandbox.remote import RemoteCommand, RemoteSync
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.status import Engine, EngineStatus
from whet.sandbox.stopping import JobStopper
from whet.sandbox.system_folders import repository_paths
from whet.searchpath import find_trusted_program

_START_S = 60


class RemoteJail(Jail):
    """Base of both kinds. A remote command gets only its three standard descriptors."""

    is_here = False

    def __init__(self, plan: JailPlan) -> None:
        super().__init__(plan)
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def is_busy(self) -> bool:
        """Whether one of its commands is still running."""
        self._running = [process for process in self._running if process.poll() is None]
        return bool(self._running)

    def environment(self, source: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a remote command: the variables that mean the same on another machine."""
        return {**portable_environment(source), "WHET_SANDBOX": self.plan.engine.name}

    def _start_remote(
        self, remote: RemoteCommand, command: JailedCommand, handles: Handles
    ) -> subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as order:
            order.write(msgspec.json.encode(remote))
            order.seek(0)
            started = subprocess.Popen(
                [sys.executable, "-I", "-m", "whet.sandbox.remote", str(order.fileno())],
                stdin=handles[0],
                stdout=handles[1],
                stderr=handles[2],
                cwd=command.cwd,
                pass_fds=(order.fileno(),),
                start_new_session=True,
            )
        self._running.append(started)
        return started

    def _end_all(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()


class ContainerJail(RemoteJail):
    """A container that lasts as long as this object, without network, with the workspace at its own path."""

    def __init__(self, plan: JailPlan, image: str) -> None:
        super().__init__(plan)
        self._lines = ContainerLines(plan.engine.program, image, f"whet-{secrets.token_hex(6)}")
        self._container: subprocess.Popen[bytes] | None = None
        self.jobs: JobStopper = _ContainerStopper(self._lock, self._pid, self._lines)

    def _pid(self) -> int:
        return self._container.pid if self._container is not None and self._container.poll() is None else 0

    def open(self) -> None:
        """Start the container unless it is running. Raises ToolError."""
        if self._container is not None and self._container.poll() is None:
            return
        self.links.separate()
        write, read_only = self.plan.policy.write, self.plan.policy.read
        with tempfile.TemporaryFile() as errors:
            started = subprocess.Popen(
                self._lines.start(self.plan.policy, write, read_only),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            assert started.stdout is not None
            if started.stdout.readline() != b"ready\n":
                started.kill()
                started.communicate()
                errors.seek(0)
                raise ToolError(
                    f"the container can't be started: {_last_line(errors.read())}", hint="whet sandbox status"
                )
        self._container = started

    def spawn(self, command: JailedCommand, handles: Handles, extra_fd: int = -1) -> subprocess.Popen[bytes]:
        """Run a command in the container. Raises ToolError if the container can't be started."""
        with self._lock:
            self.jobs.begin()
        self.open()
        self.links.separate()
        mark = secrets.token_hex(8)
        text = recorded_command_line(command.argv, command.environment, str(command.cwd), mark)
        remote = RemoteCommand(
            self._lines.run(text, tty=command.tty),
            self._lines.run(kill_line(mark), tty=False),
            str(self.plan.policy.workspace),
            str(self.plan.aside),
            list(self.plan.policy.protected),
        )
        return self._start_remote(remote, command, handles)

    def close(self) -> None:
        """End the container and all processes in it."""
        self._end_all()
        started, self._container = self._container, None
        if started is not None:
            started.communicate()
            subprocess.run(self._lines.remove(), capture_output=True, check=False)


class _ContainerStopper(JobStopper):
    """Pauses a container: a command can't start in a paused one."""

    def __init__(self, lock: threading.Lock, container_pid: Callable[[], int], lines: ContainerLines) -> None:
        super().__init__(lock, container_pid, lambda: None)
        self._lines = lines

    def _stop_all(self) -> bool | None:
        if not self._launcher_pid():
            return False
        return True if self._change("pause") else None

    def _resume_all(self) -> None:
        if self._launcher_pid():
            self._change("unpause")

    def _change(self, how: Literal["pause", "unpause"]) -> bool:
        return subprocess.run(self._lines.change(how), capture_output=True, check=False).returncode == 0


class SshJail(RemoteJail):
    """Another machine. The workspace is copied there before each command and back after it.

    Commands there are limited only by the rights of that machine's account.
    """

    def __init__(
        self, plan: JailPlan, host: str, folder: str, *, connect_timeout_s: float = _START_S
    ) -> None:
        super().__init__(plan)
        self._connect_timeout_s = connect_timeout_s
        workspace = plan.policy.workspace
        self._folder = folder or f"~/whet/{workspace.name}-{secrets.token_hex(4)}"
        program = find_trusted_program("ssh", workspace)
        if program is None:
            raise ToolError("ssh is not installed", hint="whet config set sandbox.backend local")
        self._lines = SshLines(program, host, plan.scratch.root / "ssh")
        self._is_connected = False

    def open(self) -> None:
        """Connect unless connected. Raises ToolError, also if the host does not answer in time."""
        if self._is_connected:
            return
        with tempfile.TemporaryFile() as errors:
            try:
                done = subprocess.run(
                    self._lines.start(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    timeout=self._connect_timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise ToolError(
                    f"the host did not answer by ssh within {self._connect_timeout_s:g} s",
                    hint="whet sandbox status",
                ) from error
            if done.returncode:
                errors.seek(0)
                raise ToolError(
                    f"the host can't be reached by ssh: {_last_line(errors.read())}",
                    hint="whet sandbox status",
                )
        self._is_connected = True

    def spawn(self, command: JailedCommand, handles: Handles, extra_fd: int = -1) -> subprocess.Popen[bytes]:
        """Run a command on the machine. Raises ToolError if it can't be reached."""
        self.open()
        mark = secrets.token_hex(8)
        policy = self.plan.policy
        below = os.path.relpath(command.cwd, policy.workspace)
        cwd = self._folder if below == "." else f"{self._folder}/{below}"
        remote = RemoteCommand(
            self._lines.run(
                recorded_command_line(command.argv, command.environment, cwd, mark), tty=command.tty
            ),
            self._lines.run(kill_line(mark)),
            str(policy.workspace),
            str(self.plan.aside),
            list(policy.protected),
            RemoteSync(self._folder, str(self.plan.scratch.root / "sync.json"), self._lines.shell()),
        )
        return self._start_remote(remote, command, handles)

    def close(self) -> None:
        """End the commands and the connection."""
        self._end_all()
        if self._is_connected:
            self._is_connected = False
            subprocess.run(self._lines.stop(), capture_output=True, check=False)


class RemoteBackend:
    """The container or other machine that the settings choose for commands."""

    def __init__(self, settings: ConfinementSettings) -> None:
        self._settings = settings
        self._backend = settings.backend
        self._status: EngineStatus | None = None

    def status(self) -> EngineStatus:
        """Return what confines commands on the backend. The first call tries a container out."""
        if self._status is None:
            self._status = self._probe()
        return self._status

    def policy(self, workspace: Path) -> SandboxPolicy:
        """Return the policy of remote commands, which does not limit paths and hosts of the other machine.

        A container has no network, whatever the policy says.
        """
        wishes = self._settings.wishes
        return SandboxPolicy(
            workspace,
            self._settings.home,
            write=(Path("/"),),
            hosts=(ANY_HOST,),
            limits=wishes.limits,
            sealed=wishes.sealed,
        )

    def jail(self, workspace: Path, scratch: Scratch) -> Jail:
        """Return the sandbox that runs commands there.

        Raises ToolDenied for an ssh backend in strict mode, and ToolError if no container can be started.
        """
        status, wishes = self.status(), self._settings.wishes
        home = Path(os.path.expanduser("~"))
        mounts = SandboxPolicy(
            workspace,
            self._settings.home,
            protected=(*PROTECTED, *repository_paths(workspace.resolve())[2]),
            limits=wishes.limits,
            sealed=wishes.sealed,
        ).with_openings(
            [
                *(read_opening(f"write {path}") for path in wishes.write),
                *(read_opening(f"read {path}") for path in wishes.read),
            ]
        )
        is_ssh = self._backend.kind == "ssh"
        engine = Engine("ssh") if is_ssh else status.engine
        plan = JailPlan(engine, mounts, scratch, home, self._settings.home / "aside")
        if is_ssh:
            if self._settings.mode == "strict":
                raise ToolDenied(
                    f"sandbox.mode is strict, and nothing holds on {self._backend.target}",
                    hint="whet config set sandbox.mode auto",
                )
            return SshJail(plan, self._backend.target, self._backend.folder)
        if not status.engine.program:
            raise ToolError(status.line, hint="whet config set sandbox.backend local")
        return ContainerJail(plan, self._backend.target)

    def _probe(self) -> EngineStatus:
        target = self._backend.target
        if self._backend.kind == "ssh":
            line = f"no sandbox on {target}, by ssh; {OPEN}"
            return EngineStatus("none", line)
        program, problem = find_container_program(target)
        if problem:
            return EngineStatus("none", f"no container of {target} ({problem})")
        line = f"commands run in a container of {target} ({os.path.basename(program)}), without network"
        return EngineStatus("container", line, Engine("container", program))


def find_container_program(image: str) -> tuple[str, str]:
    """Return the program that can run a container of this image here, or "" and the reason why none can."""
    problems: list[str] = []
    for name in ("docker", "podman"):
        program = find_trusted_program(name, Path.cwd())
        if program is None:
            continue
        trial = [program, "run", "--rm", "--network=none", "--entrypoint=true", image]
        try:
            done = subprocess.run(trial, capture_output=True, timeout=_START_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            problems.append(f"{name}: {error}")
            continue
        if done.returncode == 0:
            return program, ""
        problems.append(f"{name}: {_last_line(done.stderr)}")
    return "", "; ".join(problems) or "neither docker nor podman is installed"


def _last_line(output: bytes) -> str:
    """Return the last line of an error message, ignoring Docker's pointer to its help page."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    useful = [line for line in lines if not re.search(r"'docker .*--help'", line)]
    return (useful or ["it ended without an error message"])[-1].strip()
