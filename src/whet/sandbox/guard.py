"""Undo a command's changes to protected names that no mount protects.

These are names that did not exist before; names whose file an outside program replaced, as `git config`
does (the kernel then removes the mount); and all names if the engine has no mounts. The check runs when a
command ends. New files are moved aside, never deleted; changed files are restored. A person may have
changed the same file meanwhile, which can't be distinguished; their version is moved aside as well, and
the result says where. Until the command ends, its change is effective (see the threat model). A fresh
repository keeps what `git init` creates.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from whet.late import late_pattern
from whet.regular import read_regular
from whet.sandbox.git_operations import keep_harmless, list_operation_files, read_operation_file
from whet.sandbox.gitlinks import NestedRepositories
from whet.sandbox.nofollow import (
    FolderStamps,
    create_entry,
    folder_stamps,
    parent_of,
    read_content,
    stamp_of,
    walk,
)
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.protected_names import GIT_RUNS
from whet.shell.programs import ProgramWords

_MAX_FILES, _MAX_BYTES, _MAX_HASHED_BYTES = 2_000, 1_000_000, 32_000_000
_SECTION = late_pattern(r"^\s*\[\s*([A-Za-z0-9.-]+)(?:\s+\"[^\"]*\")?\s*\]\s*$")
_KEY = late_pattern(r"^\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?$")
_PLAIN_CONFIG = {
    "core": ProgramWords(
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks"
    ),
    "remote": ProgramWords("url fetch tagopt"),
    "branch": ProgramWords("remote merge rebase"),
    "user": ProgramWords("name email"),
    "extensions": ProgramWords("objectformat refstorage"),
    "submodule": ProgramWords("active url"),
}


class RecordedFile(msgspec.Struct, frozen=True):
    """One file as recorded: its mode, and its bytes or link target. `data` is None for folders and for files
    that are too large to record.

    For a large file, `digest` shows whether its content changed, for a huge one `stamp`; if so, it is only
    moved aside.
    """

    mode: int
    data: bytes | None = None
    stamp: tuple[int, ...] = ()
    digest: bytes = b""

    def equals(self, other: RecordedFile | None) -> bool:
        """Return whether another file has the same mode and content, however much of that was recorded."""
        if other is None or self.mode != other.mode or not (self.digest or other.digest):
            return self == other
        return _content_digest(self) == _content_digest(other)


Shape = Mapping[str, RecordedFile] | None
"""The recorded files of a protected name by their path below it ("" is the name itself), or None if it does
not exist."""
PathStates = Mapping[str, os.stat_result]
"""The state of each path that exists."""


def read_states(paths: Iterable[str]) -> PathStates:
    """Return the states of the paths that exist. Links are not followed."""
    states: dict[str, os.stat_result] = {}
    for path in paths:
        try:
            states[path] = os.lstat(path)
        except OSError:
            continue
    return states


class ProtectedRecord(msgspec.Struct, eq=False):
    """The state of protected names before a running command.

    `mounted` are the names that mounts protect. `shared` are names holding a file with a second hard link,
    through which it can be written. `operations` are the contents of the files of git's stopped operations.
    """

    shapes: dict[str, Shape]
    looked: PathStates
    mounted: Collection[str] = ()
    shared: Collection[str] = ()
    operations: Mapping[str, bytes | None] = {}


# All running commands of this program. A change that one command's end undoes must not be restored by
# another's.
_running: list[ProtectedRecord] = []
_lock = threading.Lock()


class Guard:
    """Guards the protected names of one policy. New files are moved to `aside`.

    `paths` are the names it checks: the protected names, the repositories that hold them, and the hidden
    paths in granted folders.
    """

    def __init__(self, policy: SandboxPolicy, aside: Path) -> None:
        self._git_of = {name: _git_folder_above(name) for name in map(str, policy.protected_paths())}
        self._trees = tuple(
            map(
                str,
                (policy.workspace, *(granted.parent for granted in policy.write if granted.name == ".git")),
            )
        )
        self._roots = tuple(map(str, (policy.workspace, *policy.write)))
        self._entered = NestedRepositories()
        self._aside = aside
        self._known: dict[str, tuple[tuple[int, ...], RecordedFile]] = {}
        self._flat: dict[str, tuple[FolderStamps, dict[str, RecordedFile]]] = {}
        self._shared: set[str] = set()
        self._root_of: dict[str, str] = {}
        names = (*self._git_of, *filter(None, self._git_of.values()), *map(str, policy.hidden_inside()))
        self.paths: tuple[str, ...] = tuple(dict.fromkeys(names))
        self._top = self._roots[0] + "/"
        self._outer = tuple(path for path in self.paths if not path.startswith(self._top))
        self._by_first: dict[str, list[str]] = {}
        for path in self.paths:
            if path.startswith(self._top):
                first = path.removeprefix(self._top).partition("/")[0]
                self._by_first.setdefault(first, []).append(path)

    def read_states(self) -> PathStates:
        """Read the states of the names. This runs three times per command, so names that the workspace
        listing lacks are skipped."""
        try:
            listed = self._by_first.keys() & os.listdir(self._top)
        except OSError:
            return read_states(self.paths)
        return read_states((*self._outer, *(path for first in listed for path in self._by_first[first])))

    def record(self) -> ProtectedRecord:
        """Record the state of the names before a command."""
        with _lock:
            looked = self.read_states()
            shapes: dict[str, Shape] = {}
            for git in _find_replaced(self._git_of.values(), looked):
                shapes[git] = self._record_files(git)  # a second working tree's pointer file, or a link
            for path in self._git_of:
                shapes[path] = self._record_files(path) if path in looked else None
            for path, is_there in self._nested_names().items():
                shapes[path] = self._record_files(path) if is_there else None
            new_record = ProtectedRecord(
                shapes,
                looked,
                shared=self._shared & shapes.keys(),
                operations=dict(self._read_operations()),
            )
            _running.append(new_record)
            return new_record

    def restore(
        self, record: ProtectedRecord, mounts: Collection[str], states: PathStates | None = None
    ) -> list[Path]:
        """Restore the names, except those that a mount has protected all the time. Returns the names that the
        command had changed.

        `mounts` and `states` must be current.
        """
        with _lock:
            states = self.read_states() if states is None else states
            changed: list[str] = []
            elsewhere = _find_replaced(self._git_of.values(), states)
            for path, shape in record.shapes.items():
                git = self._git_of.get(path, "")
                if path in record.mounted and path in mounts and path not in record.shared:
                    continue
                if git in elsewhere and git not in record.shapes:
                    # A link or a file instead of the folder would point git to another configuration.
                    changed += self._move_new(git) if shape is None else ()
                elif shape is None:
                    changed += self._move_new(path) if path in states or path not in self._git_of else ()
                elif _is_same_file(path, record.looked, states) or not self._restore_name(path, shape):
                    continue
                else:
                    changed.append(path)
            for path, is_there in self._nested_names().items():
                changed += self._move_new(path) if is_there and path not in record.shapes else ()
            changed += self._restore_operations(record)
            _update_running(record, changed)
            return [Path(path) for path in dict.fromkeys(changed)]

    def _restore_operations(self, record: ProtectedRecord) -> Iterator[str]:
        """Take what git would run out of the files of its stopped operations, unless it was there before."""
        for path, data in self._read_operations():
            kept = keep_harmless(path, data, record.operations.get(path))
            if kept is None or kept != data:
                self._move(path)
                if kept is not None:
                    self._write_files(path, {"": RecordedFile(stat.S_IFREG | 0o644, kept)})
                yield path

    def _read_operations(self) -> Iterator[tuple[str, bytes | None]]:
        nested = (git for tree in self._trees for git in self._entered.repositories(tree))
        gits = dict.fromkeys((*filter(None, self._git_of.values()), *nested))
        inside = [git for git in gits if any(f"{git}/".startswith(f"{root}/") for root in self._roots)]
        for path in list_operation_files(inside):
            yield path, read_operation_file(path, self._root(path))

    def forget(self, record: ProtectedRecord) -> None:
        """Record that the command and its processes have ended, or that it never started."""
        with _lock:
            _running.remove(record)

    def _restore_name(self, path: str, shape: Mapping[str, RecordedFile]) -> bool:
        """Restore a name. Returns whether it had changed."""
        state = read_states((path,)).get(path)
        # if fewer were recorded, all others are new
        most = _MAX_FILES if len(shape) >= _MAX_FILES else sys.maxsize
        now = self._record_files(path, most) if state is not None else {}
        if now is shape:
            return False
        other = [name for name, file in now.items() if not file.equals(shape.get(name))]
        for name in sorted(other, key=len):
            full_path, was = os.path.join(path, name) if name else path, shape.get(name)
            is_folder = was is not None and stat.S_ISDIR(was.mode) and stat.S_ISDIR(now[name].mode)
            if not is_folder and os.path.lexists(full_path):
                self._move(full_path)
        missing = {name: file for name, file in shape.items() if not file.equals(now.get(name))}
        self._write_files(path, missing)
        return bool(other or missing)

    def _nested_names(self) -> dict[str, bool]:
        """Return the names in the nested repositories that outside programs enter by themselves, and whether
        each exists."""
        git_folders = (git for tree in self._trees for git in self._entered.repositories(tree))
        # A pointer file names a working tree's repository. Repositories outside the workspace are not ours to
        # restore.
        inside = [
            git
            for git in dict.fromkeys(git_folders)
            if any(f"{git}/".startswith(f"{root}/") for root in self._roots)
        ]
        names = [os.path.join(git, name) for git in inside for name in GIT_RUNS]
        looked = read_states(names)
        return {name: name in looked for name in names}

    def _move_new(self, path: str) -> list[str]:
        """Move aside files created under a name, except those that a fresh repository has."""
        if not os.path.lexists(path):
            return []
        target, new_paths = Path(path), [path]
        if target.name == "hooks" and _is_plain_folder(target):
            new_paths = [str(hook) for hook in target.iterdir() if not hook.name.endswith(".sample")]
        elif (
            _is_own(target)
            if target.name == "commondir"
            else "config" in target.name and _is_plain_config(target)
        ):
            new_paths = []
        for new_path in new_paths:
            self._move(new_path)
        return new_paths

    def _record_files(self, path: str, most: int = _MAX_FILES) -> dict[str, RecordedFile]:
        files: dict[str, RecordedFile] = {}
        bytes_left = _MAX_BYTES
        with contextlib.suppress(OSError), parent_of(path, self._root(path)) as (above, last):
            stamps = folder_stamps(above, last)
            cached = self._flat.get(path)
            if stamps and cached is not None and cached[0] == stamps and len(cached[1]) < most:
                return cached[1]
            for name, folder, entry, state in walk(above, last):
                try:
                    file = self._record_file(
                        f"{path}/{name}" if name else path, (folder, entry), state, bytes_left
                    )
                except OSError:
                    continue
                bytes_left -= len(file.data or b"")
                files[name] = file
                if state.st_nlink > 1 and stat.S_ISREG(state.st_mode):
                    self._shared.add(path)
                if len(files) >= most:
                    break
            if stamps and len(files) == len(stamps):  # everything in it could be read
                self._flat[path] = (stamps, files)
        return files

    def _root(self, path: str) -> str:
        """Return the outermost writable folder around a path, which commands can't replace."""
        if path not in self._root_of:
            around = (root for root in self._roots if path.startswith(root + "/"))
            self._root_of[path] = min(around, key=len, default=os.path.dirname(path))
        return self._root_of[path]

    def _record_file(
        self, path: str, location: tuple[int, str], state: os.stat_result, most: int
    ) -> RecordedFile:
        """Return the recorded form of a file. A file with an unchanged stamp is not read again: programs
        can't set the change time."""
        stamp = stamp_of(state)
        cached = self._known.get(path)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        is_huge = state.st_size > max(most, _MAX_HASHED_BYTES)
        data = None if is_huge else read_content(*location, state.st_mode, max(most, _MAX_HASHED_BYTES))
        file = RecordedFile(state.st_mode, data, stamp if is_huge else ())
        if data is not None and len(data) > most:
            file = RecordedFile(state.st_mode, digest=_content_digest(file))
        self._known[path] = (stamp, file)
        return file

    def _move(self, path: str) -> None:
        self._aside.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder_aside = tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=self._aside)
        with contextlib.suppress(OSError), parent_of(path, self._root(path)) as (folder, name):
            source = f"/proc/self/fd/{folder}/{name}"
            try:
                shutil.move(source, os.path.join(folder_aside, name))
            except OSError:
                shutil.rmtree(source) if _is_plain_folder(Path(source)) else os.unlink(source)

    def _write_files(self, path: str, shape: Mapping[str, RecordedFile]) -> None:
        """Write the recorded files of a name."""
        for name, file in shape.items():
            full_path = os.path.join(path, name) if name else path
            if file.stamp or file.digest:
                continue
            with (
                contextlib.suppress(OSError),
                parent_of(full_path, self._root(full_path), make=True) as (folder, last),
            ):
                create_entry(folder, last, file.mode, file.data)


