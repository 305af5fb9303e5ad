"""Where commands run: here, in a container, or on another machine by ssh. What it takes to start, run and end
them there, as command lines; nothing is started.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from whet.contract.errors import ConfigError
from whet.contract.forms import BACKEND, FORMS
from whet.late import late_pattern
from whet.sandbox.policy import SandboxPolicy

BackendKind = Literal["local", "container", "ssh"]
# What a command's environment says of this machine means nothing on another one.
_PORTABLE = late_pattern(
    r"GIT_(CONFIG_(COUNT|KEY_\d+|VALUE_\d+)|PAGER|EDITOR|TERMINAL_PROMPT|OPTIONAL_LOCKS)|TERM"
)
_ALSO = frozenset(
    ("PAGER", "MANPAGER", "SYSTEMD_PAGER", "PYTHONUNBUFFERED", "DEBIAN_FRONTEND", "NO_COLOR", "LANG", "TZ")
)
# A person's own settings may give a host their keys' agent, their screen, and ports of this machine.
_NO_WAY_BACK = ("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes")
_NUMBER = "${TMPDIR:-/tmp}/.whet-"
_GROUP = 'cut -d" " -f5 /proc/$$/stat 2>/dev/null'
# crun starts a command in a group that has no number inside, by which it could be ended.
_GROUPED = f'test "$({_GROUP})" = 0 && command -v setsid > /dev/null && exec setsid sh -c "$1"; eval "$1"'


class CommandBackend(msgspec.Struct, frozen=True):
    """`target` is a container's image, or a host as ssh takes it; `folder` is the workspace's place there."""

    kind: BackendKind = "local"
    target: str = ""
    folder: str = ""


def read_backend(text: str) -> CommandBackend:
    """Read "local", "container IMAGE" or "ssh HOST [FOLDER]". Raises ConfigError."""
    found = BACKEND.fullmatch(text)
    if found is None:
        raise ConfigError(f"sandbox.backend can't be {text!r}", hint=FORMS["backend"].allowed)
    image, host, folder = found.groups(default="")
    if image:
        return CommandBackend("container", image)
    return CommandBackend("ssh", host, folder) if host else CommandBackend()


def portable(environment: Mapping[str, str]) -> dict[str, str]:
    """Give what of a command's environment holds on another machine, too."""
    return {name: value for name, value in environment.items() if _PORTABLE.fullmatch(name) or name in _ALSO}


def wrapped(argv: Sequence[str], environment: Mapping[str, str], cwd: str, mark: str) -> str:
    """Give shell text that runs a command in `cwd` and notes the number of its group under `mark`, by which
    `ending` ends it. A shell is the one that the place has."""
    given = [f"{name}={value}" for name, value in environment.items()]
    first = '"$(command -v bash || echo sh)"' if argv[0].endswith("/bash") else shlex.quote(argv[0])
    file = f'"{_NUMBER}{mark}"'
    return (
        f'g=$({_GROUP}); test "${{g:-0}}" != 0 || g=$$; cd {place_of(cwd)} && echo "$g" > {file} || exit 126;'
        f" env {shlex.join(given)} {first} {shlex.join(argv[1:])}; code=$?; rm -f {file}; exit $code"
    )


def ending(mark: str) -> str:
    """Give shell text that kills the group of a command, and forgets it."""
    file = f'"{_NUMBER}{mark}"'
    # Written in the one way that dash, bash and busybox all take.
    return f'g=$(cat {file}) && {{ kill -9 "-$g" || kill -9 "$g"; }}; rm -f {file}'


def place_of(folder: str) -> str:
    """Give a folder as the shell there takes it; `~/` is the home there."""
    return '"$HOME"/' + shlex.quote(folder[2:]) if folder.startswith("~/") else shlex.quote(folder)


class ContainerLines:
    """The command lines of docker and podman, which are the same ones."""

    def __init__(self, program: str, image: str, name: str) -> None:
        self._program = program
        self._image = image
        self._name = name

    def start(self, policy: SandboxPolicy, write: Iterable[Path], read: Iterable[Path]) -> list[str]:
        """Give what starts the container. It says "ready", and lasts as long as its input: no kill of this
        program leaves it behind. Its first process is a shell, which reaps what others leave."""
        mounts = [(policy.workspace, ""), *((path, "") for path in write), *((path, ":ro") for path in read)]
        mounts += [(path, ":ro") for path in policy.protected_paths() if os.path.lexists(path)]
        limits = policy.limits
        return [
            *(self._program, "run", "--interactive", "--rm", f"--name={self._name}"),
            *("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
            *([f"--pids-limit={limits.processes}"] if limits.processes else []),
            *([f"--memory={limits.memory_mb}m"] if limits.memory_mb else []),
            f"--user={os.geteuid()}:{os.getegid()}",
            *(["--userns=keep-id"] if self._program.endswith("podman") and os.geteuid() else []),
            *("--tmpfs=/tmp:exec,mode=1777", "--env=HOME=/tmp", f"--workdir={policy.workspace}"),
            *(f"--volume={path}:{path}{how}" for path, how in mounts),
            *("--entrypoint=sh", self._image, "-c", "echo ready; cat > /dev/null; exit"),
        ]

    def run(self, text: str, *, tty: bool) -> list[str]:
        """Give what runs shell text in it."""
        terminal = ["--tty"] if tty else []
        return [
            self._program,
            "exec",
            "--interactive",
            *terminal,
            self._name,
            "sh",
            "-c",
            _GROUPED,
            "sh",
            text,
        ]

    def remove(self) -> list[str]:
        """Give what ends it with all that runs in it."""
        return [self._program, "rm", "--force", self._name]


class SshLines:
    """The command lines of OpenSSH, over one connection whose socket is `control`."""

    def __init__(self, program: str, host: str, control: Path) -> None:
        self._program = program
        self._host = host
        settings = ("BatchMode=yes", f"ControlPath={control}", *_NO_WAY_BACK)
        self._options = [word for one in settings for word in ("-o", one)]

    def start(self) -> list[str]:
        """Give what makes the connection, which lasts until `stop`."""
        return [self._program, *self._options, "-o", "ControlMaster=yes", "-N", "-f", "--", self._host]

    def run(self, text: str, *, tty: bool = False) -> list[str]:
        """Give what runs shell text there."""
        how = ["-tt"] if tty else ["-T"]
        return [
            self._program,
            *self._options,
            *how,
            "-o",
            "LogLevel=ERROR",
            "--",
            self._host,
            f"sh -c {shlex.quote(text)}",
        ]

    def stop(self) -> list[str]:
        """Give what ends the connection."""
        return [self._program, *self._options, "-O", "exit", "--", self._host]
