"""Records a workspace: scans it, stores changes, and keeps the last scan's state in memory.

One process records one workspace at a time, behind a file lock; others wait. Stored data becomes visible
when the transaction that adds a version is committed.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import apsw
import msgspec

from whet.clock import Clock
from whet.contract.errors import StoreBusy
from whet.rewind import database
from whet.rewind.contents import Contents
from whet.rewind.database import Record, RecordFile
from whet.rewind.linked import LinkedFiles
from whet.rewind.pruning import prune, prune_old
from whet.rewind.record_path import record_path
from whet.rewind.scan import NeedsFullScan, Scan, Scanner, open_scanner
from whet.rewind.states import (
    KnownState,
    RecordLimits,
    Tree,
    join_path,
    printable_path,
    split_path,
    why_left_out,
)
from whet.rewind.watching import FolderWatch
from whet.sqlite.database import Work

PATIENCE_S = 60.0
"""How long to wait for a workspace's lock."""
_POLL_S = 0.05
_NAMED = 3
_WHOLE_AFTER_S = 600.0
_ROOM = 0.9
_FILL_BYTES = 4_000_000


_Store = Callable[[dict[str, KnownState], Sequence[str], Work[None]], int]


class Unrecorded(msgspec.Struct, frozen=True):
    """A path in the workspace that is not recorded."""

    path: str
    why: str
    size: int


class ScanStopped(Exception):
    """The record was closed during a scan. The next scan reads those files again."""


