"""Replace the files of a workspace that other folders share by hard links with copies.

uv and pnpm link packages from one cache into every project, `git clone --local` links a repository's objects.
A command that may write such a file in the workspace could change the other folders' files, which no policy
allows. So a file with more links than the workspace holds is replaced by a copy before a command can reach
it: same bytes, mode, times and attributes, atomically. Links within the workspace stay links to each other.

A command that only reads runs with the workspace read-only, so nothing is copied for it. Folders with many
linked files are held read-only until a command is about to write there (`tree_gate.py`).

A complete scan stats every path: another program may link a file of the workspace elsewhere, which changes
no folder in it. Between complete scans, only folders whose times changed are listed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from whet.contract.errors import ToolError
from whet.sandbox.nofollow import parent_of
from whet.sandbox.policy import SandboxPolicy, git_programs, shorten

_WHOLE_S, _AGAIN_S, _SHARE = 60.0, 1.0, 50
"""Scan all files at most once in `_WHOLE_S` and folders at most once in `_AGAIN_S`, and wait after each scan
`_SHARE` times as long as it took."""
_MANY, _MAX_SPLIT = 200, 8
"""Fewer linked files than `_MANY` are copied at once. A folder with more than `_MAX_SPLIT` folders that hold
some is held as a whole."""
_CHUNK_BYTES = 1 << 30
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FileId = tuple[int, int]


class _SeenFolder(msgspec.Struct, frozen=True):
    """A folder's times when it was listed, and its files with more than one link: (name, file, links)."""

    stamp: tuple[int, int, int]
    files: tuple[tuple[str, FileId, int], ...]
    folders: tuple[str, ...]


