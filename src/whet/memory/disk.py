"""Read and replace the files of learning, which a person may edit, break or replace at any moment.

Every way in which a file can be unreadable becomes a one-line error. Files are replaced by
compare-and-swap: the current file is renamed, compared with the expected hash, and deleted only if it
matches. This module does not know the files' contents.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from whet.beneath import open_folder, put_in_place
from whet.config import paths
from whet.contract.errors import StoreUnwritable
from whet.store.ledger import hash_text

MAX_BYTES = 1_000_000


class Moved(Exception):
    """The file is not in the expected state; someone changed it in the meantime."""


def read(path: Path, limit_bytes: int = MAX_BYTES) -> bytes | None:
    """Return a file's bytes, or None if it does not exist.

    Raises ConfigError for a folder, a symlink, a file over the limit, or missing permission.
    """
    return paths.read_file_bytes(path, limit_bytes, through_links=False)


def read_text(path: Path, limit_bytes: int = MAX_BYTES) -> str | None:
    """Return a file's text, as `read` does. Raises ConfigError also if it is not UTF-8."""
    raw = read(path, limit_bytes)
    return None if raw is None else paths.decode_text(raw, path)


def swap(path: Path, expected: str, content: bytes | None) -> None:
    """Replace a file whose hash is `expected` (empty: no file) with `content` (None: delete it).

    Durable on return. The current file is renamed before it is compared, so a simultaneous edit is never
    lost. Raises Moved if the file is not as expected and nothing was changed; StoreUnwritable,
    ConfigError.
    """
    aside, fresh = (path.with_name(f".{path.name}.{suffix}") for suffix in ("before", "new"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.is_symlink() or path.is_dir():
            read(path)
        fresh.unlink(missing_ok=True)
        if content is not None:
            paths.write_new_file(fresh, content, 0o600)
        try:
            if not _set_aside(path, aside, expected):
                _swap_in_place(path, fresh, expected, content)
            elif content is not None:
                if expected:
                    fresh.chmod(stat.S_IMODE(aside.stat().st_mode))
                _install(fresh, path, aside)
        finally:
            fresh.unlink(missing_ok=True)
        aside.unlink(missing_ok=True)
        paths.sync_folder(path.parent)
    except OSError as error:
        raise StoreUnwritable(
            f"can't write {path}: {error.strerror}", hint="check the folder's owner and free space"
        ) from error


def restore_aside(path: Path) -> None:
    """Clean up after a crash during `swap`: move the renamed file back unless the path is in use."""
    path.with_name(f".{path.name}.new").unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.before")
    if aside.is_file() and not aside.is_symlink():
        with suppress(FileExistsError):
            os.link(aside, path)
        aside.unlink(missing_ok=True)


def drop_empty(folder: Path, top: Path) -> None:
    """Remove `folder` and the folders above it that are now empty, up to but not including `top`."""
    while folder != top and top in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _set_aside(path: Path, aside: Path, expected: str) -> bool:
    """Rename the file for the comparison. Returns False if it is mounted by itself and can't be renamed."""
    aside.unlink(missing_ok=True)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        if expected:
            raise Moved from None
        return True
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        return False
    content = read(aside)
    if content is None or hash_text(content) != expected:
        restore_aside(path)
        raise Moved
    return True


def _swap_in_place(path: Path, fresh: Path, expected: str, content: bytes | None) -> None:
    """Overwrite a file that is mounted by itself. To delete it, empty it."""
    current = read(path)
    if current is None or hash_text(current) != expected:
        raise Moved
    if content is None:
        paths.write_new_file(fresh, b"", 0o600)
    with open_folder(path.parent, ()) as folder:
        put_in_place(folder, fresh.name, path.name)


def _install(fresh: Path, path: Path, aside: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        # The file was saved in this moment. That version wins, and the caller looks at it again.
        aside.unlink(missing_ok=True)
        raise Moved from None
