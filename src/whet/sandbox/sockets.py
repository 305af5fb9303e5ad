"""Find sockets of outside programs in the folders that a sandbox is granted.

A socket can be connected to by its path alone, even if the path is read-only. So the sockets that exist
when a sandbox starts are covered in it. The kernel lists those of this machine's own network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from whet.sandbox.policy import SandboxPolicy, is_below

_LIST = "/proc/net/unix"


def find_foreign_sockets(policy: SandboxPolicy) -> list[Path]:
    """Return the sockets below granted paths, except those granted by their own path.

    For a socket in a folder that is closed to this user, return the folder: a command could open it again.
    """
    granted = frozenset((policy.workspace, *policy.write, *policy.read))
    sockets = (Path(os.path.realpath(path)) for path in _bound_paths(policy.workspace))
    covered = (
        _find_cover(path)
        for path in dict.fromkeys(sockets)
        if path not in granted and any(is_below(path, grant) for grant in granted)
    )
    return [path for path in dict.fromkeys(covered) if path is not None and path not in granted]


def _find_cover(path: Path) -> Path | None:
    """Return the path to cover for a socket: itself, or the outermost folder that can't be searched. None if
    it isn't a socket any more."""
    try:
        return path if path.is_socket() else None
    except PermissionError:
        return next((above for above in reversed(path.parents) if not os.access(above, os.X_OK)), None)
    except OSError:
        return None


def parse_socket_names(text: str) -> list[str]:
    """Return the names in the kernel's list of sockets, each once. Most sockets have none: their rows end
    with the inode, which may be padded."""
    rows = (line.split(maxsplit=6) for line in text.split("\n")[1:])
    names = (row[6].partition(" ")[2] for row in rows if len(row) > 6)
    return [*dict.fromkeys(filter(None, names))]


def _bound_paths(workspace: Path) -> Iterator[Path]:
    """Yield the paths that sockets are bound to.

    A socket bound by a relative path is looked up in the workspace and its direct subfolders.
    """
    try:
        with open(_LIST, encoding="utf-8", errors="surrogateescape") as file:
            names = parse_socket_names(file.read())
    except OSError:
        return
    relative = [name for name in names if not name.startswith(("/", "@"))]
    yield from (Path(name) for name in names if name.startswith("/"))
    for folder in _folders(workspace) if relative else ():
        yield from (folder / name for name in relative)


def _folders(workspace: Path) -> Iterable[Path]:
    try:
        below = [Path(entry.path) for entry in os.scandir(workspace) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        below = []
    return (workspace, *below)
