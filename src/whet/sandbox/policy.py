"""The rights of a confined process as a value, and the openings that extend them.

A policy only grants; unlisted paths are unavailable. Applying openings returns a new policy, so equal
policies can share a sandbox. This module uses the system only to resolve paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from whet.contract.errors import BadInput, ToolDenied
from whet.sandbox.protected_names import GIT_RUNS, PROTECTED

OpeningKind = Literal["write", "read", "reach", "run"]
ANY_HOST = "*"
EVERYWHERE = "**"
"""Every host but this machine: also those of private networks, which ANY_HOST does not reach."""
PRIVATE_TOO = "private too"
"""No host, but a mark in a list: the hosts that it names may be those of private networks, too. No program
can ask for it as a host, because of its blank."""
UNCONFINED = "unconfined"
TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""The folders that a session's private folders replace if the engine has its own mounts."""


class Opening(msgspec.Struct, frozen=True, order=True):
    """One additional right of a confined process. `target` is a path, a host name, or `unconfined`."""

    kind: OpeningKind
    target: str

    @property
    def words(self) -> str:
        """The text for a person, e.g. "write ~/.cargo", "reach api.example.com"."""
        if self.kind == "run":
            return "run outside the sandbox, with all your rights"
        if self.kind == "reach":
            named = {ANY_HOST: "any public host", EVERYWHERE: "any host but this machine"}
            named[PRIVATE_TOO] = "named hosts of private networks, too"
            return f"reach {named.get(self.target, self.target)}"
        return f"{self.kind} {shorten(self.target)}"


class SandboxLimits(msgspec.Struct, frozen=True):
    """The limits of one sandbox; 0 means no limit. Memory and file size are per process, processes per
    sandbox."""

    memory_mb: int = 0
    processes: int = 4096
    file_mb: int = 16_384


