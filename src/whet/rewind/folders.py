"""Opens folders below a workspace one name at a time, so that no link leads out of it, at any depth."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

from whet.rewind.states import split

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(root: str) -> int:
    """Open the workspace itself; it may be named through a link."""
    return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_folder(root_fd: int, folder: str) -> int:
    """Open a folder; every part of its path must be a folder and no link. Raises OSError."""
    current = os.dup(root_fd)
    if folder:
        for name in folder.split("/"):
            try:
                below = os.open(name, _FOLDER, dir_fd=current)
            finally:
                os.close(current)
            current = below
    return current


@contextmanager
def parent_of(root_fd: int, path: str) -> Generator[tuple[int, str]]:
    """Give the open folder that a path is in, and its name there. Raises OSError."""
    folder, name = split(path)
    handle = open_folder(root_fd, folder)
    try:
        yield handle, name
    finally:
        os.close(handle)


def unlock(root_fd: int, path: str, bits: int) -> int | None:
    """Let the owner of a file or folder, who we are, in with `bits`; gives the mode to set again, None where
    that is not ours to do."""
    try:
        with parent_of(root_fd, path) as (folder, name):
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
            mode = stat.S_IMODE(seen.st_mode)
            is_plain = stat.S_ISREG(seen.st_mode) or stat.S_ISDIR(seen.st_mode)
            if seen.st_uid != os.geteuid() or not is_plain or mode & bits == bits:
                return None
            set_mode(folder, name, mode | bits)
            return mode
    except OSError:
        return None


def lock(root_fd: int, path: str, mode: int) -> None:
    """Set a mode again that `unlock` gave."""
    with suppress(OSError), parent_of(root_fd, path) as (folder, name):
        set_mode(folder, name, mode)


def set_mode(folder: int, name: str, mode: int) -> None:
    """Set the mode of a file or folder in an open folder, never of what a link leads to that has taken its
    place meanwhile. Raises OSError."""
    if sys.platform == "darwin":
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{handle}", mode)  # a link has none that could be set
    finally:
        os.close(handle)


def open_for_listing(root_fd: int, folder: str) -> int:
    """Open a folder to list it, by its whole path where the system takes one so long. Raises OSError."""
    if not folder:
        return os.open(".", _FOLDER, dir_fd=root_fd)
    if len(folder) < 1_000:
        return os.open(folder, _FOLDER, dir_fd=root_fd)
    return open_folder(root_fd, folder)