class WorkspaceLinks:
    """The hard links of one workspace and its own repository. `hidden` are folders in it that commands can't
    reach: a link in one of them counts as outside. Thread-safe."""

    def __init__(
        self, roots: tuple[str, ...], hidden: frozenset[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._roots = roots
        self._clock = clock
        self._hidden = hidden
        self._folders: dict[str, _SeenFolder] = {}
        self._lock = threading.Lock()
        self._whole_at = self._next_at = float("-inf")
        self._held = frozenset[str]()
        self._trees: tuple[str, ...] | None = None
        self._is_pending = False

    def separate(self, held: frozenset[str] = frozenset()) -> int:
        """Replace the files that other places hold, too; return how many names were replaced. Those in
        `held` folders stay as they are: no command can write there.

        Raises ToolError if a file can't be copied, or a folder not recorded."""
        self._expect_writes(held)
        with self._lock:
            is_due = self._look_again() or self._is_pending or not self._held <= held
            self._held, self._is_pending = held, False
            return self._replace_shared(held) if is_due else 0

    def find_trees(self) -> tuple[str, ...]:
        """Return the folders that hold so many linked files that copying them takes long, as the first look
        has found them."""
        with self._lock:
            if self._trees is None:
                self._is_pending = self._look_again()
                shared = [folder for folder, _, _ in self._shared(frozenset())]
                self._trees = tuple(_large_trees(self._roots[0], Counter(shared)))
            return self._trees

    def release(self, tree: str) -> None:
        """Replace the linked files of a folder, in which a command is about to write. Raises ToolError."""
        self.expect_write(tree)
        with self._lock:
            self._trees = tuple(path for path in self._trees or () if path != tree)
            self._next_at = float("-inf")  # another program may have linked more
            self._look_again()
            self._held -= {tree}
            self._replace_shared(self._held)

    def hold_trees(self, record: Callable[[frozenset[str]], None]) -> frozenset[str]:
        """Return the folders of `find_trees` below the workspace. Before a command writes in one or removes
        a name in it, `record` is called with those in which none can write still. If it raises ToolError, the
        command does not write."""
        _recorders.setdefault(self._roots[0], []).append(record)
        return self._relative_to_root(self.find_trees())

    def expect_write(self, tree: str) -> None:
        """Have a folder of `find_trees` recorded, in which a command changes something next. Raises
        ToolError."""
        self._expect_writes(frozenset(self._trees or ()) - {tree})

    def _expect_writes(self, held: frozenset[str]) -> None:
        for record in tuple(_recorders.get(self._roots[0], ())):
            record(self._relative_to_root(held))

    def _relative_to_root(self, trees: Iterable[str]) -> frozenset[str]:
        return frozenset(tree.removeprefix(f"{self._roots[0]}/") for tree in trees)

    def _look_again(self) -> bool:
        """Scan what may have changed if a scan is due. Returns whether anything has changed."""
        began = self._clock()
        is_whole = began >= self._whole_at
        if began < self._next_at:
            return False
        known = {} if is_whole else self._folders
        self._folders = {}
        is_new = False
        for root in self._roots:
            is_new |= self._list(root, known)
        now = self._clock()
        pause_s = _SHARE * (now - began)
        self._next_at = now + max(_AGAIN_S, pause_s)
        self._whole_at = now + max(_WHOLE_S, pause_s) if is_whole else self._whole_at
        return is_new

    def expect_changes(self) -> None:
        """Have the next command scan every file, however recent the last scan is."""
        with self._lock:
            self._whole_at = self._next_at = float("-inf")

    def _list(self, root: str, known: dict[str, _SeenFolder]) -> bool:
        """Visit every folder below a root. Returns whether any was listed anew."""
        waiting, is_new = [root], False
        while waiting:
            path = waiting.pop()
            if path in self._folders or path in self._hidden:
                continue
            try:
                stamp = _stamp(os.stat(path, follow_symlinks=False))
                seen = known.get(path)
                if seen is None or seen.stamp != stamp:
                    seen, is_new = _listed(path, stamp), True
            except OSError:
                continue  # removed, or closed to its owner and so to commands
            self._folders[path] = seen
            waiting.extend(f"{path}/{name}" for name in seen.folders)
        return is_new

    def _replace_shared(self, held: frozenset[str]) -> int:
        names: dict[FileId, list[str]] = {}
        for folder, name, file in self._shared(held):
            names.setdefault(file, []).append(f"{folder}/{name}")
        with _Parents(self._roots) as parents:
            return sum(_replace(parents, paths, file) for file, paths in names.items())

    def _shared(self, held: frozenset[str]) -> list[tuple[str, str, FileId]]:
        """Return folder, name and file of each name of the files that have one outside the workspace, and one
        outside the `held` folders."""
        counts: Counter[FileId] = Counter()
        links: dict[FileId, int] = {}
        inside: list[_SeenFolder] = []
        for folder, seen in self._folders.items():
            if held and _is_in(folder, held):
                inside.append(seen)
                continue
            for name, file, count in seen.files:
                if f"{folder}/{name}" in self._hidden:
                    continue  # no command gets this name, and a copy would be read by its path
                counts[file] += 1
                links[file] = max(count, links.get(file, 0))
        counts.update(file for seen in inside for _, file, _ in seen.files if file in links)
        shared = {file for file, count in links.items() if count > counts[file]}
        return [
            (folder, name, file)
            for folder, seen in (self._folders.items() if shared else ())
            for name, file, _ in seen.files
            if file in shared and f"{folder}/{name}" not in self._hidden
        ]


class _Parents:
    """Opens the folders of paths. The last one stays open, for the next name in it."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots
        self._path = ""
        self._open = contextlib.ExitStack()
        self._handle = -1

    def __enter__(self) -> _Parents:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def open_parent(self, path: str) -> tuple[int, str]:
        """Return the descriptor of a path's folder and the name in it. Raises OSError."""
        above, _, name = path.rpartition("/")
        if above != self._path:
            self._open.close()
            self._path = ""
            root = max((root for root in self._roots if path.startswith(root + "/")), key=len)
            self._handle, _ = self._open.enter_context(parent_of(path, root))
            self._path = above
        return self._handle, name


def _replace(parents: _Parents, paths: list[str], file: FileId) -> int:
    """Replace the names of one file by links to one copy of it."""
    first = ""
    for path in paths:
        try:
            folder, name = parents.open_parent(path)
            is_replaced = _relink(folder, name, file, first) if first else _copy(folder, name, file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ToolError(
                f"the sandbox can't be started: {shorten(path)} is also in another folder (a hard link),"
                f" and it can't be copied: {error.strerror}",
                hint="make room on the disk, or remove that file and install it again",
            ) from error
        first = first or (path if is_replaced else "")
    return len(paths) if first else 0


def _large_trees(root: str, shared: Mapping[str, int]) -> Iterator[str]:
    """Yield the lowest folders that hold many linked files; `shared` has their number in each folder."""
    below: Counter[str] = Counter()
    children: dict[str, set[str]] = {}
    for lowest, count in shared.items():
        folder = lowest
        while folder.startswith(f"{root}/"):
            below[folder] += count
            above = folder.rpartition("/")[0]
            children.setdefault(above, set()).add(folder)
            folder = above
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if folder != root and (folder in shared or len(children[folder]) > _MAX_SPLIT):
            if below[folder] >= _MANY:
                yield folder
        else:
            waiting += children.get(folder, ())


def _is_in(folder: str, held: frozenset[str]) -> bool:
    return any(folder == tree or folder.startswith(f"{tree}/") for tree in held)


def links_of(policy: SandboxPolicy) -> WorkspaceLinks:
    """Return the links of a policy's workspace, which the jails of this process share. Of what else may be
    written, the workspace's repository is a part of it; a folder that a person opened is their choice."""
    others = (str(folder) for folder in policy.write if git_programs(folder))
    roots = tuple(dict.fromkeys((str(policy.workspace), *others)))
    key = (roots, frozenset(map(str, policy.hidden_inside())))
    with _lock:
        if key not in _known:
            _known[key] = WorkspaceLinks(*key)
        return _known[key]


_recorders: dict[str, list[Callable[[frozenset[str]], None]]] = {}
"""By workspace: what records folders before a command may write in them. Each home has a record of it."""
_known: dict[tuple[tuple[str, ...], frozenset[str]], WorkspaceLinks] = {}
_lock = threading.Lock()


def _stamp(state: os.stat_result) -> tuple[int, int, int]:
    if not stat.S_ISDIR(state.st_mode):
        raise NotADirectoryError
    return (state.st_ino, state.st_mtime_ns, state.st_ctime_ns)


def _listed(path: str, stamp: tuple[int, int, int]) -> _SeenFolder:
    """List a folder. Raises OSError if it was replaced since its stamp was read."""
    handle = os.open(path, _FOLDER)
    try:
        if os.fstat(handle).st_ino != stamp[0]:
            raise FileNotFoundError
        with os.scandir(handle) as entries:
            folders: list[str] = []
            files = tuple(_linked(entries, folders))
    finally:
        os.close(handle)
    return _SeenFolder(stamp, files, tuple(folders))


def _linked(entries: Iterable[os.DirEntry[str]], folders: list[str]) -> Iterator[tuple[str, FileId, int]]:
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        elif entry.is_file(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                if state.st_nlink > 1 and _may_be_written(state):
                    yield entry.name, (state.st_dev, state.st_ino), state.st_nlink


def _may_be_written(state: os.stat_result) -> bool:
    """Return whether a command could write a file, which has no more rights than its owner, group and
    others."""
    return state.st_uid == os.geteuid() or bool(state.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _copy(folder: int, name: str, file: FileId) -> bool:
    """Put a copy in a file's place; return whether it is still that file, and is replaced. Raises OSError."""
    temporary = f".whet-{os.urandom(8).hex()}.tmp"
    source = os.open(name, _READ, dir_fd=folder)
    try:
        state = os.fstat(source)
        if not stat.S_ISREG(state.st_mode) or (state.st_dev, state.st_ino) != file:
            return False
        target = os.open(temporary, _NEW, 0o600, dir_fd=folder)
        try:
            _fill(source, target, state)
            return _take_name(folder, temporary, name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(target)
    finally:
        os.close(source)


def _fill(source: int, target: int, state: os.stat_result) -> None:
    """Copy bytes (by a reflink where the file system has them), attributes, owner, mode and times."""
    _copy_bytes(source, target)
    for attribute in os.listxattr(source):
        with contextlib.suppress(OSError):
            os.setxattr(target, attribute, os.getxattr(source, attribute))
    if (state.st_uid, state.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.fchown(target, state.st_uid, state.st_gid)
    os.fchmod(target, stat.S_IMODE(state.st_mode))
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def _copy_bytes(source: int, target: int) -> None:
    if hasattr(os, "copy_file_range"):
        try:
            while os.copy_file_range(source, target, _CHUNK_BYTES):
                pass
        except OSError:
            os.lseek(source, 0, os.SEEK_SET)
            os.lseek(target, 0, os.SEEK_SET)
        else:
            return
    while data := os.read(source, 1 << 20):
        unwritten = memoryview(data)
        while unwritten:
            unwritten = unwritten[os.write(target, unwritten) :]


def _relink(folder: int, name: str, file: FileId, first: str) -> bool:
    """Put a link to the copy in a file's place. Raises OSError."""
    temporary = f".whet-{os.urandom(8).hex()}.tmp"
    os.link(first, temporary, dst_dir_fd=folder, follow_symlinks=False)
    try:
        return _take_name(folder, temporary, name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _take_name(folder: int, temporary: str, name: str, file: FileId) -> bool:
    state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if (state.st_dev, state.st_ino) != file:
        os.unlink(temporary, dir_fd=folder)
        return False
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True
