"""Replace a file whole or not at all.

New bytes go to a temporary file in the same folder, to the disk, and then take the name in one step. A
crash, a full disk or a refusal before that step leaves the old file as it was. Text is not this module's
business.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass

from whet.contract.errors import BadInput, ToolError
from whet.tools.paths import Place, failure, folder_of, kind

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Prepared:
    """A replacement that is on the disk under a temporary name. `commit` or `discard` it."""

    place: Place
    temporary: str
    seen: tuple[int, int, int] | None

    def commit(self) -> None:
        """Give the file its name; durable on return. Raises ToolError where the file changed meanwhile."""
        try:
            with folder_of(self.place) as folder:
                if fingerprint(self.place) != self.seen:
                    raise ToolError(f"{self.place.shown} changed meanwhile", hint="read it again")
                os.rename(self.temporary, self.place.name, src_dir_fd=folder, dst_dir_fd=folder)
                _sync_folder(folder)
        except OSError as error:
            raise failure("write", self.place, error) from error

    def discard(self) -> None:
        """Remove the temporary file, if it is still there."""
        with suppress(OSError), folder_of(self.place) as folder:
            os.unlink(self.temporary, dir_fd=folder)


def prepare(place: Place, data: bytes) -> Prepared:
    """Write `data` beside `place`, making its folders, with the mode of the file that it replaces.

    Raises ToolError on a full disk or a missing permission, BadInput on a folder, a device or a file that
    is marked read-only; nothing is left behind then.
    """
    if kind(place) == "folder":
        raise BadInput(f"{place.shown} is a folder", hint="name a file in it")
    temporary = f".whet-{os.urandom(8).hex()}.tmp"
    try:
        with folder_of(place, make=True) as folder:
            old = _old(place, folder)
            _fill(folder, temporary, data, old)
    except OSError as error:
        raise failure("write", place, error) from error
    return Prepared(place, temporary, fingerprint_of(old))


def delete(place: Place) -> None:
    """Remove a file; durable on return. Raises ToolError."""
    try:
        with folder_of(place) as folder:
            os.unlink(place.name, dir_fd=folder)
            _sync_folder(folder)
    except OSError as error:
        raise failure("delete", place, error) from error


def fingerprint(place: Place) -> tuple[int, int, int] | None:
    """Give what changes when the file does (inode, size, time), or None where there is none."""
    try:
        return fingerprint_of(os.stat(place.path, follow_symlinks=False))
    except FileNotFoundError:
        return None


def fingerprint_of(state: os.stat_result | None) -> tuple[int, int, int] | None:
    """Give the same from what a stat call gave."""
    return (state.st_ino, state.st_size, state.st_mtime_ns) if state else None


def _old(place: Place, folder: int) -> os.stat_result | None:
    try:
        old = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not old.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(f"{place.shown} is marked read-only", hint="change its mode first if that is right")
    return old


def _fill(folder: int, name: str, data: bytes, old: os.stat_result | None) -> None:
    descriptor = os.open(name, _NEW, 0o666, dir_fd=folder)
    try:
        if old is not None:
            with suppress(PermissionError):
                os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


def _sync_folder(folder: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
