"""Opens folders below a workspace one name at a time, so that no symlink leads outside, at any depth."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import takewhile

from whet.rewind.states import split_path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_MAX_OPEN = 32


def open_root(root: str) -> int:
    """Open the workspace itself, which may be a symlink."""
    return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_folder(root_fd: int, folder: str) -> int:
    """Open a folder. Every part of its path must be a folder, not a symlink. Raises OSError."""
    current = os.dup(root_fd)
    if folder:
        for name in folder.split("/"):
            try:
                below = os.open(name, _FOLDER, dir_fd=current)
            finally:
                os.close(current)
            current = below
    return current


class OpenFolders:
    """Opens folder after folder, each as `open_folder` does. Those above the last one stay open, because the
    next one is often beside it."""

    def __init__(self, root_fd: int) -> None:
        self._folder = ""
        self._names: list[str] = []
        self._handles = [os.dup(root_fd)]

    def open(self, folder: str) -> int:
        """Return the handle of a folder, which a later call may close. Raises OSError."""
        if folder == self._folder:
            return self._handles[-1]
        names = folder.split("/") if folder else []
        is_deep = len(names) > _MAX_OPEN
        pairs = () if is_deep else zip(self._names, names, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._close_below(same)
        for name in [folder] if is_deep else names[same:]:
            above = self._handles[-1]
            handle = open_folder(above, name) if is_deep else os.open(name, _FOLDER, dir_fd=above)
            self._handles.append(handle)
            self._names.append(name)
        self._folder = folder
        return self._handles[-1]

    def close(self) -> None:
        """Close every folder."""
        self._close_below(0)
        os.close(self._handles.pop())

    def _close_below(self, depth: int) -> None:
        self._folder = "\0"  # no folder, if the next one can't be opened
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._handles.pop())


@contextmanager
def parent_of(root_fd: int, path: str) -> Generator[tuple[int, str]]:
    """Open the folder that contains a path, and yield its handle and the name in it. Raises OSError."""
    folder, name = split_path(path)
    handle = open_folder(root_fd, folder)
    try:
        yield handle, name
    finally:
        os.close(handle)


def unlock(root_fd: int, path: str, bits: int) -> int | None:
    """Add `bits` to the owner's permissions of our own file or folder, and return the mode to restore.

    Returns None if it is not ours or nothing needs to change.
    """
    try:
        with parent_of(root_fd, path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            mode = stat.S_IMODE(status.st_mode)
            is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
            if status.st_uid != os.geteuid() or not is_plain or mode & bits == bits:
                return None
            set_mode(folder, name, mode | bits)
            return mode
    except OSError:
        return None


def lock(root_fd: int, path: str, mode: int) -> None:
    """Restore a mode that `unlock` returned."""
    with suppress(OSError), parent_of(root_fd, path) as (folder, name):
        set_mode(folder, name, mode)


def set_mode(folder: int, name: str, mode: int) -> None:
    """Set the mode of a file or folder in an open folder, never that of a symlink's target. Raises
    OSError."""
    if sys.platform == "darwin":
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{handle}", mode)  # fails for a symlink, which has no mode of its own
    finally:
        os.close(handle)


def open_for_listing(root_fd: int, folder: str) -> int:
    """Open a folder to list it, by its whole path if the system accepts one so long. Raises OSError."""
    if not folder:
        return os.open(".", _FOLDER, dir_fd=root_fd)
    if len(folder) < 1_000:
        return os.open(folder, _FOLDER, dir_fd=root_fd)
    return open_folder(root_fd, folder)
