"""What git does not carry out of a helper's working tree: ignored files, empty folders, repositories inside.

Before a tree is removed, small groups of such files are copied into the parent's workspace, where nothing is
overwritten. Anything else keeps the tree: large groups such as installed packages, virtual environments (they
hold their own path), repositories, protected names, files that can't be read, and files whose name is taken
in the workspace. A command that still runs may change the tree meanwhile, so no link is followed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

import msgspec

from whet.sandbox.nofollow import create_entry, parent_of, read_content
from whet.sandbox.protected_names import PROTECTED

_MAX_GROUP_FILES = 500
_MAX_GROUP_BYTES = 20_000_000
_MAX_FILES = 2_000
_MAX_BYTES = 100_000_000
_MAX_NAMES = 20
_ENVIRONMENT = "pyvenv.cfg"


class LeftFile(msgspec.Struct, frozen=True):
    """A file, link or empty folder that git does not carry, by its path; `stamp` changes with it."""

    path: str
    mode: int
    size: int
    stamp: tuple[int, int]


class Leftovers(msgspec.Struct, frozen=True):
    """What a tree holds besides what git carries. A group's name is its topmost folder or file. Repositories
    and what can't be read are `fixed`: they are not copied."""

    groups: dict[str, tuple[LeftFile, ...]]
    fixed: tuple[str, ...] = ()


def find_leftovers(place: Path, carried: Set[str]) -> Leftovers:
    """Return the files of a tree that git does not carry."""
    folders = {path.rsplit("/", number)[0] for path in carried for number in range(1, path.count("/") + 1)}
    groups: dict[str, list[LeftFile]] = {}
    fixed: list[str] = []
    for path, state in _walk(place, fixed):
        if path in carried:
            continue
        parts = path.split("/")
        at = next(
            (number for number in range(1, len(parts)) if "/".join(parts[:number]) not in folders), len(parts)
        )
        root = "/".join(parts[:at]) + ("/" if at < len(parts) or stat.S_ISDIR(state.st_mode) else "")
        found = LeftFile(path, state.st_mode, state.st_size, (state.st_mtime_ns, state.st_ctime_ns))
        groups.setdefault(root, []).append(found)
    return Leftovers({name: tuple(files) for name, files in groups.items()}, tuple(fixed))


def bring(
    leftovers: Leftovers, place: Path, workspace: Path, find_rule: Callable[[str], str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the small groups that no deny rule protects into the workspace.

    Returns the names of the copied groups, and of those that were left.
    """
    brought: list[str] = []
    kept = list(leftovers.fixed)
    files_left, bytes_left = _MAX_FILES, _MAX_BYTES
    for name, found in leftovers.groups.items():
        files = [file for file in found if not (stat.S_ISDIR(file.mode) and (workspace / file.path).is_dir())]
        if not files:
            continue
        size = sum(file.size for file in files if stat.S_ISREG(file.mode))
        is_small = len(files) <= min(_MAX_GROUP_FILES, files_left) and size <= min(
            _MAX_GROUP_BYTES, bytes_left
        )
        if not is_small or not _may_be_copied(files) or any(find_rule(file.path) for file in files):
            kept.append(name)
            continue
        files_left, bytes_left = files_left - len(files), bytes_left - size
        missing = [file.path for file in files if not _copy(file, place, workspace)]
        kept += missing
        if len(missing) < len(files):
            brought.append(name)
    return shorten(brought), shorten(kept)


def shorten(names: list[str]) -> tuple[str, ...]:
    """Return the first names, and how many more there are."""
    more = len(names) - _MAX_NAMES
    return (*names[:_MAX_NAMES], f"{more:,} more") if more > 0 else tuple(names)


def _may_be_copied(files: Sequence[LeftFile]) -> bool:
    for file in files:
        names = file.path.split("/")
        if names[-1] == _ENVIRONMENT or ".git" in names:
            return False
        if any(file.path == name or file.path.startswith(f"{name}/") for name in PROTECTED):
            return False
    return True


def _walk(place: Path, fixed: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files, links and empty folders by path; add repositories and unreadable folders to `fixed`."""
    root = str(place)

    def unreadable(error: OSError) -> None:
        fixed.append(os.path.relpath(error.filename, root) + "/")

    for folder, folders, names in os.walk(root, onerror=unreadable):
        inside = "" if folder == root else os.path.relpath(folder, root) + "/"
        if not inside:  # the tree's own link to its repository
            names = [name for name in names if name != ".git"]
        elif ".git" in names or ".git" in folders:
            fixed.append(inside)
            folders.clear()
            continue
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]
        empty = [inside.rstrip("/")] if inside and not names and not folders else []
        for path in (*empty, *(inside + name for name in (*names, *links))):
            with contextlib.suppress(FileNotFoundError):
                state = os.lstat(f"{root}/{path}")
                if stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode) or stat.S_ISDIR(state.st_mode):
                    yield path, state


def _copy(file: LeftFile, place: Path, workspace: Path) -> bool:
    """Copy a file, a link or an empty folder; return False if it can't be, or if another one has its name."""
    try:
        with (
            parent_of(f"{place}/{file.path}", str(place)) as (source, name),
            parent_of(f"{workspace}/{file.path}", str(workspace), make=True) as (folder, _),
        ):
            if stat.S_ISDIR(file.mode):
                create_entry(folder, name, file.mode, None)
                return True
            data = read_content(source, name, file.mode, file.size + 1)
            if data is None or (stat.S_ISREG(file.mode) and len(data) != file.size):
                return False
            with contextlib.suppress(FileNotFoundError):
                state = os.stat(name, dir_fd=folder, follow_symlinks=False)
                is_same = stat.S_IFMT(state.st_mode) == stat.S_IFMT(file.mode)
                return is_same and read_content(folder, name, state.st_mode, file.size + 1) == data
            _put_new(folder, name, file, data)
    except OSError:
        return False
    return True


def _put_new(folder: int, name: str, file: LeftFile, data: bytes) -> None:
    """Write a file whole under a name that is free. Raises OSError."""
    if stat.S_ISLNK(file.mode):
        create_entry(folder, name, file.mode, data)
        return
    half = f".{name}.whet-half"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(half, dir_fd=folder)
    create_entry(folder, half, file.mode, data)
    try:
        os.utime(half, ns=(file.stamp[0], file.stamp[0]), dir_fd=folder, follow_symlinks=False)
        os.link(half, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.unlink(half, dir_fd=folder)
