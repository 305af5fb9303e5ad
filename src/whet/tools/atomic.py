"""Replace files completely or not at all, several of them as one change.

New content is written to temporary files in the same folders and synced; they are put in place, mostly by
a rename, only if all of that succeeded. A crash, a full disk or a denial leaves each file either old or
new; only a file that a rename would damage is written in place, with the temporary file as a copy until
then. If a later change fails, the earlier ones are undone. Text encoding is handled elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from whet.beneath import has_all_links, open_to_overwrite, overwrite, put_in_place
from whet.contract.errors import BadInput, ToolError
from whet.tools.paths import ConfinedPath, folder_of, kind, system_error

Fingerprint = tuple[int, int, int]
_IN_PLACE = "/"  # instead of a temporary file's name: the file itself is overwritten
_NO_NEW_FILES = (errno.EACCES, errno.EPERM, errno.EROFS)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PendingWrite(msgspec.Struct, frozen=True):
    """A pending change of one file: write `data`, or delete the file if it is None.

    `fingerprint` is the file's when the change was computed, or None if the file must not exist. `old` is
    its content then, needed to restore it if another change fails. `text` is `data` before it was encoded.
    """

    target: ConfinedPath
    data: bytes | None
    fingerprint: Fingerprint | None
    old: bytes | None = None
    text: str | None = None


def write_all(changes: Sequence[PendingWrite], is_stopped: Callable[[], bool]) -> list[str]:
    """Make all changes or none. They are durable on return. Folders are created; modes, owners, attributes
    and hard links within the workspace are kept. Returns a note for each change, mostly empty.

    Raises ToolError if a file changed meanwhile, the disk is full, a permission is missing or `is_stopped`
    returns true before the first rename; BadInput for a folder, a device or a read-only file.
    """
    temporary: list[str] = []
    done: list[PendingWrite] = []
    notes: list[str] = []
    try:
        for change in changes:
            temporary.append("" if change.data is None else _prepare(change.target, change.data))
        if is_stopped():
            raise ToolError("stopped")
        for change, name in zip(changes, temporary, strict=True):
            notes.append(_commit(change, name))
            done.append(change)
    except ToolError:
        for change, name in zip(changes, temporary, strict=False):
            _discard(change.target, name)
        for change in done:
            _restore(change)
        raise
    return notes


def fingerprint(target: ConfinedPath) -> Fingerprint | None:
    """Return the file's inode, size and time, which change with the file, or None if it does not exist."""
    try:
        return fingerprint_of(os.stat(target.path, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise system_error("look at", target, error) from error


def fingerprint_of(state: os.stat_result) -> Fingerprint:
    """Return the fingerprint in a stat result."""
    return (state.st_ino, state.st_size, state.st_mtime_ns)


def refuse_read_only(target: ConfinedPath, mode: int) -> None:
    """Raise BadInput for a file that is read-only for everyone."""
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(f"{target.shown} is marked read-only", hint="change its mode first if that is right")


def _prepare(target: ConfinedPath, data: bytes) -> str:
    """Write `data` to a temporary file next to the target, sync it, and return its name.

    If nothing may be created in the folder, but the file may be written, return `_IN_PLACE`.
    """
    if kind(target) == "folder":
        raise BadInput(f"{target.shown} is a folder", hint="name a file in it")
    # A process that a command left running may have created the link after the gate's check.
    if target.is_linked and _starts_programs(target):
        raise BadInput(f"a link leads to {target.shown}", hint="name that itself")
    temporary = f".whet-{os.urandom(8).hex()}.tmp"
    try:
        with folder_of(target, make=True) as folder:
            old = _old_state(target, folder)
            try:
                _fill(folder, temporary, data, old)
            except OSError as error:
                if old is None or error.errno not in _NO_NEW_FILES:
                    raise
                os.close(open_to_overwrite(folder, target.name))
                return _IN_PLACE
    except OSError as error:
        raise system_error("write", target, error) from error
    return temporary


def _starts_programs(target: ConfinedPath) -> bool:
    from whet.sandbox.system_folders import starts_programs  # noqa: PLC0415  few paths are led to

    return starts_programs(target.path, target.root)


def _commit(change: PendingWrite, temporary: str) -> str:
    """Make one change and return a note on what the file lost."""
    target = change.target
    lost = ""
    if fingerprint(target) != change.fingerprint:
        raise ToolError(f"{target.shown} changed meanwhile", hint="read it again")
    try:
        with folder_of(target) as folder:
            bits = _special_bits(folder, target.name) if temporary else set[str]()
            if temporary == _IN_PLACE:
                overwrite(open_to_overwrite(folder, target.name), change.data or b"")
            elif temporary:
                keeps_links = has_all_links(target.root, folder, target.name)
                lost = put_in_place(folder, temporary, target.name, keeps_links=keeps_links)
            else:
                os.unlink(target.name, dir_fd=folder)
            lost_bits = sorted(bits - _special_bits(folder, target.name)) if bits else []
            lost = " and ".join([*([lost] if lost else []), *lost_bits])
            _sync_folder(folder)
    except OSError as error:
        raise system_error("write" if temporary else "delete", target, error) from error
    return f"the file lost {lost}, which only its owner can keep" if lost else ""


def _restore(change: PendingWrite) -> None:
    if change.old is not None:
        _commit(
            PendingWrite(change.target, change.old, fingerprint(change.target)),
            _prepare(change.target, change.old),
        )
    elif change.data is not None:
        _commit(PendingWrite(change.target, None, fingerprint(change.target)), "")


def _discard(target: ConfinedPath, temporary: str) -> None:
    if temporary not in ("", _IN_PLACE):
        with suppress(OSError), folder_of(target) as folder:
            os.unlink(temporary, dir_fd=folder)


def _old_state(target: ConfinedPath, folder: int) -> os.stat_result | None:
    try:
        old = os.stat(target.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    refuse_read_only(target, old.st_mode)
    return old


def _fill(folder: int, name: str, data: bytes, old: os.stat_result | None) -> None:
    descriptor = os.open(name, _NEW, 0o666, dir_fd=folder)
    try:
        if old is not None:
            with suppress(PermissionError):
                os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        if old is not None and _owners(old) == _owners(os.fstat(descriptor)):
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode))  # the owner's change and writing clear setuid
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


def _owners(state: os.stat_result) -> tuple[int, int]:
    return state.st_uid, state.st_gid


def _special_bits(folder: int, name: str) -> set[str]:
    """Return which of setuid and setgid a file has."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return set()
    bits = {"its setuid bit": stat.S_ISUID, "its setgid bit": stat.S_ISGID}
    return {title for title, bit in bits.items() if mode & bit}


def _sync_folder(folder: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
