"""Reads files into the record, and gives them back: each content once, by its hash, packed where that helps.

A file that changes while it is read is read again; where it never holds still, what was read last counts, and
the next look reads it again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator

import apsw
import msgspec

from whet.rewind import database
from whet.rewind.database import RecordFile
from whet.rewind.folders import lock, parent_of, unlock
from whet.rewind.states import Known, PathState, left_out, mode_of, stamp_of

_PART_BYTES = 4_000_000
_BATCH_BYTES = 16_000_000
_SAMPLE_BYTES = 4_096
_TRIES = 3
_RACY_NS = 20_000_000
_COARSE_NS = 2_000_000_000


class Contents:
    """The contents of one look. `began_ns` is when it began, `budget_bytes` what it may add to the file."""

    def __init__(self, file: RecordFile, root_fd: int, began_ns: int, budget_bytes: int) -> None:
        self._file = file
        self._root_fd = root_fd
        self._began_ns = began_ns
        self._budget_bytes = budget_bytes
        self._blobs: list[tuple[bytes, int, bytes]] = []
        self._parts: list[tuple[bytes, int, bytes]] = []
        self._held: set[bytes] = set()
        self._held_bytes = 0

    def read(self, path: str, seen: os.stat_result, most_bytes: int, old: Known | None) -> Known | None:
        """Read a file or a link; None where it is gone. What can't be read or is too large is left out."""
        try:
            with parent_of(self._root_fd, path) as (folder, name):
                if stat.S_ISLNK(seen.st_mode):
                    target = os.fsencode(os.readlink(name, dir_fd=folder))
                    return Known(PathState("link", 0, len(target), target), self._stamp(seen))
                return self._file_state(folder, name, seen, most_bytes, old)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            return self._read_locked(path, seen, most_bytes, old)
        except OSError as error:
            return Known(left_out(f"can't be read: {error.strerror}", seen), stamp_of(seen))

    def _read_locked(
        self, path: str, seen: os.stat_result, most_bytes: int, old: Known | None
    ) -> Known | None:
        """Read a file that keeps its owner out."""
        mode = unlock(self._root_fd, path, stat.S_IRUSR)
        if mode is None:
            return _unreadable(seen, old)
        try:
            found = self.read(path, seen, most_bytes, old)
        finally:
            lock(self._root_fd, path, mode)
        if found is None or found.state.kind != "file":
            return found
        return Known(msgspec.structs.replace(found.state, mode=mode), None)

    def flush(self) -> None:
        """Store what was read; durable on return."""
        if self._blobs or self._parts:
            blobs, parts = self._blobs, self._parts
            self._file.write_now(lambda db: database.put_blobs(db, blobs, parts))
            self._blobs, self._parts, self._held_bytes = [], [], 0
            self._held.clear()

    def _file_state(
        self, folder: int, name: str, seen: os.stat_result, most_bytes: int, old: Known | None
    ) -> Known | None:
        if seen.st_size > most_bytes:
            return Known(left_out("too large", seen), stamp_of(seen))
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            state: PathState | None = None
            for _ in range(_TRIES):
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    return None  # replaced while we looked; the next look sees by what
                if before.st_size > most_bytes:
                    return Known(left_out("too large", before), stamp_of(before))
                hash_, size = self._take(handle)
                if hash_ is None:
                    return Known(left_out("no room in the record", before), None)
                after = os.fstat(handle)
                state = PathState("file", mode_of(after), size, hash_)
                if stamp_of(after) == stamp_of(before) and size == after.st_size:
                    return Known(state, self._stamp(after))
                os.lseek(handle, 0, os.SEEK_SET)
            return None if state is None else Known(state, None)
        finally:
            os.close(handle)

    def _take(self, handle: int) -> tuple[bytes | None, int]:
        """Read an open file to its end; gives its hash and size, None where the record has no room."""
        first = _read(handle, _PART_BYTES)
        if len(first) < _PART_BYTES:
            hash_ = hashlib.sha256(first).digest()
            return (hash_ if self._put(hash_, first) else None), len(first)
        whole, size, piece = hashlib.sha256(), 0, first
        parts: list[bytes] = []
        while piece:
            whole.update(piece)
            size += len(piece)
            part = hashlib.sha256(piece).digest()
            if not self._put(part, piece):
                return None, size
            parts.append(part)
            piece = _read(handle, _PART_BYTES)
        hash_ = whole.digest()
        if len(parts) > 1:
            self._parts += [(hash_, number, part) for number, part in enumerate(parts)]
        return hash_, size

    def _put(self, hash_: bytes, data: bytes) -> bool:
        if hash_ in self._held or self._file.read_now(lambda db: database.has_blob(db, hash_)):
            return True
        codec, packed = pack(data)
        if len(packed) > self._budget_bytes:
            return False
        self._budget_bytes -= len(packed)
        self._blobs.append((hash_, codec, packed))
        self._held.add(hash_)
        self._held_bytes += len(packed)
        if self._held_bytes > _BATCH_BYTES:
            self.flush()
        return True

    def _stamp(self, seen: os.stat_result) -> tuple[int, int, int, int] | None:
        """Give what the next look compares with; None for a file so new that another change of it could come
        in the same tick of the file system's clock."""
        coarse = seen.st_ctime_ns % 1_000_000_000 == 0
        safe_ns = self._began_ns - (_COARSE_NS if coarse else _RACY_NS)
        return stamp_of(seen) if max(seen.st_ctime_ns, seen.st_mtime_ns) < safe_ns else None


def _unreadable(seen: os.stat_result, old: Known | None) -> Known:
    """Give the state of a file that may not be read: what is known of it, where only its mode has changed."""
    if old is not None and old.state.kind == "file" and old.stamp is not None:
        size, mtime_ns, _, inode = old.stamp
        if (size, mtime_ns, inode) == (seen.st_size, seen.st_mtime_ns, seen.st_ino):
            return Known(PathState("file", mode_of(seen), size, old.state.content), stamp_of(seen))
    return Known(left_out("unreadable", seen), stamp_of(seen))


def _read(handle: int, most: int) -> bytes:
    pieces: list[bytes] = []
    left = most
    while left and (piece := os.read(handle, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def pack(data: bytes) -> tuple[int, bytes]:
    """Give a content as it is stored: packed where that saves a tenth."""
    sample = data[:_SAMPLE_BYTES]
    if len(zlib.compress(sample, 1)) * 10 < len(sample) * 9:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return 1, packed
    return 0, data


def unpacked(connection: apsw.Connection, hash_: bytes) -> Iterator[bytes]:
    """Give a stored content in pieces."""
    for codec, data in database.blob_rows(connection, hash_):
        yield zlib.decompress(data) if codec else data


def content_of(connection: apsw.Connection, state: PathState) -> bytes | None:
    """Give a file's whole content; None where it is not stored, or something else than what its hash says."""
    data = b"".join(unpacked(connection, state.content))
    return data if hashlib.sha256(data).digest() == state.content else None
