"""Takes back what a command made of protected names that no mount holds: those that were not there; those
that a program outside has replaced by another file, as `git config` does (the kernel then takes the mount
away); and, where an engine has no mounts of its own, all of them.

Looked at when a command ends. What it made is moved aside, never deleted; what it changed is put back as it
was. A person may have changed the same meanwhile, which nothing tells apart: theirs is kept aside, too, and
the result says where. Between the change and the command's end it stands: that is said in the threat model.
A fresh repository keeps what `git init` itself makes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from whet.sandbox.gitlinks import Entered
from whet.sandbox.policy import GIT_RUNS, SandboxPolicy

_MOST_FILES, _MOST_BYTES = 300, 1_000_000
_SECTION = re.compile(r"^\s*\[\s*([A-Za-z0-9.-]+)(?:\s+\"[^\"]*\")?\s*\]\s*$")
_KEY = re.compile(r"^\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?$")
_PLAIN_CONFIG = {
    "core": {
        "repositoryformatversion",
        "filemode",
        "bare",
        "logallrefupdates",
        "ignorecase",
        "precomposeunicode",
        "symlinks",
    },
    "remote": {"url", "fetch", "tagopt"},
    "branch": {"remote", "merge", "rebase"},
    "user": {"name", "email"},
    "extensions": {"objectformat", "refstorage"},
    "submodule": {"active", "url"},
}


class Held(msgspec.Struct, frozen=True):
    """One file as it was: its mode, and its bytes or where it links to; a folder has None. So has a file that
    is too large to be held: `stamp` tells whether it was changed, and then it is only moved aside."""

    mode: int
    data: bytes | None = None
    stamp: tuple[int, ...] = ()


Shape = Mapping[str, Held] | None
"""What a protected name holds, by paths below it ("" is itself); None: it is not there."""


class Before(msgspec.Struct, frozen=True):
    """How protected names were before a command, and which of them mounts held."""

    shapes: Mapping[Path, Shape]
    mounted: Collection[Path]


class Guard:
    """Looks after one policy's protected names. `aside` takes what was made."""

    def __init__(self, policy: SandboxPolicy, aside: Path) -> None:
        self._names = policy.protected_paths()
        self._trees = (policy.workspace, *(one.parent for one in policy.write if one.name == ".git"))
        self._entered = Entered()
        self._aside = aside
        self._known: dict[Path, tuple[tuple[int, ...], Held]] = {}

    def record(self, mounts: Collection[Path]) -> Before:
        """Note how the names are before a command; `mounts` are the places that something is mounted on."""
        found: dict[Path, Shape] = {}
        for path in self._names:
            if _leads_elsewhere(path.parent):
                found[path.parent] = self._shape(path.parent)  # a second working tree's file, or a link
        for path in (*self._names, *self._below()):
            found[path] = self._shape(path) if os.path.lexists(path) else None
        return Before(found, [path for path in found if path in mounts])

    def restore(self, was: Before, mounts: Collection[Path]) -> list[Path]:
        """Put the names back as they were, but those that a mount has held all the time; gives those that a
        command had changed."""
        changed: list[Path] = []
        before = was.shapes
        for path, shape in before.items():
            if path in was.mounted and path in mounts:
                continue
            is_own = path in self._names and path.parent not in before
            if is_own and _leads_elsewhere(path.parent):
                # A link or a file in its place would lead git to another folder's configuration.
                if os.path.lexists(path.parent) and shape is None:
                    changed.append(path.parent)
                    self._move(path.parent)
            elif shape is None:
                changed += self._take(path)
            elif (now := self._shape(path)) != shape:
                changed.append(path)
                for name in sorted(now, key=len, reverse=True):
                    if now[name] != shape.get(name) and os.path.lexists(path / name):
                        self._move(path / name)
                _put(path, {name: held for name, held in shape.items() if now.get(name) != held})
        for path in self._below():
            changed += self._take(path) if path not in before else ()
        return list(dict.fromkeys(changed))

    def _below(self) -> list[Path]:
        """Give the names of the repositories that git enters from the workspace's, as they are now."""
        found = (git for tree in self._trees for git in self._entered.repositories(tree))
        return [git / name for git in dict.fromkeys(found) for name in GIT_RUNS]

    def _take(self, path: Path) -> list[Path]:
        """Move aside what was made under a name, but what a fresh repository has by itself."""
        if not os.path.lexists(path):
            return []
        if path.name == "hooks" and _is_plain_folder(path):
            made = [one for one in path.iterdir() if not one.name.endswith(".sample")]
        elif path.name in ("config", "config.worktree") and _is_plain_config(path):
            made = []
        else:
            made = [path]
        for one in made:
            self._move(one)
        return made

    def _shape(self, path: Path) -> dict[str, Held]:
        found: dict[str, Held] = {}
        left = _MOST_BYTES
        for name, one in _walk(path):
            try:
                held = self._held(one, left)
            except OSError:
                continue
            left -= len(held.data or b"")
            found[name] = held
            if len(found) >= _MOST_FILES:
                break
        return found

    def _held(self, path: Path, most: int) -> Held:
        """Give a file as it is; one whose stamp is the same as before is not read again. No program can set
        the time of a change back."""
        state = path.lstat()
        stamp = (state.st_ino, state.st_ctime_ns, state.st_mtime_ns, state.st_size, state.st_mode)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        data = _content(path, state.st_mode, most) if state.st_size <= most else None
        is_whole = data is not None or not stat.S_ISREG(state.st_mode)
        held = Held(state.st_mode, data, () if is_whole else stamp)
        self._known[path] = (stamp, held)
        return held

    def _move(self, path: Path) -> None:
        self._aside.mkdir(parents=True, exist_ok=True, mode=0o700)
        place = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=self._aside)) / path.name
        try:
            shutil.move(path, place)
        except OSError:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if _is_plain_folder(path) else path.unlink()


