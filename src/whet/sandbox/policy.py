"""What a confined process may do, as a value, and what would let it do more, in words.

A policy grants: what it does not name is not there. Policy and openings give another policy, never a changed
one, so that equal policies share a jail. Nothing here asks the system anything but how paths resolve.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from whet.contract.errors import BadInput, ToolDenied

OpeningKind = Literal["write", "read", "reach", "run"]
ANY_HOST = "*"
EVERYWHERE = "**"
"""Every host but this machine: also those of private networks, which ANY_HOST does not reach."""
UNCONFINED = "unconfined"
GIT_RUNS = ("hooks", "config", "config.worktree", "commondir")
"""Names in a repository by which its git runs programs, or reads another configuration."""
PROTECTED = (
    *map(".git/{}".format, GIT_RUNS),
    # other keepers of versions
    ".hg/hgrc",
    ".jj/repo/config.toml",
    # editors
    ".vscode",
    ".idea",
    ".zed",
    ".helix",
    ".nvim.lua",
    ".nvimrc",
    ".vimrc",
    ".exrc",
    ".devcontainer",
    # shells
    ".envrc",
    "mise.toml",
    "mise.local.toml",
    ".mise.toml",
    ".mise.local.toml",
    ".mise",
    ".config/mise",
    # agents
    ".mcp.json",
    ".whet",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".qwen",
    ".opencode",
    "opencode.json",
    ".crush.json",
    ".roo",
    ".kiro",
    ".windsurf",
    ".amazonq",
    ".junie",
    ".aider.conf.yml",
)
"""Names in a workspace that make a program outside run something: git, editors, agents, shells."""


TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""What an engine with mounts of its own puts a session's private folders in the place of."""


class Opening(msgspec.Struct, frozen=True, order=True):
    """One thing more that a confined process may do: `target` is a path, a host name, or `unconfined`."""

    kind: OpeningKind
    target: str

    @property
    def words(self) -> str:
        """What a person reads, e.g. "write ~/.cargo", "reach api.example.com"."""
        if self.kind == "run":
            return "run outside the sandbox, with all your rights"
        if self.kind == "reach":
            named = {ANY_HOST: "any public host", EVERYWHERE: "any host but this machine"}
            return f"reach {named.get(self.target, self.target)}"
        return f"{self.kind} {shorten(self.target)}"


class SandboxLimits(msgspec.Struct, frozen=True):
    """What one jail may use; 0: no limit. Memory and file size are a process's, processes the jail's."""

    memory_mb: int = 0
    processes: int = 4096
    file_mb: int = 16_384


