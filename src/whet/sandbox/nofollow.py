"""Read and write files in folders that a running command can change, without following links.

A leftover process could replace a folder by a link between a check and its use. So every folder is opened
one name at a time, from a root that commands can't replace, and used by its descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeAlias

FolderStamps: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def parent_of(path: str, root: str, *, make: bool = False) -> Generator[tuple[int, str]]:
    """Open the folder that holds a path below `root` and yield its descriptor and the path's name in it.

    With `make`, missing folders are created. Raises OSError.
    """
    above, name = os.path.split(path)
    handle = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        for part in above[len(root) + 1 :].split("/") if above != root else ():
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
            below = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle, name
    finally:
        os.close(handle)


def walk(handle: int, name: str) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """Yield (path below it, folder's descriptor, name in that, state) for a name and everything below it.

    Upper levels come first, since programs read those first. The descriptor is valid until the next item.
    """
    state = os.stat(name, dir_fd=handle, follow_symlinks=False)
    yield "", handle, name, state
    pending = deque([""] if stat.S_ISDIR(state.st_mode) else [])
    while pending:
        above = pending.popleft()
        with (
            contextlib.suppress(OSError),
            _open_folder(handle, f"{name}/{above}" if above else name) as folder,
        ):
            for entry in sorted(os.listdir(folder)):
                below = f"{above}/{entry}" if above else entry
                with contextlib.suppress(OSError):
                    child_state = os.stat(entry, dir_fd=folder, follow_symlinks=False)
                    pending.extend([below] if stat.S_ISDIR(child_state.st_mode) else ())
                    yield below, folder, entry, child_state


def stamp_of(state: os.stat_result) -> tuple[int, ...]:
    """Return values that differ whenever a file changes. Programs can't set the change time."""
    return (state.st_ino, state.st_ctime_ns, state.st_mtime_ns, state.st_size, state.st_mode)


def folder_stamps(handle: int, name: str) -> FolderStamps:
    """Return the stamps of a folder and its files, or an empty tuple for a file or a folder with subfolders.

    If the stamps are equal to earlier ones, the contents are too.
    """
    state = os.stat(name, dir_fd=handle, follow_symlinks=False)
    if not stat.S_ISDIR(state.st_mode):
        return ()
    stamps: list[tuple[str, tuple[int, ...]]] = [("", stamp_of(state))]
    opened = os.open(name, _FOLDER, dir_fd=handle)
    try:
        with os.scandir(opened) as entries:
            for entry in entries:
                below = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(below.st_mode):
                    return ()
                stamps.append((entry.name, stamp_of(below)))
    finally:
        os.close(opened)
    return tuple(stamps)


def read_content(handle: int, name: str, mode: int, most: int) -> bytes | None:
    """Return a file's first `most` bytes or a link's target, or None for anything else."""
    if stat.S_ISLNK(mode):
        return os.fsencode(os.readlink(name, dir_fd=handle))
    if not stat.S_ISREG(mode) or most <= 0:
        return None
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    with os.fdopen(opened, "rb") as file:
        return file.read(most) if stat.S_ISREG(os.fstat(opened).st_mode) else None


def create_entry(handle: int, name: str, mode: int, data: bytes | None) -> None:
    """Create a folder, a link or a file (by `mode`) under an unused name. Raises OSError."""
    if stat.S_ISLNK(mode):
        os.symlink(os.fsdecode(data or b""), name, dir_fd=handle)
        return
    if stat.S_ISDIR(mode):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=handle)
        opened = os.open(name, _FOLDER, dir_fd=handle)
    else:
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.open(name, new, 0o600, dir_fd=handle)
    try:
        if not stat.S_ISDIR(mode):
            remaining = memoryview(data or b"")
            while remaining:
                remaining = remaining[os.write(opened, remaining) :]
        os.fchmod(opened, stat.S_IMODE(mode))
    finally:
        os.close(opened)


def copy(handle: int, name: str, target: Path) -> None:
    """Copy a file or a link, with mode and time, to a path that commands can't reach. Raises OSError."""
    state = os.stat(name, dir_fd=handle, follow_symlinks=False)
    target.unlink(missing_ok=True)
    if stat.S_ISLNK(state.st_mode):
        target.symlink_to(os.readlink(name, dir_fd=handle))
        return
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    with os.fdopen(opened, "rb") as source, target.open("xb") as target_file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        shutil.copyfileobj(source, target_file)
        os.fchmod(target_file.fileno(), stat.S_IMODE(state.st_mode))
        target_file.flush()
        os.utime(target_file.fileno(), ns=(state.st_atime_ns, state.st_mtime_ns))


@contextlib.contextmanager
def _open_folder(handle: int, path: str) -> Generator[int]:
    first, *others = path.split("/")
    current = os.open(first, _FOLDER, dir_fd=handle)
    try:
        for part in others:
            below = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)
