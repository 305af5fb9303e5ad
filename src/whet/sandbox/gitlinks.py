"""Which repositories git enters from a repository: those that its index names as submodules.

`git status` looks into each, under that one's own configuration, whoever put it into the index.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator

_GITLINK = 0o160000
_ENTRY = struct.Struct(">24xI32xH")
_MOST_REPOSITORIES, _MOST_DEEP = 200, 5
_MOST_BYTES = 100_000_000


class Entered:
    """Finds them; an index that is the same as before is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], list[str]]] = {}

    def repositories(self, top: str) -> list[str]:
        """Give the git folders of the repositories that git enters from `top`, at any depth; a folder that is
        not there yet, too."""
        found: list[str] = []
        waiting = [(top, 0)]
        while waiting and len(found) < _MOST_REPOSITORIES:
            tree, depth = waiting.pop()
            for name in self._links(git_folder(tree)):
                below = os.path.join(tree, name)
                found.append(git_folder(below))
                if depth < _MOST_DEEP:
                    waiting.append((below, depth + 1))
        return found

    def _links(self, git: str) -> list[str]:
        index = git + "/index"
        try:
            state = os.stat(index)
            stamp = (state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)
            known = self._known.get(index)
            if known is None or known[0] != stamp:
                data = b""
                if state.st_size <= _MOST_BYTES:
                    with open(index, "rb") as file:
                        data = file.read()
                known = self._known[index] = (stamp, list(gitlinks(data)))
        except (OSError, ValueError, struct.error):
            return []
        return known[1]


def git_folder(tree: str) -> str:
    """Give where the repository of a working tree is: `.git`, or what the file of that name says."""
    git = tree + "/.git"
    try:
        if stat.S_ISREG(os.stat(git).st_mode):
            with open(git, encoding="utf-8") as file:
                return os.path.normpath(os.path.join(tree, file.read().partition("gitdir:")[2].strip()))
    except (OSError, ValueError):
        return git
    return git


def gitlinks(index: bytes) -> Iterator[str]:
    """Give the paths that an index has as other repositories. Raises ValueError, struct.error for none."""
    mark = struct.pack(">I", _GITLINK)
    if mark not in index:
        return  # as nearly always: nothing need be taken apart
    version, count = struct.unpack_from(">4xII", index)
    at, name = 12, b""
    for _ in range(count):
        mode, flags = _ENTRY.unpack_from(index, at)
        begin = at + _ENTRY.size + (2 if flags & 0x4000 else 0)
        if version == 4:
            cut, begin = _number(index, begin)
            end = index.index(b"\0", begin)
            name, at = name[: len(name) - cut] + index[begin:end], end + 1
        else:
            end = index.index(b"\0", begin)
            name, at = index[begin:end], end + 8 - (end - at) % 8
        if mode == _GITLINK:
            yield os.fsdecode(name)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 127)
    return value, at + 1