class SandboxPolicy(msgspec.Struct, frozen=True):
    """What may be read, written and reached; all paths are absolute and resolved.

    `absent` is what is not there although a granted folder holds it. `protected` are names below the
    workspace (or paths of its own repository elsewhere) that can't be written. `aliases` are links that lead
    to what is granted and must lead there inside, too. `home` is Whet's own, which no opening reaches;
    `sealed` is as good. `hosts` empty: no network. `unix`: whether Unix sockets of its own can be made;
    not where a folder was opened, since a socket in it is connected to by its path alone.
    """

    workspace: Path
    home: Path
    write: tuple[Path, ...] = ()
    read: tuple[Path, ...] = ()
    absent: tuple[Path, ...] = ()
    protected: tuple[str, ...] = PROTECTED
    aliases: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    sealed: tuple[Path, ...] = ()
    unix: bool = True

    def opened(self, openings: Iterable[Opening]) -> SandboxPolicy:
        """Give the policy with these openings too. Raises ToolDenied for Whet's home, BadInput for `run`."""
        made = self
        for opening in openings:
            made = made._with(opening)
        return made

    def allows(self, opening: Opening) -> bool:
        """Whether the policy grants this already."""
        match opening.kind:
            case "reach":
                return reaches(self.hosts, opening.target)
            case "run":
                return False
            case "write":
                return self.may_write(_resolved(opening.target))
            case "read":
                return self.may_read(_resolved(opening.target))

    def may_write(self, path: Path) -> bool:
        """Whether a resolved path may be written, created or removed."""
        if any(is_below(path, one) for one in (self.home, *self.sealed, *self.protected_paths())):
            return False
        return self._nearest(path, (self.workspace, *self.write))

    def may_read(self, path: Path) -> bool:
        """Whether a resolved path may be read."""
        if any(is_below(path, one) for one in (self.home, *self.sealed)):
            return False
        return self._nearest(path, (self.workspace, *self.write, *self.read))

    def protected_paths(self) -> tuple[Path, ...]:
        """Give the protected names of the workspace as paths, whether they are there or not."""
        return tuple(self.workspace / name for name in self.protected)

    def hidden(self) -> tuple[Path, ...]:
        """Give what must not be there: `absent`, Whet's home, and what is sealed like it; not what lies in
        another of these, unless in a folder within it that is granted."""
        named = dict.fromkeys((*self.absent, self.home, *self.sealed))
        granted = (self.workspace, *self.write, *self.read)
        return tuple(one for one in named if not _is_within(one, named, granted))

    def hidden_inside(self) -> list[Path]:
        """Give what of that lies in a folder that is granted."""
        granted = (self.workspace, *self.write, *self.read)
        return [one for one in self.hidden() if any(is_below(one, place) for place in granted)]

    def _nearest(self, path: Path, granted: Iterable[Path]) -> bool:
        """Whether the closest folder above `path` that the policy names is one that it grants."""
        grant = max((len(one.parts) for one in granted if is_below(path, one)), default=0)
        refusal = max((len(one.parts) for one in self.absent if is_below(path, one)), default=0)
        return grant > refusal

    def _with(self, opening: Opening) -> SandboxPolicy:
        if opening.kind == "run":
            raise BadInput("what runs outside the sandbox has no policy")
        if opening.kind == "reach":
            return self._replaced("hosts", (*self.hosts, opening.target.lower()))
        path = _resolved(opening.target)
        if is_below(path, self.home) or is_below(self.home, path):
            raise ToolDenied(f"{shorten(str(path))} holds Whet's own home, which no command gets")
        if any(is_below(path, one) for one in self.sealed):
            raise ToolDenied(f"{shorten(str(path))} is the confirmation service's, which no command gets")
        if opening.kind == "read":
            opened = msgspec.structs.replace(self, unix=False)
            return opened._replaced("read", (*self.read, path))
        names = tuple(name for name in self.protected if not is_below(self.workspace / name, path))
        is_inside = is_below(path, self.workspace)
        kept = names if is_inside and path != self.workspace else self.protected
        unix = path.is_socket() or (self.unix and is_inside)
        opened = msgspec.structs.replace(self, protected=kept, unix=unix)
        return opened._replaced("write", (*self.write, path))

    def _replaced(self, name: str, values: tuple[str, ...] | tuple[Path, ...]) -> SandboxPolicy:
        return msgspec.structs.replace(self, **{name: tuple(dict.fromkeys(values))})


def read_opening(text: str) -> Opening:
    """Read an opening from its words: "write PATH", "read PATH", "reach HOST". Raises BadInput."""
    kind, _, target = text.strip().partition(" ")
    target = target.strip()
    if kind in ("write", "read") and target:
        return Opening(kind, str(_resolved(target)))
    if kind == "reach" and target and "/" not in target and " " not in target:
        return Opening("reach", target.lower())
    raise BadInput(f"{text!r} opens nothing", hint="write PATH, read PATH, or reach HOST")


def reaches(hosts: Iterable[str], host: str) -> bool:
    """Whether a list of hosts names this one; `*.example.com` stands for every name below example.com."""
    name = host.lower().rstrip(".")
    whole = (ANY_HOST, EVERYWHERE, name)
    return any(one in whole or (one.startswith("*.") and name.endswith(one[1:])) for one in hosts)


def in_temporary(path: str) -> bool:
    """Whether a resolved path is one of the system's temporary folders, or below one."""
    return any(Path(path).is_relative_to(os.path.realpath(one)) for one in TEMPORARY)


def shorten(path: str) -> str:
    """Write a path with ~ for the person's home."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home.rstrip("/") + "/") else path


def _resolved(text: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(text)))


def _is_within(path: Path, hidden: Iterable[Path], granted: Iterable[Path]) -> bool:
    """Whether the closest of these folders above a path is a hidden one."""
    over = max((len(one.parts) for one in hidden if one != path and is_below(path, one)), default=0)
    return over > max((len(one.parts) for one in granted if is_below(path, one)), default=0)


def is_below(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or below it, as `is_relative_to` says in thirty times as long: a policy asks
    that a thousand times before the first command."""
    text, top = str(path), str(folder)
    return text == top or text.startswith(top if top == "/" else f"{top}/")
