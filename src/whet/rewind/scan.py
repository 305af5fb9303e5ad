"""One scan of a workspace: finds the paths that differ from the known state, by calling stat on each of them.

Only folders are read here. If a folder can't be entered, its known state is kept.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from whet.contract.errors import NotFound, WhetError
from whet.rewind.folders import lock, open_folder, open_for_listing, open_root, unlock
from whet.rewind.states import KnownState, PathState, Tree, join_path, make_left_out, read_mode, split_path
from whet.rewind.watching import FolderChanges, FolderWatch

_KIND_BITS = 0o170000
_FOLDER_BITS = stat.S_IFDIR


class WorkspaceTooLarge(WhetError):
    """The workspace has more paths than the limit allows."""


class NeedsFullScan(Exception):
    """A short scan found a change that needs a full scan."""


class Scan(msgspec.Struct):
    """The differences that a scan found. `to_read` are new and changed files with their status; `settled` are
    paths whose state is known without reading; `gone` are deleted paths; `linked` are folders of files that
    have other names and could not be watched; `paths` counts all paths."""

    to_read: list[tuple[str, os.stat_result]] = []
    settled: dict[str, PathState] = {}
    gone: list[str] = []
    linked: set[str] = set()
    paths: int = 0


class Scanner:
    """Scans one workspace without the `skipped` folders: Whet's home, and folders that are recorded later.
    The first scan does not watch files with other names; they are watched when they are read."""

    def __init__(
        self, root_fd: int, tree: Tree, skipped: frozenset[str], most_paths: int, watch: FolderWatch
    ) -> None:
        self.is_first: bool = not tree
        self.root_fd = root_fd
        self._watch = watch
        self._is_short = False
        self._made: set[str] = set()
        self.unlocked: dict[str, int] = {}
        self._device = os.fstat(root_fd).st_dev
        self._tree = tree
        self._skipped = skipped
        self._most_paths = most_paths
        self._pending: list[str] = []
        self._result = Scan()

    def scan(self) -> Scan:
        """Return the differences. Raises WorkspaceTooLarge, and OSError if the workspace itself is gone."""
        self._watch.begin()
        self._list("", is_new=True)
        self._list_pending()
        return self._result

    def scan_below(self, folders: Iterable[str]) -> Scan:
        """Return these folders and everything below them. No state of it may be known yet."""
        self.is_first = True
        for folder in folders:
            with suppress(FileNotFoundError, NotADirectoryError):
                status = os.stat(folder, dir_fd=self.root_fd, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    self._handle_folder(folder, status, None, is_new=True)
        self._list_pending()
        return self._result

    def _list_pending(self) -> None:
        while self._pending:
            folder = self._pending.pop()
            try:
                self._list(folder, is_new=True)
            except (FileNotFoundError, NotADirectoryError):
                self._mark_gone(folder)  # deleted during the scan
            except OSError:
                self._unlock_and_list(folder)

    def _unlock_and_list(self, folder: str) -> None:
        """List a folder whose mode denies its owner access. It stays open until the scan's contents are
        read."""
        mode = unlock(self.root_fd, folder, stat.S_IRWXU)
        if mode is None:
            return self._keep_known(folder)
        self.unlocked[folder] = mode
        try:
            self._list(folder, is_new=True)
        except OSError:
            self._keep_known(folder)

    def reset(self) -> None:
        """Start over."""
        self._result, self._is_short = Scan(), False
        self._pending.clear()

    def scan_in(self, changed: FolderChanges, also: Iterable[str]) -> Scan:
        """Return the differences in these folders and in new folders, including everything below them.

        Raises NeedsFullScan, and OSError if one can't be listed.
        """
        self._is_short, self._made = True, changed.made
        for folder in changed.folders.union(also):
            try:
                self._list(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue  # its parent folder has changed, too
        self._list_pending()
        return self._result

    def _list(self, folder: str, *, is_new: bool = False) -> None:
        known_states, result = self._tree.get(folder, {}), self._result
        opens = open_folder if self._is_short else open_for_listing
        handle = opens(self.root_fd, folder)
        names: list[str] = []
        try:
            if is_new:
                self._watch.add(folder, handle)
            with os.scandir(handle) as listing:
                for item in listing:
                    name = item.name
                    try:
                        status = item.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    names.append(name)
                    old = known_states.get(name)
                    if status.st_mode & _KIND_BITS == _FOLDER_BITS:
                        self._handle_folder(join_path(folder, name), status, old, is_new=is_new)
                        continue
                    if status.st_nlink > 1 and is_new:
                        status = self._linked(folder, handle, name, status)
                    if old is None or old.stamp != (
                        status.st_size,
                        status.st_mtime_ns,
                        status.st_ctime_ns,
                        status.st_ino,
                    ):
                        self._handle_change(join_path(folder, name), status, old)
        finally:
            os.close(handle)
        result.paths += len(names)
        if result.paths > self._most_paths:
            raise WorkspaceTooLarge(
                f"this workspace has more than {self._most_paths:,} files and folders",
                hint="start in a smaller folder, or raise rewind.max_files",
            )
        for name in known_states.keys() - set(names):
            self._mark_gone(join_path(folder, name))

    def _linked(self, folder: str, handle: int, name: str, seen: os.stat_result) -> os.stat_result:
        """Watch a file that may be written through other names; return its state since then.

        A short scan keeps what the last whole one learned: a new name is a change of the file.
        """
        if stat.S_ISLNK(seen.st_mode) or (self.is_first and stat.S_ISREG(seen.st_mode)):
            return seen  # nothing can be written through a symlink
        if not (stat.S_ISREG(seen.st_mode) and self._watch.add_file(folder, handle, name)):
            self._result.linked.add(folder)
            return seen
        try:
            now = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return seen
        return now if stat.S_ISREG(now.st_mode) else seen

    def _handle_folder(
        self, path: str, status: os.stat_result, old: KnownState | None, *, is_new: bool
    ) -> None:
        if path in self._skipped:
            if old is not None:
                self._mark_gone(path)
            return
        if status.st_dev != self._device:
            state = make_left_out("another file system", status)
        else:
            state = PathState("folder", read_mode(status), 0, b"")
            if is_new or old is None or old.state.kind != "folder" or path in self._made:
                self._pending.append(path)
        if old is None or old.state != state:
            self._result.settled[path] = state

    def _handle_change(self, path: str, status: os.stat_result, old: KnownState | None) -> None:
        if self._is_short and status.st_nlink > 1:
            raise NeedsFullScan  # the change affects its other names, too
        if old is not None and old.state.kind == "folder":
            self._mark_below_gone(path)
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            self._result.to_read.append((path, status))
            return
        state = make_left_out(_describe_special(status.st_mode), status)
        if old is None or old.state != state:
            self._result.settled[path] = state

    def _mark_gone(self, path: str) -> None:
        self._result.gone.append(path)
        self._mark_below_gone(path)

    def _mark_below_gone(self, path: str) -> None:
        self._result.gone += find_known_below(self._tree, path)

    def _keep_known(self, folder: str) -> None:
        """Keep the known state of a folder that can't be entered. If it has no known state, mark it as left
        out."""
        parent, name = split_path(folder)
        old = self._tree.get(parent, {}).get(name)
        state = self._result.settled.get(folder)
        if state is not None and (old is None or old.state.kind != "folder"):
            reason = b"unreadable|" + oct(state.mode).encode()
            self._result.settled[folder] = PathState("left_out", state.mode, 0, reason)


@contextmanager
def open_scanner(
    root: str, tree: Tree, skipped: frozenset[str], most_paths: int, watch: FolderWatch
) -> Generator[Scanner]:
    """Open a workspace for a scan, and lock again at its end the folders that it unlocks. Raises NotFound."""
    try:
        root_fd = open_root(root)
    except OSError as error:
        raise NotFound(f"the workspace {root} can't be opened: {error.strerror}") from error
    scanner = Scanner(root_fd, tree, skipped, most_paths, watch)
    try:
        yield scanner
    finally:
        for path, mode in reversed(scanner.unlocked.items()):
            lock(root_fd, path, mode)
        os.close(root_fd)


def find_known_below(tree: Tree, folder: str) -> Iterator[str]:
    """Yield every known path below a folder."""
    for name in tree.get(folder, ()):
        path = join_path(folder, name)
        yield path
        yield from find_known_below(tree, path)


def _describe_special(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
