"""Reads and replaces the files of learning, which a person may edit, break or swap at any moment.

Reading turns every way a file can be wrong into one line; replacing is compare-and-swap: what is there is
moved aside, looked at, and only then gone for good. It does not know what the files hold.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from whet.config.paths import sync_folder
from whet.contract.errors import StoreUnwritable, WhetError
from whet.store.ledger import digest

LARGEST_BYTES = 1_000_000


class UnreadableFile(WhetError):
    """A file that is there and can't be taken as it is; nothing is written over it."""


class Moved(Exception):
    """The file held something else than was expected; `content` is what it holds."""


def read(path: Path, limit_bytes: int = LARGEST_BYTES) -> bytes | None:
    """Give a file's bytes, None where there is none. Raises Unreadable for a folder, a link that leads
    elsewhere, something larger than the limit, or no permission."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UnreadableFile(f"{path.parent} is not a folder", hint="move it away") from None
    except OSError as error:
        if path.is_symlink():
            raise UnreadableFile(f"{path} is a symbolic link", hint="put a plain file in its place") from None
        raise UnreadableFile(f"can't read {path}: {error.strerror}", hint="check its permissions") from error
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            what = "a folder" if stat.S_ISDIR(facts.st_mode) else "not a plain file"
            raise UnreadableFile(f"{path} is {what}", hint="move it away; what was learned is in the ledger")
        if facts.st_size > limit_bytes:
            raise UnreadableFile(
                f"{path} has {facts.st_size:,} bytes, more than the {limit_bytes:,} that are read",
                hint="make it shorter, or move it away; what was learned is in the ledger",
            )
        return open(handle, "rb", closefd=False).read(limit_bytes + 1)
    finally:
        os.close(handle)


def read_text(path: Path, limit_bytes: int = LARGEST_BYTES) -> str | None:
    """Give a file's text as in `read`. Raises Unreadable also for what is not UTF-8."""
    raw = read(path, limit_bytes)
    return None if raw is None else as_text(raw, path)


def as_text(raw: bytes, path: Path) -> str:
    """Decode a file's bytes. Raises Unreadable with the line."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UnreadableFile(f"{path} line {line} is not UTF-8 text", hint="save the file as UTF-8") from None


def swap(path: Path, expected: str, content: bytes | None) -> None:
    """Put `content` (None: nothing) in the place of a file whose hash is `expected` (empty: none there).

    Durable on return. What is there is set aside by a rename before it is compared, so that an edit of the
    same moment is never lost. Raises Moved where it is not as expected and nothing was changed;
    StoreUnwritable, Unreadable.
    """
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.is_symlink() or path.is_dir():
            read(path)
        aside, fresh = (path.with_name(f".{path.name}.{what}") for what in ("before", "new"))
        if content is not None:
            _fill(fresh, content)
        try:
            _set_aside(path, aside, expected)
            if content is not None:
                if expected:
                    fresh.chmod(stat.S_IMODE(aside.stat().st_mode))
                _take_place(fresh, path, aside)
        finally:
            fresh.unlink(missing_ok=True)
        aside.unlink(missing_ok=True)
        sync_folder(path.parent)


def replace(path: Path, content: bytes) -> None:
    """Put `content` in the place of a file that is ours alone; durable on return. Raises StoreUnwritable."""
    fresh = path.with_name(f"{path.name}.new")
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _fill(fresh, content)
        fresh.replace(path)
        sync_folder(path.parent)


def restore_aside(path: Path) -> None:
    """Clear up after a crash in the middle of `swap`: what was set aside goes back if its place is free."""
    path.with_name(f".{path.name}.new").unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.before")
    if aside.is_file() and not aside.is_symlink():
        with suppress(FileExistsError):
            os.link(aside, path)
        aside.unlink(missing_ok=True)


def drop_empty(folder: Path, top: Path) -> None:
    """Remove `folder` and those above it that are empty now, up to `top`, which stays."""
    while folder != top and top in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Keep other processes of ours out of a folder's files meanwhile; a person is not kept out."""
    with _written(f"in {folder}"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _written(place: Path | str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnwritable(
            f"can't write {place}: {error.strerror}", hint="check the folder's owner and free space"
        ) from error


def _set_aside(path: Path, aside: Path, expected: str) -> None:
    aside.unlink(missing_ok=True)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        if expected:
            raise Moved from None
        return
    there = read(aside)
    if there is None or digest(there) != expected:
        restore_aside(path)
        raise Moved


def _take_place(fresh: Path, path: Path, aside: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        # Somebody saved the file in this very moment: theirs is what counts, and it is looked at again.
        aside.unlink(missing_ok=True)
        raise Moved from None


def _fill(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
