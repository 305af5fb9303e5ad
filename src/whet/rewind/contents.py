"""Stores file contents in the record and reads them back: each content once, by its hash, compressed if that
helps.

A file that changes while it is read is read again. If it keeps changing, the last version read is stored,
and the next scan reads it again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import apsw
import msgspec

from whet.rewind import database
from whet.rewind.database import RecordFile
from whet.rewind.folders import OpenFolders, lock, unlock
from whet.rewind.linked import CODEC, LinkedFiles, read_linked
from whet.rewind.states import KnownState, PathState, make_left_out, make_stamp, read_mode, split_path
from whet.rewind.watching import FolderWatch
from whet.sqlite.database import Work

_PART_BYTES = 4_000_000
_BATCH_BYTES = 32_000_000
_JOB_BYTES = 1_000_000
_MAX_WORKERS = 4
_SAMPLE_BYTES = 4_096
_BUFFER_BYTES = 1_000_000
_TRIES = 3
_RACY_NS = 20_000_000
_COARSE_NS = 2_000_000_000


class Contents:
    """Reads and stores the contents of one scan, which began at `began_ns` and may add `budget_bytes` to the
    record. `linked` stores files that need no copy. `watch` reports later writes through other names."""

    def __init__(
        self,
        file: RecordFile,
        root_fd: int,
        began_ns: int,
        budget_bytes: int,
        linked: LinkedFiles | None = None,
        watch: FolderWatch | None = None,
    ) -> None:
        self.unwatched: set[str] = set()
        """The folders with files that have other names and could not be watched."""
        self._watch = watch
        self._file = file
        self._root_fd = root_fd
        self._began_ns = began_ns
        self._budget_bytes = budget_bytes
        self._packer = Packer()
        self._blobs: list[tuple[bytes, int, bytes]] = []
        self._parts: list[tuple[bytes, int, bytes]] = []
        self._held: set[bytes] = set()
        self._held_bytes = 0
        self._folder, self._folders = "", OpenFolders(root_fd)
        self._linked = linked
        self._buffer = memoryview(bytearray(_BUFFER_BYTES if linked is not None else 0))

    def read(
        self, path: str, status: os.stat_result, max_bytes: int, old: KnownState | None
    ) -> KnownState | None:
        """Read a file or a link, or return None if it is deleted. Large and unreadable ones are left out."""
        try:
            self._folder, name = split_path(path)
            folder = self._folders.open(self._folder)
            if stat.S_ISLNK(status.st_mode):
                target = os.fsencode(os.readlink(name, dir_fd=folder))
                return KnownState(PathState("link", 0, len(target), target), self._safe_stamp(status))
            return self._read_file(folder, name, status, max_bytes, old)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            return self._unlock_and_read(path, status, max_bytes, old)
        except OSError as error:
            self._leave_unwatched(path, status)
            return KnownState(make_left_out(f"can't be read: {error.strerror}", status), make_stamp(status))

    def _unlock_and_read(
        self, path: str, status: os.stat_result, max_bytes: int, old: KnownState | None
    ) -> KnownState | None:
        """Read a file whose mode denies its owner access, by changing the mode temporarily."""
        mode = unlock(self._root_fd, path, stat.S_IRUSR)
        if mode is None:
            self._leave_unwatched(path, status)
            return _unreadable_state(status, old)
        try:
            known = self.read(path, status, max_bytes, old)
        finally:
            lock(self._root_fd, path, mode)
        if known is None or known.state.kind != "file":
            return known
        return KnownState(msgspec.structs.replace(known.state, mode=mode), None)

    def flush(self) -> None:
        """Store the contents that were read, to be synced with the next record that begins."""
        self._file.write_unsynced(self.take())

    def take(self) -> Work[None]:
        """Return the work that stores the contents read since the last call."""
        self._settle()
        blobs, parts = self._blobs, self._parts
        self._blobs, self._parts, self._held_bytes = [], [], 0
        self._held.clear()
        return partial(database.store_blobs, blobs=blobs, parts=parts)

    def close(self) -> None:
        """Stop the threads and close the folders."""
        self._packer.close()
        if self._linked is not None:
            self._linked.close()
        self._folders.close()

    def _settle(self) -> None:
        """Wait until everything is packed, and count it at its true size."""
        for hash_, codec, packed in self._packer.results():
            self._budget_bytes -= len(packed)
            self._blobs.append((hash_, codec, packed))

    def _read_file(
        self, folder: int, name: str, status: os.stat_result, max_bytes: int, old: KnownState | None
    ) -> KnownState | None:
        if status.st_size > max_bytes:
            self._watch_file(folder, name, status)
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return KnownState(make_left_out("too large", now), make_stamp(now))
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            hash_ = self._link_file(handle, status)
            self._watch_file(folder, name, status)  # after the link, which would be reported as a change
            if hash_ is not None and (known := self._linked_state(handle, status, hash_)) is not None:
                return known
            state: PathState | None = None
            for _ in range(_TRIES):
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    return None  # replaced during the scan; the next scan finds the replacement
                if before.st_size > max_bytes:
                    return KnownState(make_left_out("too large", before), make_stamp(before))
                hash_, size = self._read_content(handle)
                if hash_ is None:
                    return KnownState(make_left_out("no room in the record", before), None)
                after = os.fstat(handle)
                state = PathState("file", read_mode(after), size, hash_)
                if make_stamp(after) == make_stamp(before) and size == after.st_size:
                    return KnownState(state, self._safe_stamp(after))
                os.lseek(handle, 0, os.SEEK_SET)
            return None if state is None else KnownState(state, None)
        finally:
            os.close(handle)

    def _link_file(self, handle: int, status: os.stat_result) -> bytes | None:
        """Store an open file by a link to it, and return its hash. Returns None if its content must be
        copied."""
        if self._linked is None or not self._linked.takes(status):
            return None
        data = self._read_whole(handle, status.st_size + 1)
        hash_ = hashlib.sha256(data).digest()
        if hash_ not in self._held:
            if not self._linked.add(handle, hash_):
                return None
            self._blobs.append((hash_, CODEC, b""))
            self._held.add(hash_)
        return hash_ if len(data) == status.st_size else None

    def _read_whole(self, handle: int, size_bytes: int) -> bytes | memoryview:
        """Read the beginning of a file, into the same memory if there is room: new memory costs as much as
        the read."""
        if size_bytes > len(self._buffer):
            return os.pread(handle, size_bytes, 0)
        return self._buffer[: os.preadv(handle, [self._buffer[:size_bytes]], 0)]

    def _linked_state(self, handle: int, status: os.stat_result, hash_: bytes) -> KnownState | None:
        """Return the state of a file that was linked, or None if it has changed since `status`."""
        after = os.fstat(handle)
        if (after.st_size, after.st_mtime_ns, after.st_ino) != (
            status.st_size,
            status.st_mtime_ns,
            status.st_ino,
        ):
            return None
        # the link has changed its ctime
        stamp = make_stamp(after) if self._safe_stamp(status) is not None else None
        return KnownState(PathState("file", read_mode(after), after.st_size, hash_), stamp)

    def _watch_file(self, folder: int, name: str, status: os.stat_result) -> None:
        """Watch a file that may be written through its other names."""
        if self._watch is None or status.st_nlink < 2:
            return
        if not self._watch.add_file(self._folder, folder, name):
            self.unwatched.add(self._folder)

    def _leave_unwatched(self, path: str, status: os.stat_result) -> None:
        if status.st_nlink > 1:
            self.unwatched.add(split_path(path)[0])

    def _read_content(self, handle: int) -> tuple[bytes | None, int]:
        """Read an open file to its end and return its hash and size. The hash is None if the record has no
        space left."""
        first = _read(handle, _PART_BYTES)
        if len(first) < _PART_BYTES:
            hash_ = hashlib.sha256(first).digest()
            return (hash_ if self._add_blob(hash_, first) else None), len(first)
        hasher, size, piece = hashlib.sha256(), 0, first
        parts: list[bytes] = []
        while piece:
            hasher.update(piece)
            size += len(piece)
            part = hashlib.sha256(piece).digest()
            if not self._add_blob(part, piece):
                return None, size
            parts.append(part)
            piece = _read(handle, _PART_BYTES)
        hash_ = hasher.digest()
        if len(parts) > 1:
            self._parts += [(hash_, number, part) for number, part in enumerate(parts)]
        return hash_, size

    def _add_blob(self, hash_: bytes, data: bytes) -> bool:
        if hash_ in self._held or self._file.read_now(lambda db: database.has_blob(db, hash_)):
            return True
        if self._packer.size + len(data) > self._budget_bytes:
            self._settle()  # packed, there may be room
            codec, packed = pack(data)
            if len(packed) > self._budget_bytes:
                return False
            self._budget_bytes -= len(packed)
            self._blobs.append((hash_, codec, packed))
        else:
            self._packer.add(hash_, data)
        self._held.add(hash_)
        self._held_bytes += len(data)
        if self._held_bytes > _BATCH_BYTES:
            self.flush()
        return True

    def _safe_stamp(self, status: os.stat_result) -> tuple[int, int, int, int] | None:
        """Return the stamp for the next scan to compare with.

        Returns None for a file so new that another change could happen in the same tick of the file
        system's clock.
        """
        coarse = status.st_ctime_ns % 1_000_000_000 == 0
        safe_ns = self._began_ns - (_COARSE_NS if coarse else _RACY_NS)
        return make_stamp(status) if max(status.st_ctime_ns, status.st_mtime_ns) < safe_ns else None


class Packer:
    """Packs contents side by side on a few threads, as zlib lets them; a few small ones without threads."""

    def __init__(self) -> None:
        self.size: int = 0
        """The bytes of what was added since the last results, before packing."""
        self._pool: ThreadPoolExecutor | None = None
        self._jobs: list[Future[list[tuple[bytes, int, bytes]]]] = []
        self._waiting: list[tuple[bytes, bytes]] = []
        self._waiting_bytes = 0

    def add(self, hash_: bytes, data: bytes) -> None:
        """Pack a content, now or when more has come."""
        self.size += len(data)
        self._waiting.append((hash_, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _JOB_BYTES:
            if self._pool is None:
                workers = min(_MAX_WORKERS, os.cpu_count() or 1)
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="pack")
            self._jobs.append(self._pool.submit(_pack_all, self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def results(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield hash, codec and packed content of everything that was added, and forget it."""
        jobs, waiting = self._jobs, self._waiting
        self._jobs, self._waiting, self._waiting_bytes, self.size = [], [], 0, 0
        for job in jobs:
            yield from job.result()
        yield from _pack_all(waiting)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _pack_all(contents: list[tuple[bytes, bytes]]) -> list[tuple[bytes, int, bytes]]:
    return [(hash_, *pack(data)) for hash_, data in contents]


