"""Where commands run: on this machine, in a container, or on another machine by ssh.

Builds the command lines that start, run and end them there. Starts nothing itself.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from whet.contract.errors import ConfigError
from whet.contract.forms import BACKEND, FORMS
from whet.late import late_pattern
from whet.sandbox.path_rules import PathRules
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.system_folders import PolicyAdditions

BackendKind = Literal["local", "container", "ssh"]
SandboxMode = Literal["auto", "strict", "off"]
# Only these variables mean the same on another machine.
_PORTABLE = late_pattern(
    r"GIT_(CONFIG_(COUNT|KEY_\d+|VALUE_\d+)|PAGER|EDITOR|TERMINAL_PROMPT|OPTIONAL_LOCKS)|TERM"
)
_PORTABLE_NAMES = frozenset(
    ("PAGER", "MANPAGER", "SYSTEMD_PAGER", "PYTHONUNBUFFERED", "DEBIAN_FRONTEND", "NO_COLOR", "LANG", "TZ")
)
# The user's ssh settings may forward their key agent, their display and ports of this machine to a host.
_NO_FORWARDING = ("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes")
_GROUP_FILE = "${TMPDIR:-/tmp}/.whet-"
_GROUP = 'cut -d" " -f5 /proc/$$/stat 2>/dev/null'
# crun starts a command in a process group that has no number inside the container, so it could not be killed.
_RUN_IN_GROUP = (
    f'test "$({_GROUP})" = 0 && command -v setsid > /dev/null && exec setsid sh -c "$1"; eval "$1"'
)


class CommandBackend(msgspec.Struct, frozen=True):
    """`target` is a container's image, or an ssh host; `folder` is the path of the workspace on that host."""

    kind: BackendKind = "local"
    target: str = ""
    folder: str = ""


class ConfinementSettings(msgspec.Struct, frozen=True):
    """How a program confines its commands. `home` is Whet's own, `rules` are the deny rules for files."""

    mode: SandboxMode
    home: Path
    wishes: PolicyAdditions = PolicyAdditions()
    backend: CommandBackend = CommandBackend()
    rules: PathRules = PathRules()


def read_backend(text: str) -> CommandBackend:
    """Read "local", "container IMAGE" or "ssh HOST [FOLDER]". Raises ConfigError."""
    match = BACKEND.fullmatch(text)
    if match is None:
        raise ConfigError(f"sandbox.backend can't be {text!r}", hint=FORMS["backend"].allowed)
    image, host, folder = match.groups(default="")
    if image:
        return CommandBackend("container", image)
    return CommandBackend("ssh", host, folder) if host else CommandBackend()


def portable_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that also apply on another machine."""
    return {
        name: value
        for name, value in environment.items()
        if _PORTABLE.fullmatch(name) or name in _PORTABLE_NAMES
    }


def recorded_command_line(argv: Sequence[str], environment: Mapping[str, str], cwd: str, mark: str) -> str:
    """Return shell text that runs a command in `cwd` and records its process group under `mark`.

    `kill_line` ends the command by that mark. If the command is bash, sh is used on machines without bash.
    """
    variables = [f"{name}={value}" for name, value in environment.items()]
    first = '"$(command -v bash || echo sh)"' if argv[0].endswith("/bash") else shlex.quote(argv[0])
    file = f'"{_GROUP_FILE}{mark}"'
    return (
        f'g=$({_GROUP}); test "${{g:-0}}" != 0 || g=$$;'
        f' cd {quote_folder(cwd)} && echo "$g" > {file} || exit 126;'
        f" env {shlex.join(variables)} {first} {shlex.join(argv[1:])}; code=$?; rm -f {file}; exit $code"
    )


def kill_line(mark: str) -> str:
    """Return shell text that kills a command's process group and removes its record."""
    file = f'"{_GROUP_FILE}{mark}"'
    # This form works in dash, bash and busybox alike.
    return f'g=$(cat {file}) && {{ kill -9 "-$g" || kill -9 "$g"; }}; rm -f {file}'


