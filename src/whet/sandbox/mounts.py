"""Plan the mounts of an engine with its own mount namespace: private folders, grants in them, protected
paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch

_KERNEL_FOLDERS = ("proc", "dev", "sys")


class MountPlan(msgspec.Struct, frozen=True):
    """The mounts that the launcher makes in its namespace, in this order.

    `binds` are (source, target); `anchors` are bound onto themselves; then everything becomes read-only,
    `writable` becomes writable again, and `read_only` is mounted read-only.
    """

    binds: tuple[tuple[str, str], ...]
    anchors: tuple[str, ...]
    writable: tuple[str, ...]
    read_only: tuple[str, ...]


def plan_guards(policy: SandboxPolicy) -> tuple[list[Path], list[Path]]:
    """Return (folders that become mounts so that they can't be moved, existing protected paths)."""
    protected = [path for path in policy.protected_paths() if path.exists() and not path.is_symlink()]
    roots = (policy.workspace, *policy.write)
    anchors: dict[Path, None] = {}
    for path in protected:
        for above in reversed(path.parents):
            if any(above.is_relative_to(root) and above != root for root in roots):
                anchors[above] = None
    return list(anchors), protected


def plan_mounts(policy: SandboxPolicy, scratch: Scratch, home: Path, held: Sequence[str] = ()) -> MountPlan:
    """Plan the mounts. `held` folders are read-only.

    A grant below a private folder is mounted into that folder before the folder is mounted. Ungranted
    folders are covered as well: Landlock protects their files, but a socket can be connected to by its
    path alone.
    """
    private = {Path("/tmp"): scratch.tmp, Path("/var/tmp"): scratch.tmp, Path("/dev/shm"): scratch.memory}
    written = (policy.workspace, *policy.write)
    if not any(home.is_relative_to(folder) for folder in (*written, *policy.read)):
        private[home] = scratch.home
    private_targets = tuple(private)
    private |= _cover_top_folders(policy, private, scratch)
    private |= _cover_hidden_folders(policy, scratch)
    binds: list[tuple[str, str]] = []
    anchors: list[str] = []
    for path in sorted({*written, *policy.read}, key=lambda path: len(path.parts)):
        if not path.exists():
            continue
        within = _innermost(path, private)
        if within is not None:
            binds.append((str(path), _make_mount_point(path, private[within] / path.relative_to(within))))
        elif path in written:
            anchors.append(str(path))
    binds += _hide_paths(policy, private, scratch)
    _link_aliases(policy, private)
    # The folders that hold the private folders are covered last, since that hides the private folders' own
    # paths.
    for target in sorted(
        private, key=lambda folder: (scratch.root.is_relative_to(folder), -len(folder.parts))
    ):
        outer = _innermost(target.parent, private)
        if outer is None:
            binds.append((str(private[target]), str(target)))
        else:
            mount_point = private[outer] / target.relative_to(outer)
            binds.append((str(private[target]), _make_mount_point(private[target], mount_point)))
    guarded_folders, protected = plan_guards(policy)
    hidden = policy.hidden_paths()
    writable = [str(path) for path in (*private_targets, *written) if path.exists() and path not in hidden]
    return MountPlan(
        tuple(binds),
        (*anchors, *map(str, guarded_folders)),
        (*writable, *map(str, guarded_folders)),
        (*map(str, protected), *held),
    )


def _cover_top_folders(
    policy: SandboxPolicy, private: dict[Path, Path], scratch: Scratch
) -> dict[Path, Path]:
    """Return the top-level folders that are not granted entirely, each with an empty folder to cover it."""
    granted = (policy.workspace, *policy.write, *policy.read, *private)
    covers: dict[Path, Path] = {}
    for entry in os.scandir("/"):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False) and path not in granted and entry.name not in _KERNEL_FOLDERS:
            covers[path] = scratch.nothing / entry.name
            covers[path].mkdir(parents=True, exist_ok=True)
    return covers


def _cover_hidden_folders(policy: SandboxPolicy, scratch: Scratch) -> dict[Path, Path]:
    """Return the hidden folders that contain a grant, each with an empty folder to cover it."""
    granted = (*policy.write, *policy.read)
    covers: dict[Path, Path] = {}
    for path in policy.hidden_paths():
        if path.is_dir() and any(grant.is_relative_to(path) for grant in granted):
            covers[path] = scratch.nothing / "hidden" / str(len(covers))
            covers[path].mkdir(parents=True, exist_ok=True)
    return covers


def _hide_paths(policy: SandboxPolicy, private: dict[Path, Path], scratch: Scratch) -> list[tuple[str, str]]:
    """Return the mounts that cover hidden paths in granted folders."""
    empty = scratch.nothing / "-"
    empty.mkdir(parents=True, exist_ok=True)
    mounts: list[tuple[str, str]] = []
    for path in sorted(policy.hidden_inside(), key=lambda path: len(path.parts)):
        if path in private or path.is_symlink() or not path.exists():
            continue
        within = _innermost(path, private)
        target = private[within] / path.relative_to(within) if within is not None else path
        source = make_closed(path, scratch) if path in policy.closed else empty
        is_empty = path.is_dir() or path in policy.closed
        mounts.append((str(source) if is_empty else os.devnull, str(target)))
    return mounts


def make_closed(path: Path, scratch: Scratch) -> Path:
    """Create an empty file or folder to cover a path. It can't be opened, so git does not take it for new."""
    cover = scratch.nothing / ("closed-folder" if path.is_dir() else "closed-file")
    if path.is_dir():
        cover.mkdir(0o000, parents=True, exist_ok=True)
    elif not cover.exists():
        cover.parent.mkdir(parents=True, exist_ok=True)
        cover.touch(0o000)
    return cover


def _link_aliases(policy: SandboxPolicy, private: dict[Path, Path]) -> None:
    """Create the links that lead to granted paths in the folders that cover them."""
    for alias in policy.aliases:
        within = _innermost(alias.parent, private)
        if within is not None and os.path.realpath(alias.parent) == str(alias.parent):
            link = private[within] / alias.relative_to(within)
            if not os.path.lexists(link):
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(os.path.realpath(alias))


def _innermost(path: Path, private: dict[Path, Path]) -> Path | None:
    folders = [folder for folder in private if path.is_relative_to(folder)]
    return max(folders, key=lambda folder: len(folder.parts), default=None)


def _make_mount_point(source: Path, mount_point: Path) -> str:
    """Create the mount point for a source in a private folder."""
    mount_point.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        mount_point.mkdir(exist_ok=True)
    elif not mount_point.exists():
        mount_point.touch()
    return str(mount_point)
