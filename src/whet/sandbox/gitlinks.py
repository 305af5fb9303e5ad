"""Find the repositories that outside programs enter from a repository on their own.

`git status` enters those that the index lists as submodules, whoever added them. Editors enter those in
the folders they have open. Each is governed by its own configuration; a second working tree's
configuration is at the path that a file in the repository names.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from whet.regular import read_regular, read_regular_text

_GITLINK = 0o160000
_ENTRY = struct.Struct(">24xI32xH")
_MAX_REPOSITORIES, _MAX_DEEP = 200, 5
_MAX_BYTES, _MAX_POINTER_BYTES = 100_000_000, 4_096


class NestedRepositories:
    """Finds nested repositories. An unchanged index is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], list[str]]] = {}

    def repositories(self, top: str) -> list[str]:
        """Return the git folders of the repositories that git or an editor enters from `top`.

        These are the ones its index lists, at any depth and even if the folder does not exist yet; the
        ones in its direct subfolders; its second working trees; and `top` and its subfolders if they look
        like bare repositories.
        """
        folders = _folders(top)
        git_folders = dict.fromkeys((*_second_trees(git_folder(top)), *filter(_is_bare, (top, *folders))))
        subtrees = [folder for folder in folders if os.path.lexists(folder + "/.git")][:_MAX_REPOSITORIES]
        pending = [(tree, 0) for tree in (*subtrees, top)]
        git_folders |= dict.fromkeys(git_folder(tree) for tree, _ in pending[:-1])
        while pending and len(git_folders) < _MAX_REPOSITORIES:
            tree, depth = pending.pop()
            for name in self._links(git_folder(tree)):
                below = os.path.join(tree, name)
                if (git := git_folder(below)) not in git_folders:
                    git_folders[git] = None
                    pending.extend([(below, depth + 1)] if depth < _MAX_DEEP else ())
        return list(git_folders)

    def _links(self, git: str) -> list[str]:
        index = git + "/index"
        try:
            state = os.stat(index)
            stamp = (state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)
            cached = self._known.get(index)
            if cached is None or cached[0] != stamp:
                data = read_regular(index, _MAX_BYTES) if state.st_size <= _MAX_BYTES else b""
                cached = self._known[index] = (stamp, list(gitlinks(data)))
        except (OSError, ValueError, struct.error):
            return []
        return cached[1]


def _folders(top: str) -> list[str]:
    """Return the direct subfolders. Editors query git for each of them, and people change into them."""
    try:
        with os.scandir(top) as entries:
            names = [
                entry.path
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and entry.name != ".git"
            ]
    except OSError:
        return []
    return sorted(names)


def _is_bare(folder: str) -> bool:
    """Return whether git takes a folder for a repository without `.git`.

    Git does so for the current folder and the ones above it, even if the repository is incomplete.
    """
    if not os.path.lexists(folder + "/HEAD"):
        return False
    return any(os.path.lexists(f"{folder}/{name}") for name in ("objects", "commondir"))


def _second_trees(git: str) -> list[str]:
    try:
        names = sorted(os.listdir(git + "/worktrees"))
    except OSError:
        return []
    return [f"{git}/worktrees/{name}" for name in names[:_MAX_REPOSITORIES]]


def git_folder(tree: str) -> str:
    """Return the git folder of a working tree: `.git`, or the target of the link or pointer file there."""
    git = tree + "/.git"
    if os.path.islink(git):
        return os.path.realpath(git)
    try:
        pointer = read_regular_text(git, _MAX_POINTER_BYTES)
        return os.path.normpath(os.path.join(tree, pointer.partition("gitdir:")[2].strip()))
    except (OSError, ValueError):
        return git


def find_worktree_folders(tree: str) -> list[str]:
    """Return the repository of a linked working tree and the tree's own git folder, or nothing unless they
    name each other. Source: git-worktree(1), "DETAILS"."""
    own_folder = os.path.realpath(git_folder(tree))
    try:
        back, shared = (
            read_regular_text(f"{own_folder}/{name}", _MAX_POINTER_BYTES).strip()
            for name in ("gitdir", "commondir")
        )
    except (OSError, ValueError):
        return []
    repository = os.path.realpath(os.path.join(own_folder, shared))
    names_tree = os.path.realpath(os.path.join(own_folder, back)) == os.path.realpath(f"{tree}/.git")
    return [repository, own_folder] if names_tree and own_folder.startswith(f"{repository}/") else []


def gitlinks(index: bytes) -> Iterator[str]:
    """Yield the paths that an index lists as submodules. Raises ValueError or struct.error if the index is
    malformed."""
    mark = struct.pack(">I", _GITLINK)
    if mark not in index:
        return  # the common case: the index needn't be parsed
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