def _content_digest(file: RecordedFile) -> bytes:
    return file.digest or (b"" if file.data is None else hashlib.blake2b(file.data).digest())


def _is_same_file(path: str, before: PathStates, now: PathStates) -> bool:
    """Return whether a name is the same unmodified regular file. Programs can't set the change time."""
    was, state = before.get(path), now.get(path)
    if was is None or state is None or not stat.S_ISREG(state.st_mode):
        return False
    return stamp_of(was) == stamp_of(state)


def _update_running(record: ProtectedRecord, changed: Iterable[str]) -> None:
    """Update the records of commands that still run with the state before this one, since they may have
    started with its changes."""
    for path in changed:
        for other in _running:
            if path in other.shapes:
                other.shapes[path] = record.shapes.get(path)


def _git_folder_above(name: str) -> str:
    """Return the git folder that holds a protected name, or an empty string."""
    above = os.path.dirname(name)
    return above if os.path.basename(above) == ".git" else ""


def _find_replaced(gits: Iterable[str], looked: PathStates) -> set[str]:
    """Return the git folders that were replaced by a link or a file."""
    return {git for git in gits if git in looked and not stat.S_ISDIR(looked[git].st_mode)}


def _is_plain_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_plain_config(path: Path) -> bool:
    """Return whether a git configuration is a file with only the settings of a fresh or cloned repository."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        lines = read_regular(path, _MAX_BYTES).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    section = ""
    for line in filter(str.strip, lines):
        if (match := _SECTION.match(line)) is not None:
            section = match.group(1).lower()
        elif not _is_plain_line(line, section):
            worktree = re.match(r"\s*worktree\s*=\s*(\S+)\s*$", line) if section == "core" else None
            if worktree is None or not _is_submodules(path, worktree[1]):
                return False
    return True


def _is_submodules(config: Path, tree: str) -> bool:
    """Return whether a repository's working tree setting points to a submodule's folder in the repository
    that contains it."""
    above, modules, _ = str(config).partition("/.git/modules/")
    return bool(modules) and (config.parent / tree).resolve().is_relative_to(above)


def _is_own(commondir: Path) -> bool:
    """Return whether a second working tree's pointer leads to the repository that contains its folder."""
    with contextlib.suppress(OSError):
        return commondir.parts[-3] == "worktrees" and read_regular(commondir, 100).strip() == b"../.."
    return False


def _is_plain_line(line: str, section: str) -> bool:
    key = _KEY.match(line)
    goes_on = line.rstrip().endswith("\\")
    return key is not None and not goes_on and key.group(1).lower() in _PLAIN_CONFIG.get(section, ())
