"""Restores files to the states of a plan. It may be killed at any point and restarted with the same plan.

A file is written beside its path, synced to disk, and renamed into place. Symlinks are never followed. A
path that has changed since the plan was made is left alone.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Generator, Mapping, Sequence

import apsw
import msgspec

from whet.beneath import put_in_place
from whet.contract.errors import StoreCorrupt, StoreFull, WhetError
from whet.rewind.contents import unpack_blob
from whet.rewind.folders import open_folder, open_root, parent_of, set_mode
from whet.rewind.planning import Change
from whet.rewind.recorder import Workspace
from whet.rewind.states import KnownState, PathState, join_path, split_path
from whet.sqlite.faults import DISK_FULL

_SYNCED_ONE_BY_ONE = 200
_OWNER = 0o700


class RestoreResult(msgspec.Struct):
    """The result of a plan: how many paths were changed, and the ones that could not be, with the reason."""

    paths: int = 0
    failed: dict[str, str] = {}


class Restorer:
    """Carries out one plan in a workspace, while `Workspace.exclusive`. `number` is part of temporary file
    names."""

    def __init__(self, workspace: Workspace, number: int, modes: Mapping[str, int]) -> None:
        """`modes`: the final modes of folders. An earlier, interrupted run may have opened them."""
        self._workspace = workspace
        self._number = number
        self._root_fd = -1
        self._done = RestoreResult()
        self._modes: dict[str, int] = dict(modes)
        self._entered: set[str] = set()
        self._touched: set[str] = set()
        self._synced_one_by_one = True

    def restore(self, changes: Sequence[Change]) -> RestoreResult:
        """Carry out the changes that are not done yet. Call it after a scan."""
        self._root_fd = open_root(self._workspace.root)
        self._synced_one_by_one = len(changes) <= _SYNCED_ONE_BY_ONE
        try:
            self._remove_temporaries(changes)
            todo = [change for change in changes if self._is_due(change)]
            gone = [change for change in todo if change.now is not None and not _stays(change)]
            gone.sort(key=lambda change: (_is_folder(change.now), -_depth(change.path)))
            for change in gone:
                self._try(change, self._remove)
            creations = [change for change in todo if change.then is not None]
            creations.sort(key=lambda change: (not _is_folder(change.then), _depth(change.path)))
            for change in creations:
                self._try(change, self._make)
            self._sync()
            self._set_modes()
        finally:
            os.close(self._root_fd)
        self._done.paths = len({change.path for change in todo} - self._done.failed.keys())
        return self._done

    def _try(self, change: Change, act: Callable[[Change], None]) -> None:
        if change.path in self._done.failed:
            return
        try:
            act(change)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise StoreFull(
                    "no space is left to restore the files", hint="free some, then: whet rewind"
                ) from error
            self._done.failed[change.path] = error.strerror or str(error)
        except WhetError as error:
            self._done.failed[change.path] = error.message

    def _is_due(self, change: Change) -> bool:
        known_state = self._workspace.find_known(change.path)
        state = known_state.state if known_state is not None else None
        if state == change.then:
            return False
        if state == change.now or _is_half_done(state, change):
            return True
        self._done.failed[change.path] = "changed while the rewind was under way"
        return False

    def _remove_temporaries(self, changes: Sequence[Change]) -> None:
        """Remove temporary files that an earlier, killed run left behind."""
        for folder in {split_path(change.path)[0] for change in changes}:
            with contextlib.suppress(OSError):
                handle = open_folder(self._root_fd, folder)
                try:
                    os.unlink(self._temporary, dir_fd=handle)
                finally:
                    os.close(handle)

    @property
    def _temporary(self) -> str:
        return f".whet-rewind-{self._number}.tmp"

    def _open_parents(self, path: str) -> None:
        """Make sure that the folders above a path exist and are writable. Their modes are set at the end.

        Raises OSError.
        """
        folder = ""
        for name in split_path(path)[0].split("/"):
            above, folder = folder, join_path(folder, name)
            if not folder or folder in self._entered:
                continue
            self._entered.add(folder)
            with _folder_handle(self._root_fd, above) as handle:
                try:
                    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                except FileNotFoundError:
                    os.mkdir(name, 0o755, dir_fd=handle)
                    continue
                mode = stat.S_IMODE(status.st_mode)
                if stat.S_ISDIR(status.st_mode) and mode & _OWNER != _OWNER:
                    set_mode(handle, name, mode | _OWNER)
                    self._modes.setdefault(folder, mode)

    def _remove(self, change: Change) -> None:
        self._open_parents(change.path)
        with parent_of(self._root_fd, change.path) as (folder, name):
            try:
                self._check_same_file(folder, name, change)
                if _is_folder(change.now):
                    os.rmdir(name, dir_fd=folder)
                    self._modes.pop(change.path, None)
                else:
                    os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return
            self._touched.add(split_path(change.path)[0])

    def _make(self, change: Change) -> None:
        then = change.then
        assert then is not None  # the list contains no others
        self._open_parents(change.path)
        with parent_of(self._root_fd, change.path) as (folder, name):
            if then.kind == "folder":
                self._modes[change.path] = then.mode
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _OWNER, dir_fd=folder)
            else:
                if change.now is not None and _stays(change):
                    self._check_same_file(folder, name, change)
                if _only_mode(change) and os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink == 1:
                    set_mode(folder, name, then.mode)
                else:
                    self._write(folder, name, then)
            self._touched.add(split_path(change.path)[0])

    def _check_same_file(self, folder: int, name: str, change: Change) -> None:
        """Raise WhetError if a file is not the one that the last scan saw."""
        expected: KnownState | None = self._workspace.find_known(change.path)
        if expected is None or expected.stamp is None or expected.state.kind != "file":
            return
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        size, mtime_ns, _, inode = expected.stamp  # restoring another name of the file changes its ctime
        if (status.st_size, status.st_mtime_ns, status.st_ino) != (size, mtime_ns, inode):
            raise WhetError("changed while the rewind was under way")

    def _write(self, folder: int, name: str, then: PathState) -> None:
        temporary = self._temporary
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        if then.kind == "link":
            os.symlink(os.fsdecode(then.content), temporary, dir_fd=folder)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(temporary, flags, 0o600, dir_fd=folder)
            try:
                size = self._workspace.file.read_now(lambda db: _copy(db, then, handle))
                if size != then.size:
                    os.unlink(temporary, dir_fd=folder)
                    raise StoreCorrupt("its recorded content is gone", hint="whet doctor")
                os.fchmod(handle, then.mode)
                if self._synced_one_by_one:
                    os.fsync(handle)
            finally:
                os.close(handle)
        if then.kind == "link":
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            put_in_place(folder, temporary, name)

    def _set_modes(self) -> None:
        for path, mode in sorted(self._modes.items(), key=lambda item: -_depth(item[0])):
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                parent_of(self._root_fd, path) as (folder, name),
            ):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) != mode:
                    set_mode(folder, name, mode)

    def _sync(self) -> None:
        """Sync the names to disk. If there are few files, their contents are synced already."""
        if not self._synced_one_by_one:
            os.sync()
            return
        for path in self._touched:
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError),
                _folder_handle(self._root_fd, path) as handle,
            ):
                os.fsync(handle)


@contextlib.contextmanager
def _folder_handle(root_fd: int, folder: str) -> Generator[int]:
    handle = open_folder(root_fd, folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _copy(connection: apsw.Connection, state: PathState, handle: int) -> int:
    size = 0
    for piece in unpack_blob(connection, state.content):
        view = memoryview(piece)
        size += len(piece)
        while view:
            view = view[os.write(handle, view) :]
    return size


def _is_folder(state: PathState | None) -> bool:
    return state is not None and state.kind == "folder"


def _depth(path: str) -> int:
    return path.count("/")


def _stays(change: Change) -> bool:
    """Return whether a path is replaced or changed in place, and not removed first."""
    if change.now is None or change.then is None:
        return False
    return (change.now.kind == "folder") == (change.then.kind == "folder")


def _only_mode(change: Change) -> bool:
    now, then = change.now, change.then
    return (
        now is not None
        and then is not None
        and now.kind == then.kind == "file"
        and now.content == then.content
    )


def _is_half_done(state: PathState | None, change: Change) -> bool:
    """Return whether a killed run can have left this state.

    That is a folder whose mode was opened for the work, or no path if a folder replaces a file or the
    reverse.
    """
    if state is None:
        return change.now is not None and change.then is not None and not _stays(change)
    return state.kind == "folder" and any(_is_folder(side) for side in (change.now, change.then))