def quote_folder(folder: str) -> str:
    """Quote a folder for the shell there. A leading `~/` means the home on that machine."""
    return '"$HOME"/' + shlex.quote(folder[2:]) if folder.startswith("~/") else shlex.quote(folder)


class ContainerLines:
    """The command lines of docker and podman, which take the same arguments."""

    def __init__(self, program: str, image: str, name: str) -> None:
        self._program = program
        self._image = image
        self._name = name

    def start(self, policy: SandboxPolicy, write: Iterable[Path], read_only: Iterable[Path]) -> list[str]:
        """Return the command line that starts the container.

        It prints "ready" and runs until its input ends, so killing this program never leaves it behind.
        Its first process is a shell, which reaps orphaned processes.
        """
        mounts = [(path, "") for path in (policy.workspace, *write)]
        mounts += [(path, "readonly") for path in (*read_only, *policy.protected_paths())]
        limits = policy.limits
        return [
            *(self._program, "run", "--interactive", "--rm", f"--name={self._name}"),
            *("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
            *([f"--pids-limit={limits.processes}"] if limits.processes else []),
            *([f"--memory={limits.memory_mb}m"] if limits.memory_mb else []),
            f"--user={os.geteuid()}:{os.getegid()}",
            *(["--userns=keep-id"] if self._program.endswith("podman") and os.geteuid() else []),
            *("--tmpfs=/tmp:exec,mode=1777", "--env=HOME=/tmp", f"--workdir={policy.workspace}"),
            *(f"--mount={_mount(path, how)}" for path, how in mounts if path.exists()),
            *("--entrypoint=sh", self._image, "-c", "echo ready; cat > /dev/null; exit"),
        ]

    def run(self, text: str, *, tty: bool) -> list[str]:
        """Return the command line that runs shell text in the container."""
        terminal = ["--tty"] if tty else []
        return [
            self._program,
            "exec",
            "--interactive",
            *terminal,
            self._name,
            "sh",
            "-c",
            _RUN_IN_GROUP,
            "sh",
            text,
        ]

    def change(self, how: Literal["pause", "unpause"]) -> list[str]:
        """Return the command line that stops all processes in the container, or lets them continue."""
        return [self._program, how, self._name]

    def remove(self) -> list[str]:
        """Return the command line that ends the container and all processes in it."""
        return [self._program, "rm", "--force", self._name]


def _mount(path: Path, how: str) -> str:
    """Return the value of `--mount` for a path, which may hold commas, colons and quotes."""
    stream = io.StringIO()
    options = ["type=bind", f"source={path}", f"target={path}", *filter(None, [how])]
    csv.writer(stream).writerow(options)
    return stream.getvalue().removesuffix("\r\n")


class SshLines:
    """The command lines of OpenSSH, over one connection whose control socket is `control`."""

    def __init__(self, program: str, host: str, control: Path) -> None:
        self._program = program
        self._host = host
        settings = ("BatchMode=yes", f"ControlPath={control}", *_NO_FORWARDING)
        self._options = [word for setting in settings for word in ("-o", setting)]

    def start(self) -> list[str]:
        """Return the command line that opens the connection, which lasts until `stop`."""
        return [self._program, *self._options, "-o", "ControlMaster=yes", "-N", "-f", "--", self._host]

    def shell(self, *, tty: bool = False) -> list[str]:
        """Return a command line to which a remote command is added as the last argument."""
        terminal = "-tt" if tty else "-T"
        return [self._program, *self._options, terminal, "-o", "LogLevel=ERROR", "--", self._host]

    def run(self, text: str, *, tty: bool = False) -> list[str]:
        """Return the command line that runs shell text on the host."""
        return [*self.shell(tty=tty), f"sh -c {shlex.quote(text)}"]

    def stop(self) -> list[str]:
        """Return the command line that closes the connection."""
        return [self._program, *self._options, "-O", "exit", "--", self._host]
