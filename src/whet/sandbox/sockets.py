"""Sockets of programs outside that lie in folders which a jail is granted.

A socket is connected to by its path alone, also where that can only be read; so those that are bound when a
jail starts are covered in it. The kernel lists them for this machine's own network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from whet.sandbox.policy import SandboxPolicy, is_below

_LIST = "/proc/net/unix"


def foreign_sockets(policy: SandboxPolicy) -> list[Path]:
    """Give the sockets below what the policy grants, but those that it grants by their own names."""
    granted = frozenset((policy.workspace, *policy.write, *policy.read))
    found = (Path(os.path.realpath(path)) for path in _bound(policy.workspace))
    return [
        path
        for path in dict.fromkeys(found)
        if path not in granted and any(is_below(path, one) for one in granted) and path.is_socket()
    ]


def _bound(workspace: Path) -> Iterator[Path]:
    """Give the paths that sockets are bound to. One that was bound by a relative path is looked for in the
    workspace and in the folders right below it."""
    try:
        with open(_LIST, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return
    names = dict.fromkeys(path for line in lines if (path := line.split(" ", 7)[-1].strip()))
    relative = [name for name in names if not name.startswith(("/", "@"))]
    yield from (Path(name) for name in names if name.startswith("/"))
    for folder in _folders(workspace) if relative else ():
        yield from (folder / name for name in relative)


def _folders(workspace: Path) -> Iterable[Path]:
    try:
        below = [Path(one.path) for one in os.scandir(workspace) if one.is_dir(follow_symlinks=False)]
    except OSError:
        below = []
    return (workspace, *below)