class SandboxPolicy(msgspec.Struct, frozen=True):
    """The paths that may be read and written, and the hosts that may be reached. All paths are absolute and
    resolved.

    `absent` are paths excluded from granted folders. `protected` are names below the workspace (or paths
    of its own repository elsewhere) that can't be written. `aliases` are links to granted paths that must
    also exist inside. `home` is Whet's own home, which no opening reaches; `sealed` paths are treated the
    same. No opening reaches the `closed` paths, which a rule keeps from readers, and none writes the `fixed`
    ones. An empty `hosts` means no network. `unix`: whether Unix sockets may be created; false after a
    folder was opened, since a socket in it can be connected to by its path alone.
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
    closed: tuple[Path, ...] = ()
    fixed: tuple[Path, ...] = ()
    unix: bool = True

    def with_openings(self, openings: Iterable[Opening]) -> SandboxPolicy:
        """Return the policy with these openings added. Raises ToolDenied for Whet's home, BadInput for
        `run`."""
        policy = self
        for opening in openings:
            policy = policy._add_opening(opening)
        return policy

    def allows(self, opening: Opening) -> bool:
        """Return whether the policy already grants this."""
        match opening.kind:
            case "reach":
                return names_host(self.hosts, opening.target)
            case "run":
                return False
            case "write":
                return self.may_write(_resolve(opening.target))
            case "read":
                return self.may_read(_resolve(opening.target))

    def may_write(self, path: Path) -> bool:
        """Return whether a resolved path may be written, created or removed."""
        if not self._is_nearest_granted(path, (self.workspace, *self.write)):
            return False
        if self._is_in_home(path) or self._is_protected(path):
            return False
        return not any(is_below(path, excluded) for excluded in (*self.sealed, *self.closed, *self.fixed))

    def may_read(self, path: Path) -> bool:
        """Return whether a resolved path may be read."""
        if self._is_in_home(path) or any(
            is_below(path, excluded) for excluded in (*self.sealed, *self.closed)
        ):
            return False
        return self._is_nearest_granted(path, (self.workspace, *self.write, *self.read))

    def protected_paths(self) -> tuple[Path, ...]:
        """Return the paths that commands see and can't write, whether they exist or not.

        A path in a hidden folder is left out: a mount that makes it read-only would show it.
        """
        paths = (*(self.workspace / name for name in self.protected), *self.fixed)
        granted = frozenset(map(str, (self.workspace, *self.write, *self.read)))
        hidden = frozenset(str(path) for path in self._hidden_candidates() if path.exists())
        return tuple(path for path in paths if _is_seen(str(path), granted, hidden))

    def hidden_paths(self) -> tuple[Path, ...]:
        """Return the paths that must not be seen inside: `absent`, `closed`, `sealed`, Whet's home, and a
        workspace in it.

        A path inside another of these is left out, unless a granted folder lies between them.
        """
        candidates = self._hidden_candidates()
        granted = frozenset(map(str, (self.workspace, *self.write, *self.read)))
        hidden = frozenset(map(str, candidates))
        return tuple(path for path in candidates if not _is_within(str(path), hidden, granted))

    def hidden_inside(self) -> list[Path]:
        """Return the hidden paths inside granted folders."""
        granted = frozenset(map(str, (self.workspace, *self.write, *self.read)))
        return [path for path in self.hidden_paths() if _is_seen(str(path), granted, ())]

    def _hidden_candidates(self) -> dict[Path, None]:
        own = (self.workspace,) if self._is_in_home(self.workspace) else ()
        return dict.fromkeys((*self.absent, self.home, *own, *self.sealed, *self.closed))

    def _is_in_home(self, path: Path) -> bool:
        """Return whether a path is in Whet's home but not in the person's folder that is the workspace."""
        is_own = is_below(path, self.workspace) and is_persons_folder(str(self.workspace), str(self.home))
        return is_below(path, self.home) and not is_own

    def _is_protected(self, path: Path) -> bool:
        whole, top = f"{path}/", str(self.workspace).rstrip("/")
        return any(
            whole.startswith(f"{name}/" if name.startswith("/") else f"{top}/{name}/")
            for name in self.protected
        )

    def _is_nearest_granted(self, path: Path, granted: Iterable[Path]) -> bool:
        """Return whether the closest folder above `path` that the policy names is a granted one."""
        grant = max((len(folder.parts) for folder in granted if is_below(path, folder)), default=0)
        refusal = max((len(folder.parts) for folder in self.absent if is_below(path, folder)), default=0)
        return grant > refusal

    def _add_opening(self, opening: Opening) -> SandboxPolicy:
        if opening.kind == "run":
            raise BadInput("what runs outside the sandbox has no policy")
        if opening.kind == "reach":
            return self._replace("hosts", (*self.hosts, opening.target.lower()))
        path = _resolve(opening.target)
        if is_below(path, self.home) or is_below(self.home, path):
            raise ToolDenied(f"{shorten(str(path))} holds Whet's own home, which no command gets")
        if any(is_below(path, sealed_path) for sealed_path in self.sealed):
            raise ToolDenied(f"{shorten(str(path))} is the confirmation service's, which no command gets")
        fixed = self.fixed if opening.kind == "write" else ()
        if any(is_below(path, denied) for denied in (*self.closed, *fixed)):
            raise ToolDenied(f"a deny rule protects {shorten(str(path))}, and no command gets it")
        if opening.kind == "read":
            opened = msgspec.structs.replace(self, unix=False)
            return opened._replace("read", (*self.read, path))
        is_inside = is_below(path, self.workspace)
        if is_inside and path != self.workspace:
            names = [name for name in self.protected if not is_below(self.workspace / name, path)]
        else:
            names = [*self.protected, *git_programs(path)]
        unix = path.is_socket() or (self.unix and is_inside)
        opened = msgspec.structs.replace(self, protected=tuple(names), unix=unix)
        return opened._replace("write", (*self.write, path))

    def _replace(self, name: str, values: tuple[str, ...] | tuple[Path, ...]) -> SandboxPolicy:
        return msgspec.structs.replace(self, **{name: tuple(dict.fromkeys(values))})


def read_opening(text: str) -> Opening:
    """Parse an opening: "write PATH", "read PATH", "reach HOST". Raises BadInput."""
    kind, _, target = text.strip().partition(" ")
    target = target.strip()
    if kind in ("write", "read") and target:
        return Opening(kind, str(_resolve(target)))
    if kind == "reach" and target and "/" not in target and " " not in target:
        return Opening("reach", target.lower())
    raise BadInput(f"{text!r} opens nothing", hint="write PATH, read PATH, or reach HOST")


def git_programs(folder: Path) -> list[str]:
    """Return the paths in a git folder through which its git runs programs, nothing for other folders."""
    if not ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
        return []
    return [str(folder / name) for name in GIT_RUNS]


def names_host(hosts: Iterable[str], host: str) -> bool:
    """Return whether a list names a host. `*.example.com` matches every name below example.com."""
    name = host.lower().rstrip(".")
    whole = (ANY_HOST, EVERYWHERE, name)
    return any(
        pattern in whole or (pattern.startswith("*.") and name.endswith(pattern[1:])) for pattern in hosts
    )


def may_be_private(hosts: Iterable[str], host: str) -> bool:
    """Return whether a host that a list names may have an address of a private network. Sandboxed programs
    never reach this machine's own addresses and those at which clouds give out credentials."""
    listed = set(hosts)
    named = names_host(listed - {ANY_HOST, EVERYWHERE}, host)
    return EVERYWHERE in listed or (PRIVATE_TOO in listed and named)


def is_temporary(path: str) -> bool:
    """Return whether a resolved path is one of the system's temporary folders, or below one."""
    return any(Path(path).is_relative_to(os.path.realpath(folder)) for folder in TEMPORARY)


def shorten(path: str) -> str:
    """Write a path with ~ for the person's home."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home.rstrip("/") + "/") else path


def _resolve(text: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(text)))


def _is_within(path: str, hidden: Container[str], granted: Container[str]) -> bool:
    """Return whether a hidden folder is above an absolute path, and no granted one is at it or nearer."""
    while path not in granted:
        above: str = os.path.dirname(path)
        if above == path:
            return False
        if above in hidden:
            return above not in granted
        path = above
    return False


def _is_seen(path: str, granted: Container[str], hidden: Container[str]) -> bool:
    """Return whether the closest of these folders at or above an absolute path is a granted one."""
    while path not in hidden:
        if path in granted:
            return True
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return False


def is_persons_folder(folder: str, home: str) -> bool:
    """Return whether a resolved folder is people/NAME/work of Whet's home or a profile, where another
    person works."""
    own = re.escape(home.rstrip("/"))
    return re.fullmatch(rf"{own}/(?:profiles/[^/]+/)?people/[^/]+/work", folder) is not None


def is_below(path: Path, folder: Path) -> bool:
    """Return whether a path is a folder or below it.

    Thirty times faster than `is_relative_to`: a policy checks this a thousand times before the first
    command.
    """
    text, top = str(path), str(folder)
    return text == top or text.startswith(top if top == "/" else f"{top}/")