def _unreadable_state(status: os.stat_result, old: KnownState | None) -> KnownState:
    """Return the state of an unreadable file: the known content if only its mode has changed, else left
    out."""
    if old is not None and old.state.kind == "file" and old.stamp is not None:
        size, mtime_ns, _, inode = old.stamp
        if (size, mtime_ns, inode) == (status.st_size, status.st_mtime_ns, status.st_ino):
            return KnownState(
                PathState("file", read_mode(status), size, old.state.content), make_stamp(status)
            )
    return KnownState(make_left_out("unreadable", status), make_stamp(status))


def _read(handle: int, most: int) -> bytes:
    pieces: list[bytes] = []
    bytes_left = most
    while bytes_left and (piece := os.read(handle, bytes_left)):
        pieces.append(piece)
        bytes_left -= len(piece)
    return b"".join(pieces)


def pack(data: bytes) -> tuple[int, bytes]:
    """Return the codec and a content as it is stored: packed if that saves a tenth of its beginning."""
    sample = data[:_SAMPLE_BYTES]
    packed = zlib.compress(sample, 1)
    if len(packed) * 10 < len(sample) * 9:
        if len(sample) < len(data):
            packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return 1, packed
    return 0, data


def unpack_blob(connection: apsw.Connection, hash_: bytes) -> Iterator[bytes]:
    """Yield a stored content in pieces."""
    for codec, data in database.blob_rows(connection, hash_):
        if codec == CODEC:
            yield read_linked(connection, hash_)
        else:
            yield zlib.decompress(data) if codec else data


def read_content(connection: apsw.Connection, state: PathState) -> bytes | None:
    """Return a file's complete content, or None if it is not stored or does not match its hash."""
    data = b"".join(unpack_blob(connection, state.content))
    return data if hashlib.sha256(data).digest() == state.content else None
