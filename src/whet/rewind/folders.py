"""Opens folders below a workspace one name at a time, so that no link leads out of it, at any depth."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

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


def open_for_listing(root_fd: int, folder: str) -> int:
    """Open a folder to list it, by its whole path where the system takes one so long. Raises OSError."""
    if not folder:
        return os.open(".", _FOLDER, dir_fd=root_fd)
    if len(folder) < 1_000:
        return os.open(folder, _FOLDER, dir_fd=root_fd)
    return open_folder(root_fd, folder)