class Workspace:
    """The record of one workspace. Can be used from any thread."""

    def __init__(
        self,
        root: Path,
        home: Path,
        limits: RecordLimits,
        clock: Clock,
        guards_links: Callable[[], bool] = lambda: False,
    ) -> None:
        """`home` is Whet's home, which is never recorded. `guards_links` returns whether the sandbox keeps
        commands from writing to files that have another name outside the workspace."""
        self.root: str = os.path.realpath(root)
        self.limits = limits
        self.clock = clock
        self._guards_links = guards_links
        self.deferred: frozenset[str] = frozenset()
        """Folders that are recorded only before something may change them."""
        self.is_held: bool = False
        """Whether the sandbox was asked to wait for their recording before a command writes there."""
        self.is_unguarded: bool = False
        """Whether a step ran that was not recorded, and may have changed the folders."""
        self.failure: Exception | None = None
        """Why they could not be recorded. The next scan raises it."""
        self._path = record_path(home, self.root)
        self._folder = self._path.parent
        self._skipped = _home_inside(self.root, os.path.realpath(home))
        self._lock = threading.RLock()
        self._file: RecordFile | None = None
        self._tree: Tree = {}
        self._version = -1
        self._watch = FolderWatch(self.root)
        self._scanned_s = -_WHOLE_AFTER_S
        self._linked: set[str] = set()
        self._left_out: tuple[int, list[Unrecorded]] = (-1, [])
        self._open_steps: dict[int, tuple[str, int]] = {}  # session and turn by record
        self._ended_step = ("", 0, -1)
        self._is_pruned = False
        self._is_closing = False

    @property
    def exists(self) -> bool:
        """Whether anything was ever recorded here."""
        return self._path.exists()

    @property
    def is_recorded(self) -> bool:
        """Whether a scan was ever completed here. A stopped scan leaves an empty record."""
        return self.file.read_now(database.read_version) > 0

    @property
    def file(self) -> RecordFile:
        """The open file, created on first use."""
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = RecordFile.open_file(self._path, self.clock.now().isoformat(), 10.0)
            if not file.read_now(lambda db: database.read_fact(db, "workspace")):
                root = os.fsencode(self.root).decode("utf-8", "backslashreplace")
                file.write_now(lambda db: database.set_fact(db, "workspace", root))
            self._file = file
        return self._file

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Prevent all other threads and processes from recording or changing this workspace in the meantime.

        Raises StoreBusy if another one takes too long.
        """
        with self._lock, hold_lock(self._folder):
            yield

    def begin_record(self, new: Record, plan: bytes = b"") -> int:
        """Store the beginning of a step or a rewind, and return the record's number. Durable on return, as is
        all that was stored before.

        A step that follows one of its own turn is not synced if nothing was changed between them: until the
        system writes the log by itself, a power cut may undo the steps since the last sync. The point before
        the turn remains, and what anyone but its steps changed.
        """
        is_synced = new.kind != "step" or self._ended_step != (new.session, new.turn, new.before)
        write = self.file.write_now if is_synced else self.file.write_unsynced
        number = write(lambda db: database.begin_record(db, new, plan))
        if new.kind == "step":
            self._open_steps[number] = (new.session, new.turn)
        return number

    def end_step(self, record: int, after: int) -> int:
        """Store the end of a step, and return the version at its beginning. Synced with a later record."""
        before = self.file.write_unsynced(lambda db: database.end_record(db, record, after))
        self._ended_step = (*self._open_steps.pop(record, ("", 0)), after)
        return before

    @property
    def may_defer(self) -> bool:
        """Whether folders are unrecorded, or nothing was recorded yet. Read it while `exclusive`."""
        self._refresh()
        return self._version == 0 or bool(self.deferred)

    def defer(self, folders: frozenset[str], *, are_lost: bool = False) -> None:
        """Leave only these folders unrecorded, while `exclusive`. A new record leaves them out; an older one
        records the others as they have been since its first version, or if their first state may be lost, as
        new at the next scan. Raises as `scan`."""
        self._refresh()
        if self._version == 0:
            self.deferred = folders
        elif below := self.deferred - folders:
            began_ns, remaining = time.time_ns(), self.deferred & folders
            store = partial(_store_deferred, self.file, self._tree, remaining)
            with self._open_scanner(remaining) as scanner:
                scan = scanner.scan_below(() if are_lost else below)
                self._version = self._read_and_store(scanner, scan, began_ns, store, is_new=True)
            self.deferred = remaining

    def scan(self, *, short: bool = False) -> int:
        """Update the record while `exclusive`, and return the current version. A power cut may undo it until
        the next synced record begins.

        `short`: scan only in folders with changes reported by the kernel, if it reported any. Raises
        WorkspaceTooLarge, NotFound if there is no workspace, StoreError.
        """
        try:
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            return self._scan_and_store(short=short)
        except BaseException:
            self._watch.close()  # its reports were not stored
            raise

    def left_out(self) -> list[Unrecorded]:
        """Return the paths that the last scan left out."""
        if self._version < 0 or self._left_out[0] != self._version:
            self._left_out = (self._version, self.file.read_now(_list_left_out))
        return self._left_out[1]

    def find_known(self, path: str) -> KnownState | None:
        """Return a path's state as of the last scan, or None."""
        folder, name = split_path(path)
        return self._tree.get(folder, {}).get(name)

    def paths_in(self, folder: str) -> list[str]:
        """Return the paths that the last scan found in a folder."""
        return [join_path(folder, name) for name in self._tree.get(folder, {})]

    def close(self) -> None:
        """Close the file. A scan that is under way on another thread ends first, after its next file."""
        self._is_closing = True
        with self._lock:
            self._is_closing = False
            self._watch.close()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _scan_and_store(self, *, short: bool) -> int:
        is_known = self._refresh()
        began_ns = time.time_ns()
        with self._open_scanner(self.deferred) as scanner:
            scan = self._scan(scanner, short=short and is_known)
            if not (scan.to_read or scan.settled or scan.gone):
                return self._version
            is_new = self._version == 0
            with self.file.without_log() if is_new and _is_large(scan) else nullcontext():
                return self._read_and_store(scanner, scan, began_ns, self._store, is_new=is_new)

    def _open_scanner(self, deferred: frozenset[str]) -> AbstractContextManager[Scanner]:
        return open_scanner(self.root, self._tree, self._skipped | deferred, self.limits.paths, self._watch)

    def _read_and_store(
        self, scanner: Scanner, scan: Scan, began_ns: int, store: _Store, *, is_new: bool
    ) -> int:
        """Read the files that a scan lists, and store them. If `is_new`, many files are linked."""
        budget_bytes = self._budget()
        linked = None
        if is_new and _is_large(scan) and _has_links(scan) and self._guards_links():
            linked = LinkedFiles(self._folder, (status for _, status in scan.to_read))
        watch = self._watch if scanner.is_first else None
        with closing(Contents(self.file, scanner.root_fd, began_ns, budget_bytes, linked, watch)) as contents:
            states = self._read(contents, scan, budget_bytes)
            self._linked |= contents.unwatched
            return store(states, scan.gone, contents.take())

    def _refresh(self) -> bool:
        """Load changes recorded by another process. Returns True if there were none."""
        if self._version == self.file.read_now(database.read_version):
            return True
        self._version, self._tree = self.file.read_now(database.load_tree)
        self.deferred = self.file.read_now(database.read_deferred)
        return False

    def _scan(self, scanner: Scanner, *, short: bool) -> Scan:
        now_s = self.clock.monotonic_s()
        changed = self._watch.read_changes()
        if short and changed is not None and now_s - self._scanned_s < _WHOLE_AFTER_S:
            try:
                result = scanner.scan_in(changed, self._linked)
                self._linked |= result.linked
                return result
            except (NeedsFullScan, OSError):
                scanner.reset()  # a full scan covers it
        result = scanner.scan()
        self._scanned_s, self._linked = now_s, result.linked
        return result

    def _budget(self) -> int:
        """Return how many bytes may be added. Old records are pruned first, and more of them if space is
        short."""
        if not self._is_pruned:
            self._is_pruned = True
            prune_old(self.file, self.limits, self.clock.unix_ms())
        used = self.file.read_now(database.used_bytes)
        if used > self.limits.total_bytes * _ROOM:
            prune(self.file, self.limits, self.clock.unix_ms())
            used = self.file.read_now(database.used_bytes)
        return max(0, self.limits.total_bytes - used)

    def _read(self, contents: Contents, scan: Scan, budget_bytes: int) -> dict[str, KnownState]:
        """Read what may have changed. If there may not be room for all, small files come first."""
        states = {path: KnownState(state, None) for path, state in scan.settled.items()}
        if sum(status.st_size for _, status in scan.to_read) > budget_bytes:
            scan.to_read.sort(key=lambda item: item[1].st_size)
        for path, status in scan.to_read:
            if self._is_closing:
                raise ScanStopped
            state = contents.read(path, status, self.limits.file_bytes, self.find_known(path))
            if state is not None:
                states[path] = state
            elif self.find_known(path) is not None:
                scan.gone.append(path)
        return states

    def _store(self, states: dict[str, KnownState], gone: Sequence[str], store_contents: Work[None]) -> int:
        changed: list[tuple[str, KnownState]] = []
        same: list[tuple[str, KnownState]] = []
        for path, new in states.items():
            old = self.find_known(path)
            if old is None or old.state != new.state:
                changed.append((path, new))
            elif old.stamp != new.stamp:
                same.append((path, new))
        gone = [
            path for path in dict.fromkeys(gone) if path not in states and self.find_known(path) is not None
        ]

        def work(db: apsw.Connection) -> int:
            store_contents(db)
            if self._version == 0 and self.deferred:
                database.defer_folders(db, self.deferred)
            if same:
                database.restamp(db, [(path, new.stamp) for path, new in same])
            return database.advance(db, changed, gone) if changed or gone else self._version

        _keep_states(self._tree, same)  # also if nothing is stored: the next scan compares current stamps
        if not changed and not gone and not any(new.stamp for _, new in same):
            return self._version  # only files that are too new to be certain
        number = self.file.write_unsynced(work)
        _keep_states(self._tree, changed, gone)
        self._version = number
        return number


