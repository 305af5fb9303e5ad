"""Record a goal's workspace when the goal begins, so that its end is judged by the checks of that time.

The record is in Whet's home, where the model's commands can't change it: a signature of every file, and the
contents of all files except large ones and installed packages. From it the changed files can be listed, and a
copy of the workspace can be made in which chosen files are restored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from whet.contract.errors import ToolError
from whet.contract.texts import from_json
from whet.regular import read_regular
from whet.sandbox.nofollow import copy, parent_of

Difference = Literal["changed", "new", "gone"]
_LARGE_BYTES = 2_000_000
_KEPT_BYTES = 64_000_000
_MAX_FILES = 60_000
_CACHES = frozenset({"__pycache__"})
_GIT_KEPT = ("config", "hooks", "info")
_SYSTEM = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/sbin")


class TreeBase(msgspec.Struct, frozen=True):
    """A workspace when its goal began.

    `files` are signatures by path, `programs` those of the programs on the search path outside the system's
    folders, and `may_change` the paths that the person lets change. `is_whole` is False if there were too
    many files to record all.
    """

    files: dict[str, str]
    programs: dict[str, str]
    may_change: tuple[str, ...] = ()
    is_whole: bool = True


def save_base(
    workspace: Path, folder: Path, path_variable: str, may_change: tuple[str, ...] = ()
) -> TreeBase:
    """Record a workspace in `folder` and return the record."""
    contents = folder / "files"
    contents.mkdir(parents=True, exist_ok=True, mode=0o700)
    files: dict[str, str] = {}
    budget_bytes = _KEPT_BYTES
    for name, is_installed in _walk(workspace):
        source = workspace / name
        signature = _signature(source, is_installed=is_installed)
        if signature.startswith("hash ") and (size := source.stat().st_size) <= budget_bytes:
            budget_bytes -= size
            _copy(workspace, name, contents)
        files[name] = signature
    base = TreeBase(files, _read_programs(path_variable), may_change, len(files) < _MAX_FILES)
    temporary = folder / "base.json.half"
    temporary.write_bytes(msgspec.json.encode(base))
    temporary.replace(folder / "base.json")
    return base


def read_base(folder: Path) -> TreeBase | None:
    """Return the record that `save_base` wrote, or None if there is none that can be read."""
    try:
        return from_json((folder / "base.json").read_bytes(), TreeBase)
    except (OSError, msgspec.DecodeError):
        return None


def find_differences(base: TreeBase, workspace: Path) -> dict[str, Difference]:
    """Return the files that differ from the record, by path."""
    changes: dict[str, Difference] = {}
    current_names: set[str] = set()
    for name, is_installed in _walk(workspace):
        current_names.add(name)
        signature = base.files.get(name)
        if signature is None:
            if base.is_whole:
                changes[name] = "new"
        elif signature != _signature(workspace / name, is_installed=is_installed):
            changes[name] = "changed"
    if len(current_names) < _MAX_FILES:  # a path that now leads through a link counts as gone too
        changes |= {name: "gone" for name in base.files if name not in current_names}
    return dict(sorted(changes.items()))


def read_change_times(base: TreeBase, workspace: Path) -> dict[str, int]:
    """Return when each recorded file last changed, in ns, or 0 if it is gone. No program can set this time,
    which is the kernel's ctime."""
    times_ns: dict[str, int] = {}
    for name in base.files:
        try:
            times_ns[name] = (workspace / name).lstat().st_ctime_ns
        except OSError:
            times_ns[name] = 0
    return times_ns


def list_change_times(workspace: Path) -> list[tuple[str, int]]:
    """Return each present file of a workspace with its ctime in ns."""
    times_ns: list[tuple[str, int]] = []
    for name, _ in _walk(workspace):
        with contextlib.suppress(OSError):
            times_ns.append((name, (workspace / name).lstat().st_ctime_ns))
    return times_ns


def find_changed_programs(base: TreeBase, path_variable: str) -> list[str]:
    """Return the programs of the search path that have changed, and new ones that may hide another
    program."""
    programs = _read_programs(path_variable)
    base_names = {Path(path).name for path in base.programs}
    for folder in _SYSTEM:
        base_names |= set(_list_names(Path(folder)))
    changed = [path for path, old in base.programs.items() if programs.get(path, old) != old]
    new = [path for path in programs if path not in base.programs and Path(path).name in base_names]
    return sorted(changed + new)


