"""Synchronise a workspace with another machine: local changes go there before a command, its changes come
back after it.

Files from there must not lead out of the workspace or start programs here: protected names are kept and
links that lead out are skipped. If both sides changed a file, the local version is kept and the file is
reported. The other machine needs a shell, GNU tar and GNU find.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import msgspec

from whet.contract.texts import from_json
from whet.sandbox.backend import quote_folder
from whet.sandbox.nofollow import create_entry, parent_of
from whet.sandbox.protected_names import GIT_RUNS

_LIST = r"find . -mindepth 1 -printf '%P\0%y\0%s\0%T@\0%m\0%l\0'"
_LIMIT_S = 600


class SyncFailed(Exception):
    """Raised if the other side failed to carry out a request; the message says why."""


class SyncEntry(msgspec.Struct, frozen=True, array_like=True):
    """One path on one side: its kind as find prints it, and the values that show a change."""

    kind: str
    size: int = 0
    time: str = ""
    mode: str = ""
    target: str = ""


Listing = dict[str, SyncEntry]


class SyncState(msgspec.Struct, frozen=True):
    """The state of both sides after the last synchronisation."""

    here: Listing = {}
    there: Listing = {}


class SyncedTree:
    """One workspace and its path `there`. `remote` returns the command line that runs shell text there."""

    def __init__(
        self,
        workspace: Path,
        there: str,
        state_file: Path,
        protected: Iterable[str],
        remote: Callable[[str], list[str]],
        *,
        timeout_s: float = _LIMIT_S,
    ) -> None:
        self._workspace = workspace
        self._there = quote_folder(there)
        self._kept = state_file
        self._protected = frozenset(protected)
        self._remote = remote
        self._timeout_s = timeout_s
        self._sent: Listing = {}
        self._baseline: Listing = {}

    def push(self) -> None:
        """Send local changes to the other machine. Raises SyncFailed."""
        with self._exclusive_lock():
            state = self._read_state()
            local = list_tree(self._workspace)
            changed = [path for path, entry in local.items() if state.here.get(path) != entry]
            gone = [path for path in state.here if path not in local]
            there = state.there
            if changed or gone or not there:
                there = self._send(changed, gone, state.there)
            self._sent, self._baseline = local, there
            self._write_state(SyncState(local, there))

    def pull(self) -> list[str]:
        """Bring back the changes from the other machine. Returns a line for each path that was skipped.
        Raises SyncFailed."""
        with self._exclusive_lock():
            there = _read_listing(self._ask(f"cd {self._there} && {_LIST}"))
            changed = [path for path, entry in there.items() if self._baseline.get(path) != entry]
            gone = [path for path in self._baseline if path not in there]
            before = list_tree(self._workspace)
            both = [path for path in (*changed, *gone) if before.get(path) != self._sent.get(path)]
            protected = [path for path in (*changed, *gone) if self._is_protected(path, there.get(path))]
            skipped = {*both, *protected}
            failed = self._fetch([path for path in changed if path not in skipped], there)
            self._remove([path for path in gone if path not in skipped])
            local = {path: entry for path, entry in list_tree(self._workspace).items() if path not in skipped}
            self._write_state(SyncState(local, there))
        lines = [f"{path}: changed here meanwhile, and stays as it is here" for path in both]
        lines += [
            f"{path}: may start programs here, and stays as it is" for path in protected if path not in both
        ]
        return lines + failed

    def _is_protected(self, path: str, entry: SyncEntry | None) -> bool:
        path = path.casefold()  # the local file system may ignore case
        if path.rpartition("/")[2] == ".git":
            return entry is None or entry.kind != "d"
        is_link = entry is not None and entry.kind == "l"
        names = (
            os.path.relpath(name, self._workspace) if name[:1] == "/" else name for name in self._protected
        )
        return (
            _is_git_execution_path(path)
            # git creates no links there, and a link's target is not git's own
            or (is_link and "/.git/" in f"/{path}")
            or any(
                path == name or path.startswith(f"{name}/") or (is_link and name.startswith(f"{path}/"))
                for name in map(str.casefold, names)
            )
        )

    def _send(self, changed: list[str], gone: list[str], baseline: Listing) -> Listing:
        """Send the paths and return the listing of the other side afterwards.

        Changes that others made there meanwhile keep their old entry, so that they are brought back.
        """
        self._ask(f"mkdir -p {self._there} && cd {self._there} && xargs -0 rm -rf --", _join_with_nul(gone))
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in changed:
                with contextlib.suppress(FileNotFoundError):
                    archive.add(self._workspace / path, path, recursive=False)
        unpack = "tar -x --unlink-first --no-same-owner -p -f -"
        listed = _read_listing(self._ask(f"cd {self._there} && {unpack} && {_LIST}", packed.getvalue()))
        if not baseline:
            return listed
        sent = {*changed, *gone}
        return {path: entry for path, entry in listed.items() if path in sent or path not in baseline} | {
            path: entry for path, entry in baseline.items() if path not in sent
        }

    def _fetch(self, paths: list[str], there: Listing) -> list[str]:
        if not paths:
            return []
        pack = "tar -c --no-recursion --null --verbatim-files-from -T - -f -"
        packed = self._ask(f"cd {self._there} && {pack}", _join_with_nul(paths))
        requested = set(paths)
        failed: list[str] = []
        try:
            with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
                for member in archive:
                    name = member.name.removeprefix("./")
                    if name not in requested:
                        failed.append(f"{name}: was not asked for, and is left there")
                        continue
                    try:
                        self._write_member(archive, member, (name, there[name]))
                    except (tarfile.TarError, OSError, KeyError) as error:
                        failed.append(f"{name}: can't be brought back: {error}")
        except tarfile.TarError as error:
            raise SyncFailed(f"what came back is not an archive: {error}") from error
        return failed

    def _write_member(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, named_entry: tuple[str, SyncEntry]
    ) -> None:
        """Write one changed path. No link on its way is followed. Raises OSError, and TarError for a link
        that leads out."""
        name, entry = named_entry
        if entry.kind != ("d" if member.isdir() else "l" if member.issym() else "f"):
            raise OSError("it is something else by now")
        safe = tarfile.data_filter(member, str(self._workspace))
        with parent_of(f"{self._workspace}/{name}", str(self._workspace), make=True) as (folder, last):
            _make_way(folder, last, entry.kind)
            if entry.kind == "d":
                with contextlib.suppress(FileExistsError):
                    os.mkdir(last, dir_fd=folder)
                return
            if entry.kind == "l":
                create_entry(folder, last, stat.S_IFLNK, os.fsencode(safe.linkname))
                return
            data = archive.extractfile(member)
            if data is None:
                raise OSError("it is not a file")
            create_entry(folder, last, stat.S_IFREG | (safe.mode or 0o600), data.read())
            os.utime(last, (member.mtime, member.mtime), dir_fd=folder, follow_symlinks=False)

    def _remove(self, paths: list[str]) -> None:
        for path in sorted(paths, key=len, reverse=True):
            with (
                contextlib.suppress(OSError),
                parent_of(f"{self._workspace}/{path}", str(self._workspace)) as (folder, name),
            ):
                is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
                os.rmdir(name, dir_fd=folder) if is_folder else os.unlink(name, dir_fd=folder)

    def _ask(self, text: str, input_data: bytes = b"") -> bytes:
        command = self._remote(text)
        try:
            done = subprocess.run(
                command, input=input_data, capture_output=True, timeout=self._timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SyncFailed(f"the host did not answer within {self._timeout_s:g} s") from error
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise SyncFailed(lines[-1] if lines else f"exit {done.returncode}")
        return done.stdout

    @contextlib.contextmanager
    def _exclusive_lock(self) -> Generator[None]:
        with open(self._kept.with_suffix(".lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read_state(self) -> SyncState:
        try:
            return from_json(self._kept.read_bytes(), SyncState)
        except (OSError, msgspec.DecodeError):
            return SyncState()

    def _write_state(self, state: SyncState) -> None:
        new = self._kept.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(state))
        new.replace(self._kept)


def _is_git_execution_path(path: str) -> bool:
    """Return whether some repository's git runs programs through a path: at any depth, and in submodules and
    second working trees."""
    _, git, below = f"/{path}".rpartition("/.git/")
    parts = below.split("/") if git else [""]
    if parts[0] in ("modules", "worktrees"):
        return any(part in GIT_RUNS for part in parts[2:])
    return parts[0] in GIT_RUNS


def list_tree(root: Path) -> Listing:
    """Return every file, folder and link below `root`."""
    entries: Listing = {}
    stack = [""]
    while stack:
        folder = stack.pop()
        with contextlib.suppress(OSError), os.scandir(root / folder) as items:
            for item in items:
                path = f"{folder}/{item.name}" if folder else item.name
                state = item.stat(follow_symlinks=False)
                mode = f"{stat.S_IMODE(state.st_mode):o}"
                if stat.S_ISLNK(state.st_mode):
                    entries[path] = SyncEntry("l", target=os.readlink(item.path))
                elif stat.S_ISDIR(state.st_mode):
                    entries[path] = SyncEntry("d", mode=mode)
                    stack.append(path)
                elif stat.S_ISREG(state.st_mode):
                    entries[path] = SyncEntry("f", state.st_size, str(state.st_mtime_ns), mode)
    return entries


def _read_listing(output: bytes) -> Listing:
    """Parse find's output. Raises SyncFailed if it is malformed, because the other side is not trusted."""
    fields = os.fsdecode(output).split("\0")[:-1]
    entries: Listing = {}
    try:
        for path, kind, size, time, mode, target in zip(*[iter(fields)] * 6, strict=True):
            if any(part in ("", ".", "..") for part in path.split("/")):
                raise SyncFailed(f"{path!r} is not a path in a workspace")
            if kind == "f":
                entries[path] = SyncEntry(kind, int(size), time, mode)
            elif kind in ("d", "l"):
                entries[path] = SyncEntry(kind, mode=mode if kind == "d" else "", target=target)
    except ValueError as error:
        raise SyncFailed("its files can't be listed") from error
    return entries


def _make_way(folder: int, name: str, kind: str) -> None:
    """Remove the existing entry under a name, unless it is a folder and stays one."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
        elif kind != "d":
            shutil.rmtree(name, dir_fd=folder)


def _join_with_nul(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