def _leads_elsewhere(path: Path) -> bool:
    """Whether a link or a file stands where a repository would."""
    return path.name == ".git" and os.path.lexists(path) and not _is_plain_folder(path)


def _is_plain_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_plain_config(path: Path) -> bool:
    """Whether a git configuration is a file that only says what every fresh or cloned repository says."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    section = ""
    for line in filter(str.strip, lines):
        if (match := _SECTION.match(line)) is not None:
            section = match.group(1).lower()
        elif not _is_plain_line(line, section):
            is_tree = section == "core" and re.match(r"\s*worktree\s*=", line)  # as every submodule's says
            if not is_tree or "modules" not in path.parts:
                return False
    return True


def _is_plain_line(line: str, section: str) -> bool:
    key = _KEY.match(line)
    goes_on = line.rstrip().endswith("\\")
    return key is not None and not goes_on and key.group(1).lower() in _PLAIN_CONFIG.get(section, ())


def _content(path: Path, mode: int, most: int) -> bytes | None:
    if stat.S_ISLNK(mode):
        return os.readlink(path).encode()
    if not stat.S_ISREG(mode) or most <= 0:
        return None
    with open(path, "rb") as file:
        return file.read(most)


def _walk(path: Path) -> Iterator[tuple[str, Path]]:
    yield "", path
    if _is_plain_folder(path):
        for folder, folders, files in os.walk(path):
            for name in sorted((*folders, *files)):
                one = Path(folder) / name
                yield str(one.relative_to(path)), one


def _put(path: Path, shape: Mapping[str, Held]) -> None:
    """Write a name as it was."""
    for name, held in shape.items():
        place = path / name if name else path
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISDIR(held.mode):
                place.mkdir(exist_ok=True)
            elif stat.S_ISLNK(held.mode):
                place.symlink_to((held.data or b"").decode())
            elif held.stamp:
                continue
            else:
                place.write_bytes(held.data or b"")
            if not stat.S_ISLNK(held.mode):
                place.chmod(stat.S_IMODE(held.mode))
