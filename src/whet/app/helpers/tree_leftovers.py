"""Find and copy the files of a helper's working tree that git does not merge: ignored files, empty folders,
nested repositories.

Before a tree is removed, small groups of such files are copied into the parent's workspace, without replacing
files there. The tree is not removed if it has other leftovers: large groups such as installed packages,
virtual environments (they contain their own path), repositories, protected names, unreadable files, and files
whose name exists in the workspace. A command that still runs may change the tree, so no link is followed.
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
    """A file, link or empty folder that git does not track. `stamp` holds its times of change."""

    path: str
    mode: int
    size: int
    stamp: tuple[int, int]


class Leftovers(msgspec.Struct, frozen=True):
    """The untracked files of a tree, in groups named by their topmost folder or file. `fixed` are the folders
    that are never copied: repositories, and those that can't be read."""

    groups: dict[str, tuple[LeftFile, ...]]
    fixed: tuple[str, ...] = ()


def find_leftovers(tree: Path, tracked: Set[str]) -> Leftovers:
    """Return the files of a tree that are not `tracked` by git."""
    folders = {path.rsplit("/", number)[0] for path in tracked for number in range(1, path.count("/") + 1)}
    groups: dict[str, list[LeftFile]] = {}
    fixed: list[str] = []
    for path, state in _walk(tree, fixed):
        if path in tracked:
            continue
        parts = path.split("/")
        depth = 1
        while depth < len(parts) and "/".join(parts[:depth]) in folders:
            depth += 1
        is_folder = depth < len(parts) or stat.S_ISDIR(state.st_mode)
        name = "/".join(parts[:depth]) + ("/" if is_folder else "")
        file = LeftFile(path, state.st_mode, state.st_size, (state.st_mtime_ns, state.st_ctime_ns))
        groups.setdefault(name, []).append(file)
    return Leftovers({name: tuple(files) for name, files in groups.items()}, tuple(fixed))


def copy_leftovers(
    leftovers: Leftovers, tree: Path, workspace: Path, find_rule: Callable[[str], str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the small groups that no deny rule protects into the workspace.

    Returns the names of the copied groups, and those of the groups and files that were not copied.
    """
    copied: list[str] = []
    kept = list(leftovers.fixed)
    files_left, bytes_left = _MAX_FILES, _MAX_BYTES
    for name, group in leftovers.groups.items():
        files = [file for file in group if not (stat.S_ISDIR(file.mode) and (workspace / file.path).is_dir())]
        if not files:
            continue
        size_bytes = sum(file.size for file in files if stat.S_ISREG(file.mode))
        has_few_files = len(files) <= min(_MAX_GROUP_FILES, files_left)
        is_small = has_few_files and size_bytes <= min(_MAX_GROUP_BYTES, bytes_left)
        if not is_small or not _may_be_copied(files) or any(find_rule(file.path) for file in files):
            kept.append(name)
            continue
        files_left, bytes_left = files_left - len(files), bytes_left - size_bytes
        missing = [file.path for file in files if not _copy(file, tree, workspace)]
        kept += missing
        if len(missing) < len(files):
            copied.append(name)
    return _shorten(copied), _shorten(kept)


def _shorten(names: list[str]) -> tuple[str, ...]:
    """Return the first names, and the number of the others."""
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


def _walk(tree: Path, fixed: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files, links and empty folders by path; add repositories and unreadable folders to `fixed`."""
    root = str(tree)

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


def _copy(file: LeftFile, tree: Path, workspace: Path) -> bool:
    """Copy a file, a link or an empty folder. Returns False if that is impossible or another file has the
    name."""
    try:
        with (
            parent_of(f"{tree}/{file.path}", str(tree)) as (source, name),
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
            _create_file(folder, name, file, data)
    except OSError:
        return False
    return True


def _create_file(folder: int, name: str, file: LeftFile, data: bytes) -> None:
    """Create a file or link in one step, with all its data. Raises OSError, also if the name exists."""
    if stat.S_ISLNK(file.mode):
        create_entry(folder, name, file.mode, data)
        return
    temporary_name = f".{name}.whet-half"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary_name, dir_fd=folder)
    create_entry(folder, temporary_name, file.mode, data)
    try:
        os.utime(temporary_name, ns=(file.stamp[0], file.stamp[0]), dir_fd=folder, follow_symlinks=False)
        os.link(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.unlink(temporary_name, dir_fd=folder)