@contextmanager
def hold_lock(folder: Path) -> Generator[None]:
    """Hold the lock of one workspace's record. Raises StoreBusy if another process holds it too long."""
    name, how = folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        handle = os.open(name, how, 0o600)
    except FileNotFoundError:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(name, how, 0o600)
    try:
        _wait_for(handle)
        yield
    finally:
        os.close(handle)


def describe_left_out(unrecorded: Sequence[Unrecorded]) -> str:
    """Return a line on the paths that can't be restored, or an empty string."""
    if not unrecorded:
        return ""
    largest = sorted(unrecorded, key=lambda item: -item.size)
    names = ", ".join(f"{item.path} ({item.why})" for item in largest[:_NAMED])
    more = f" and {len(unrecorded) - _NAMED} more" if len(unrecorded) > _NAMED else ""
    return f"left out of what a rewind brings back: {names}{more}"


def _list_left_out(connection: apsw.Connection) -> list[Unrecorded]:
    rows = database.find_left_out(connection)
    return [Unrecorded(printable_path(path), why_left_out(state), state.size) for path, state in rows]


def _store_deferred(
    file: RecordFile,
    tree: Tree,
    deferred: frozenset[str],
    states: dict[str, KnownState],
    _gone: Sequence[str],
    store_contents: Work[None],
) -> int:
    """Store paths as they have been since the first version. Durable on return: a command changes them
    next."""

    def work(db: apsw.Connection) -> int:
        store_contents(db)
        return database.add_deferred(db, states.items(), deferred)

    number = file.write_now(work)
    _keep_states(tree, states.items())
    return number


def _keep_states(tree: Tree, states: Iterable[tuple[str, KnownState]], gone: Iterable[str] = ()) -> None:
    for path in gone:
        folder, name = split_path(path)
        tree.get(folder, {}).pop(name, None)
        tree.pop(path, None)
    for path, new in states:
        folder, name = split_path(path)
        tree.setdefault(folder, {})[name] = new


def _has_links(scan: Scan) -> bool:
    return any(status.st_nlink > 1 for _, status in scan.to_read)


def _is_large(scan: Scan) -> bool:
    return sum(status.st_size for _, status in scan.to_read) > _FILL_BYTES


def _home_inside(root: str, home: str) -> frozenset[str]:
    if home == root or not home.startswith(root.rstrip("/") + "/"):
        return frozenset()
    return frozenset({os.path.relpath(home, root)})


def _wait_for(handle: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise StoreBusy("another session is recording this workspace") from None
            time.sleep(_POLL_S)
        else:
            return
