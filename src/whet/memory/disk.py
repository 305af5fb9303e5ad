"""Reads and replaces the files of learning, which a person may edit, break or swap at any moment.

Reading turns every way a file can be wrong into one line; replacing is compare-and-swap: what is there is
moved aside, looked at, and only then gone for good. It does not know what the files hold.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from whet.config import paths
from whet.contract.errors import StoreUnwritable
from whet.store.ledger import digest

LARGEST_BYTES = 1_000_000


class Moved(Exception):
    """The file held something else than was expected; `content` is what it holds."""


def read(path: Path, limit_bytes: int = LARGEST_BYTES) -> bytes | None:
    """Give a file's bytes, None where there is none. Raises ConfigError for a folder, a link, something
    larger than the limit, or no permission."""
    return paths.read_whole(path, limit_bytes, through_links=False)


def read_text(path: Path, limit_bytes: int = LARGEST_BYTES) -> str | None:
    """Give a file's text as in `read`. Raises ConfigError also for what is not UTF-8."""
    raw = read(path, limit_bytes)
    return None if raw is None else paths.as_text(raw, path)


def swap(path: Path, expected: str, content: bytes | None) -> None:
    """Put `content` (None: nothing) in the place of a file whose hash is `expected` (empty: none there).

    Durable on return. What is there is set aside by a rename before it is compared, so that an edit of the
    same moment is never lost. Raises Moved where it is not as expected and nothing was changed;
    StoreUnwritable, ConfigError.
    """
    aside, fresh = (path.with_name(f".{path.name}.{what}") for what in ("before", "new"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.is_symlink() or path.is_dir():
            read(path)
        fresh.unlink(missing_ok=True)
        if content is not None:
            paths.fill(fresh, content, 0o600)
        try:
            _set_aside(path, aside, expected)
            if content is not None:
                if expected:
                    fresh.chmod(stat.S_IMODE(aside.stat().st_mode))
                _take_place(fresh, path, aside)
        finally:
            fresh.unlink(missing_ok=True)
        aside.unlink(missing_ok=True)
        paths.sync_folder(path.parent)
    except OSError as error:
        raise StoreUnwritable(
            f"can't write {path}: {error.strerror}", hint="check the folder's owner and free space"
        ) from error


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
