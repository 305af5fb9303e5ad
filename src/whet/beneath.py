"""Open, read and write files below a folder that commands may write to, without following links there.

A command can replace a file or folder by a link at any moment, also between a check and the use. So each
folder is opened by its name from the folder above it, and the file is used through its descriptor. Links in
the path of the top folder itself are followed: the person chose it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path

_OPEN_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40
_MAX_FOLDERS = 20_000  # searched for a file's other names


@contextmanager
def open_folder(root: str | Path, names: Iterable[str], make_mode: int | None = None) -> Generator[int]:
    """Open the folder at `root`/`names` for use as `dir_fd`. With `make_mode`, missing folders are made with
    that mode. Raises OSError, with ELOOP or ENOTDIR if one of the names is a link."""
    handle = os.open(root, _OPEN_FOLDER & ~os.O_NOFOLLOW)
    try:
        for name in names:
            below = _enter(handle, name, make_mode)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def open_beneath(root: str | Path, path: str | Path) -> BufferedReader:
    """Open a regular file below `root` to read it. Raises OSError for anything else, and for links."""
    *above, name = _split_path(path)
    with open_folder(root, above) as folder:
        file = os.fdopen(os.open(name, _OPEN_READ, dir_fd=folder), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def create_beneath(root: str | Path, path: str | Path, data: bytes) -> None:
    """Write a new file below `root`, durably. The file, and folders that are made for it, are private to the
    owner. Raises FileExistsError if the name is taken, and OSError."""
    *above, name = _split_path(path)
    with open_folder(root, above, make_mode=0o700) as folder:
        try:
            _create_file(folder, name, data, 0o600)
        except FileExistsError:
            raise
        except OSError:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise


def replace_beneath(root: str | Path, path: str | Path, data: bytes, *, new_mode: int | None = None) -> None:
    """Write or replace a file below `root`, atomically and durably. Missing folders are made, and the old
    file's mode is kept. A new file has `new_mode`. Raises OSError, with ELOOP if the name is a link."""
    *above, name = _split_path(path)
    temporary = f".whet-{os.urandom(8).hex()}.tmp"
    with open_folder(root, above, make_mode=0o777) as folder:
        mode = _read_mode(folder, name)
        try:
            _create_file(folder, temporary, data, new_mode if mode is None else mode)
            put_in_place(folder, temporary, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def put_in_place(
    folder: int, temporary: str, name: str, *, keeps_links: bool = False, mode: int | None = None
) -> str:
    """Replace the file `name` by the file `temporary` in the same folder. Returns a text that names the
    properties that the file lost, usually "".

    A rename is atomic. But it fails on a file that is mounted by itself, and it changes the file's owner,
    drops its extended attributes and separates it from its other names (hard links). If it would fail or
    change the owner or the attributes, or the other names although `keeps_links` is set, the content is
    written into the existing file instead. That file gets `mode` first, and the temporary file is kept until
    the content is durable. Raises OSError.
    """
    losses = _find_losses(folder, temporary, name, keeps_links=keeps_links)
    if losses and _write_into(folder, temporary, name, mode):
        return ""
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        if not _write_into(folder, temporary, name, mode):
            os.close(open_to_overwrite(folder, name))  # raises why: it may be mounted read-only
            raise
    return " and ".join(losses)


def has_all_links(root: str | Path, folder: int, name: str) -> bool:
    """Return whether a file has other names (hard links), and all of them are below `root`.

    A file that is shared with a package cache or another folder must not change there.
    """
    with suppress(OSError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        missing = status.st_nlink
        if missing < 2:
            return False
        for count, (path, _, names) in enumerate(os.walk(root)):
            for other_name in names:
                with suppress(OSError):
                    other = os.stat(os.path.join(path, other_name), follow_symlinks=False)
                    missing -= (other.st_ino, other.st_dev) == (status.st_ino, status.st_dev)
            if missing == 0:
                return True
            if count > _MAX_FOLDERS:
                break
    return False


def _find_losses(folder: int, temporary: str, name: str, *, keeps_links: bool) -> list[str]:
    """Return the properties that a file would lose if `temporary` were renamed to its name."""
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return []
    if not stat.S_ISREG(old.st_mode):
        return []
    new = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
    losses = ["its owner"] if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid) else []
    if keeps_links and old.st_nlink > 1:
        losses.append("its other names")
    if _has_attributes(folder, name):
        losses.append("its extended attributes")
    return losses


def _has_attributes(folder: int, name: str) -> bool:
    """Return whether a file has attributes that the system does not set by itself, such as access lists."""
    if not hasattr(os, "listxattr"):
        return False
    with suppress(OSError):
        handle = os.open(name, _OPEN_READ, dir_fd=folder)
        try:
            return any(not attribute.startswith("security.") for attribute in os.listxattr(handle))
        finally:
            os.close(handle)
    return False


def _write_into(folder: int, temporary: str, name: str, mode: int | None) -> bool:
    """Write a temporary file's content into an existing file, then remove the temporary file. Returns False
    if the existing file can't be opened for writing, or `mode` can't be set."""
    with os.fdopen(os.open(temporary, _OPEN_READ, dir_fd=folder), "rb") as source:
        data = source.read()
    try:
        handle = open_to_overwrite(folder, name)
    except OSError:
        return False
    if mode is not None and mode != stat.S_IMODE(os.fstat(handle).st_mode):
        try:
            os.fchmod(handle, mode)
        except OSError:  # another user's file: a rename replaces it
            os.close(handle)
            return False
    overwrite(handle, data)
    os.unlink(temporary, dir_fd=folder)
    return True


def open_to_overwrite(folder: int, name: str) -> int:
    """Open an existing file to write in place. Raises OSError, also for a link."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=folder)


def overwrite(handle: int, data: bytes) -> None:
    """Write `data` into an open file, durably, and close it. If that fails, the old content is written back.
    Raises OSError."""
    with os.fdopen(handle, "r+b", buffering=0) as file:
        old, mode = file.readall(), stat.S_IMODE(os.fstat(handle).st_mode)
        try:
            _overwrite(file, data)
            if stat.S_IMODE(os.fstat(handle).st_mode) != mode:  # writing clears setuid and setgid
                with suppress(PermissionError):
                    os.fchmod(handle, mode)
        except OSError:
            with suppress(OSError):
                _overwrite(file, old)
            raise


def _overwrite(file: FileIO, data: bytes) -> None:
    file.seek(0)
    _write_all(file.fileno(), data)
    file.truncate(len(data))
    os.fsync(file.fileno())


def _write_all(handle: int, data: bytes) -> None:
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[os.write(handle, unwritten) :]


def replace_file(path: Path, data: bytes, folders: Iterable[Path], *, new_mode: int | None = None) -> None:
    """Write or replace a file, atomically and durably. A new file has `new_mode`.

    Links that the person made are followed; links below `folders`, which commands may write to, are not.
    Raises OSError.
    """
    entered = enter_folders(path.absolute(), folders)
    if entered is None:
        try:
            target = path.resolve()
        except RuntimeError as error:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
        target.parent.mkdir(parents=True, exist_ok=True)
        entered = target.parent, target.name
    replace_beneath(*entered, data, new_mode=new_mode)


def explain_failure(error: OSError) -> str:
    """Return why a file can't be written, for a person."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a link or a file is in the way; links are not followed in folders that commands may write"
    return error.strerror or str(error)


def enter_folders(path: Path, roots: Iterable[Path]) -> tuple[Path, str] | None:
    """Return the first of `roots` that an absolute path enters, and the part of the path below it, or None if
    it enters none. Links are followed up to that root only. Raises OSError if links form a cycle."""
    tops = {os.path.realpath(root): root for root in roots}
    current, names, links = "/", [*reversed(path.parts[1:])], 0
    while names:
        if current in tops:
            below = os.path.normpath("/".join(reversed(names)))
            if below.partition("/")[0] not in ("..", "."):
                return tops[current], below
            names = [*reversed(below.split("/"))]
        entry = os.path.normpath(os.path.join(current, names.pop()))
        try:
            target = os.readlink(entry)
        except OSError:
            current = entry
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        current = "/" if target.startswith("/") else current
        names += [part for part in reversed(target.split("/")) if part]
    return None


def _split_path(path: str | Path) -> list[str]:
    """Return the names of a relative path. Raises OSError if it leads upwards or names no file."""
    names = str(path).split("/")
    if any(name in ("", ".", "..") for name in names):
        raise OSError(errno.EINVAL, "not a path below its folder", str(path))
    return names


def _enter(folder: int, name: str, make_mode: int | None) -> int:
    try:
        return os.open(name, _OPEN_FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if make_mode is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, make_mode, dir_fd=folder)
    return os.open(name, _OPEN_FOLDER, dir_fd=folder)


def _read_mode(folder: int, name: str) -> int | None:
    """Return the mode of a regular file, or None if it does not exist. Raises OSError for other kinds."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode):
        return stat.S_IMODE(mode)
    number = errno.ELOOP if stat.S_ISLNK(mode) else errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(number, os.strerror(number), name)


def _create_file(folder: int, name: str, data: bytes, mode: int | None) -> None:
    handle = os.open(name, _OPEN_NEW, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        if mode is not None:
            os.fchmod(handle, mode)
        _write_all(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
