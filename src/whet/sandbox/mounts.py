"""Where an engine with mounts of its own puts what: private folders, grants in them, what is guarded."""

from __future__ import annotations

from pathlib import Path

import msgspec

from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch


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
    """Plan the mounts. A grant below a private folder is mounted into that one, before it is put in place."""
    private = {Path("/tmp"): scratch.tmp, Path("/var/tmp"): scratch.tmp, Path("/dev/shm"): scratch.memory}
    written = (policy.workspace, *policy.write)
    if not any(home.is_relative_to(one) for one in (*written, *policy.read)):
        private[home] = scratch.home
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
    # What the private folders themselves lie in is covered last: their own paths are gone then.
    for target in sorted(private, key=lambda one: (scratch.root.is_relative_to(one), -len(one.parts))):
        outer = _innermost(target.parent, private)
        if outer is None:
            binds.append((str(private[target]), str(target)))
        else:
            place = private[outer] / target.relative_to(outer)
            binds.append((str(private[target]), _prepared(private[target], place)))
    held, protected = guarded(policy)
    writable = [str(path) for path in (*private, *written) if path.exists()]
    return MountPlan(
        tuple(binds),
        (*anchors, *map(str, held)),
        (*writable, *map(str, held)),
        tuple(map(str, protected)),
    )


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