def restore_tree(
    base: TreeBase, folder: Path, trees: tuple[Path, Path], program: Collection[str], judging: Collection[str]
) -> None:
    """Build a copy of a workspace with the recorded files, but with the files of `program` as they are now.

    `trees` are the workspace and the copy, `folder` holds the record. Folders of installed packages are
    linked unless they contain a file of `judging`. Raises ToolError if a file changed and its old contents
    were not recorded.
    """
    workspace, target = trees
    target.mkdir(parents=True, exist_ok=True)
    linked = {".git"}
    judging_folders = {str(parent) for name in judging for parent in PurePosixPath(name).parents}
    for name, signature in base.files.items():
        if name not in program and not _restore(name, signature, (folder / "files", workspace, target)):
            linked.add(_find_linkable(name, installed_folder(name, workspace), judging_folders))
    for name in program:
        if os.path.lexists(workspace / name):
            _copy(workspace, name, target)
    for name in sorted(linked):
        if name and os.path.lexists(workspace / name) and not os.path.lexists(target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).symlink_to(workspace / name)


def _find_linkable(name: str, folder: str, judging_folders: Collection[str]) -> str:
    """Return the highest folder above an installed file that can be linked, or the file itself."""
    parents = [str(parent) for parent in PurePosixPath(name).parents if str(parent).startswith(folder)]
    return next((parent for parent in reversed(parents) if parent not in judging_folders), name)


def _restore(name: str, signature: str, trees: tuple[Path, Path, Path]) -> bool:
    """Restore a recorded file in the copy. Returns False if it is an unchanged file of installed packages."""
    contents, workspace, target = trees
    if signature.startswith("hash ") and os.path.lexists(contents / name):
        _copy(contents, name, target)
    elif signature.startswith("link "):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).symlink_to(signature.removeprefix("link "))
    elif signature != _signature(workspace / name, is_installed=signature.startswith("stat ")):
        raise ToolError(f"{name} can't be put back as it was: it was not kept")
    elif installed_folder(name, workspace):
        return False
    else:
        _copy(workspace, name, target)
    return True


def read_old_text(folder: Path, name: str) -> str:
    """Return a file's recorded text, or an empty string if it was not recorded or is not text."""
    return read_text(folder / "files" / name)


def read_text(path: Path, within: Path | None = None) -> str:
    """Return a text file's contents, or an empty string if it can't be read, is binary or large, or is
    outside of `within`."""
    try:
        raw = read_regular(path, _LARGE_BYTES + 1, within)
    except OSError:
        return ""
    return "" if b"\0" in raw or len(raw) > _LARGE_BYTES else raw.decode("utf-8", "replace")


def _walk(workspace: Path) -> Iterator[tuple[str, bool]]:
    """Yield the path of each file in a workspace, and whether it belongs to installed packages. Skips caches,
    and all files of `.git` except those that can make git run programs."""
    root, count = str(workspace), 0
    for folder, folders, names in os.walk(root):
        inside = os.path.relpath(folder, root)
        inside = "" if inside == "." else inside + "/"
        if inside == ".git/":
            folders[:] = [entry for entry in folders if entry in _GIT_KEPT]
            names = [entry for entry in names if entry in _GIT_KEPT]
        folders[:] = sorted(entry for entry in folders if entry not in _CACHES)
        links = [entry for entry in folders if os.path.islink(f"{folder}/{entry}")]
        is_installed = bool(inside) and bool(installed_folder(inside.rstrip("/"), Path(root)))
        for name in sorted((*names, *links)):
            count += 1
            if count > _MAX_FILES:
                return
            yield inside + name, is_installed


def installed_folder(name: str, root: Path) -> str:
    """Return the folder of installed packages that contains a path, or an empty string."""
    parts = name.split("/")
    for depth, part in enumerate(parts, 1):
        folder = "/".join(parts[:depth])
        if part == "node_modules" or (root / folder / "pyvenv.cfg").is_file():
            return folder
    return ""


def _signature(path: Path, *, is_installed: bool) -> str:
    try:
        state = path.lstat()
        if path.is_symlink():
            return f"link {path.readlink()}"
        mode = state.st_mode & 0o111
        if is_installed or state.st_size > _LARGE_BYTES or not path.is_file():
            return f"stat {mode} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"
        return f"hash {mode} {hashlib.sha256(read_regular(path, _LARGE_BYTES + 1)).hexdigest()}"
    except OSError:
        return "unreadable"


def _read_programs(path_variable: str) -> dict[str, str]:
    """Return the signatures of the programs on the search path, except those of the system's folders."""
    signatures: dict[str, str] = {}
    for part in path_variable.split(os.pathsep):
        folder = Path(part or ".")
        if part in _SYSTEM:
            continue
        for name in _list_names(folder)[:5_000]:
            signatures.setdefault(str(folder / name), _signature(folder / name, is_installed=True))
    return signatures


def _list_names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _copy(root: Path, name: str, target: Path) -> None:
    """Copy a file of `root` without following links, because a command may replace a folder with a link to a
    secret."""
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    try:
        with parent_of(f"{root}/{name}", str(root)) as (folder, last):
            copy(folder, last, target / name)
    except FileNotFoundError:
        return  # it was removed meanwhile
    except OSError as error:
        raise ToolError(f"{name} can't be copied: {error.strerror or error}") from error
