"""Where an engine with mounts of its own puts what: private folders, grants in them, what is guarded."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch

_OF_THE_KERNEL = ("proc", "dev", "sys")


class MountPlan(msgspec.Struct, frozen=True):
    """What the launcher mounts in a namespace of its own, in this order: `binds` (source, target), `anchors`
    onto themselves, then everything read-only, `writable` writable again, `read_only` mounted as that."""

    binds: tuple[tuple[str, str], ...]
    anchors: tuple[str, ...]
    writable: tuple[str, ...]
    read_only: tuple[str, ...]


def guarded(policy: SandboxPolicy) -> tuple[list[Path], list[Path]]:
    """Give (folders that can't be moved away because they are mounts, protected paths that are there)."""
    protected = [path for path in policy.protected_paths() if path.exists() and not path.is_symlink()]
    roots = (policy.workspace, *policy.write)
    anchors: dict[Path, None] = {}
    for path in protected:
        for above in reversed(path.parents):
            if any(above.is_relative_to(root) and above != root for root in roots):
                anchors[above] = None
    return list(anchors), protected


def mount_plan(policy: SandboxPolicy, scratch: Scratch, home: Path) -> MountPlan:
    """Plan the mounts. A grant below a private folder is mounted into that one, before it is put in place.

    What is not granted is covered: Landlock keeps its files, but a socket is connected to by its path alone.
    """
    private = {Path("/tmp"): scratch.tmp, Path("/var/tmp"): scratch.tmp, Path("/dev/shm"): scratch.memory}
    written = (policy.workspace, *policy.write)
    if not any(home.is_relative_to(one) for one in (*written, *policy.read)):
        private[home] = scratch.home
    own = tuple(private)
    private |= _covered(policy, private, scratch)
    private |= _emptied(policy, scratch)
    binds: list[tuple[str, str]] = []
    anchors: list[str] = []
    for path in sorted({*written, *policy.read}, key=lambda one: len(one.parts)):
        if not path.exists():
            continue
        within = _innermost(path, private)
        if within is not None:
            binds.append((str(path), _prepared(path, private[within] / path.relative_to(within))))
        elif path in written:
            anchors.append(str(path))
    binds += _hidden(policy, private, scratch)
    _link(policy, private)
    # What the private folders themselves lie in is covered last: their own paths are gone then.
    for target in sorted(private, key=lambda one: (scratch.root.is_relative_to(one), -len(one.parts))):
        outer = _innermost(target.parent, private)
        if outer is None:
            binds.append((str(private[target]), str(target)))
        else:
            place = private[outer] / target.relative_to(outer)
            binds.append((str(private[target]), _prepared(private[target], place)))
    held, protected = guarded(policy)
    writable = [str(path) for path in (*own, *written) if path.exists()]
    return MountPlan(
        tuple(binds),
        (*anchors, *map(str, held)),
        (*writable, *map(str, held)),
        tuple(map(str, protected)),
    )


def _covered(policy: SandboxPolicy, private: dict[Path, Path], scratch: Scratch) -> dict[Path, Path]:
    """Give the top folders that nothing grants as a whole, with an empty folder for each to be put there."""
    granted = (policy.workspace, *policy.write, *policy.read, *private)
    found: dict[Path, Path] = {}
    for entry in os.scandir("/"):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False) and path not in granted and entry.name not in _OF_THE_KERNEL:
            found[path] = scratch.nothing / entry.name
            found[path].mkdir(parents=True, exist_ok=True)
    return found


def _emptied(policy: SandboxPolicy, scratch: Scratch) -> dict[Path, Path]:
    """Give the hidden folders in which something is granted all the same, with an empty folder for each."""
    granted = (*policy.write, *policy.read)
    found: dict[Path, Path] = {}
    for path in policy.hidden():
        if path.is_dir() and any(one.is_relative_to(path) for one in granted):
            found[path] = scratch.nothing / "hidden" / str(len(found))
            found[path].mkdir(parents=True, exist_ok=True)
    return found


def _hidden(policy: SandboxPolicy, private: dict[Path, Path], scratch: Scratch) -> list[tuple[str, str]]:
    """Give the mounts that take away what is hidden in a granted folder."""
    empty = scratch.nothing / "-"
    empty.mkdir(parents=True, exist_ok=True)
    found: list[tuple[str, str]] = []
    for path in sorted(policy.hidden_inside(), key=lambda one: len(one.parts)):
        if path in private or path.is_symlink() or not path.exists():
            continue
        within = _innermost(path, private)
        place = private[within] / path.relative_to(within) if within is not None else path
        found.append((str(empty) if path.is_dir() else os.devnull, str(place)))
    return found


def _link(policy: SandboxPolicy, private: dict[Path, Path]) -> None:
    """Make the links that lead to what is granted in the folders that cover them."""
    for alias in policy.aliases:
        within = _innermost(alias.parent, private)
        if within is not None and os.path.realpath(alias.parent) == str(alias.parent):
            place = private[within] / alias.relative_to(within)
            if not os.path.lexists(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(os.path.realpath(alias))


def _innermost(path: Path, private: dict[Path, Path]) -> Path | None:
    found = [one for one in private if path.is_relative_to(one)]
    return max(found, key=lambda one: len(one.parts), default=None)


def _prepared(source: Path, place: Path) -> str:
    """Make what a mount needs to be put on, in a private folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        place.mkdir(exist_ok=True)
    elif not place.exists():
        place.touch()
    return str(place)
