"""Stores a content as one more hard link of the file that holds it: nothing is copied.

uv and pnpm link thousands of files from a cache into a workspace. Commands can't write such a file: the
sandbox gives the workspace a copy of its own first. So one more link, in a folder of the record, keeps its
content. A program outside may still write the file, so what is read back is compared with its hash.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import apsw

CODEC = 2
"""The codec of a content that is a file in the folder of links."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LinkedFiles:
    """Links files into a record. `scanned` are the files of a full scan: they tell how many names each file
    has in the workspace."""

    def __init__(self, record: Path, scanned: Iterable[os.stat_result]) -> None:
        self._path = record / "linked"
        self._names = Counter((status.st_dev, status.st_ino) for status in scanned if status.st_nlink > 1)
        self._handle = -1

    def takes(self, status: os.stat_result) -> bool:
        """Return whether a file is our own, not empty, and has a name outside the workspace."""
        names = self._names.get((status.st_dev, status.st_ino), 0)
        return 0 < names < status.st_nlink and status.st_size > 0 and status.st_uid == os.geteuid()

    def add(self, handle: int, hash_: bytes) -> bool:
        """Link an open file. Returns False if it can't be linked, such as one on another file system."""
        try:
            if self._handle < 0:
                self._path.mkdir(mode=0o700, exist_ok=True)
                self._handle = os.open(self._path, _FOLDER)
            file, name = f"/proc/self/fd/{handle}", hash_.hex()
            try:
                os.link(file, name, dst_dir_fd=self._handle)
            except FileExistsError:  # a scan that was cut off left it
                os.unlink(name, dir_fd=self._handle)
                os.link(file, name, dst_dir_fd=self._handle)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the folder of links."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def read_linked(connection: apsw.Connection, hash_: bytes) -> bytes:
    """Return a linked content, or nothing if its file is gone or was changed."""
    path = _folder_of(connection) / hash_.hex()
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    return data if hashlib.sha256(data).digest() == hash_ else b""


def remove_unused(connection: apsw.Connection) -> None:
    """Remove the links that no content needs any more. Call it while holding the workspace's lock."""
    try:
        names = set(os.listdir(_folder_of(connection)))
    except FileNotFoundError:
        return
    for (hash_,) in connection.execute("SELECT hash FROM blobs WHERE codec = ?", (CODEC,)):
        names.discard(hash_.hex())
    for name in names:
        (_folder_of(connection) / name).unlink(missing_ok=True)


def _folder_of(connection: apsw.Connection) -> Path:
    (path,) = next(connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'"))
    return Path(path).parent / "linked"
