"""Translate a policy into the arguments of bubblewrap: a root of chosen mounts, and its own namespaces.

Only granted paths are mounted; everything else doesn't exist inside. This module runs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from whet.sandbox.mounts import make_closed, plan_guards
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch
from whet.searchpath import find_trusted_program

_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts")


def find_bubblewrap(workspace: Path) -> str | None:
    """Return the program's path, ignoring one in the workspace."""
    return find_trusted_program("bwrap", workspace)


def bubblewrap_arguments(
    program: str, policy: SandboxPolicy, scratch: Scratch, home: Path, held: Sequence[str] = ()
) -> list[str]:
    """Return the command line up to the program that runs inside. `held` folders are read-only."""
    arguments = [program, *_NAMESPACES, "--cap-drop", "ALL", "--hostname", "sandbox"]
    for name in sorted(os.listdir("/")):
        path = "/" + name
        if os.path.islink(path) and name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            arguments += ["--symlink", os.readlink(path), path]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--dir", "/run", "--dir", "/var"]
    arguments += ["--bind", str(scratch.tmp), "/tmp", "--bind", str(scratch.tmp), "/var/tmp"]
    arguments += ["--bind", str(scratch.home), str(home)]
    anchors, protected = plan_guards(policy)
    # A path that disappears before the mount is skipped, and then guarded like a path that never existed.
    anchored = [(2 * len(path.parts), "write", path) for path in anchors]
    mounts = sorted((*_mounts(policy), *anchored), key=lambda mount: mount[0])
    for _, flag, path in mounts:
        arguments += _mount(flag, path, scratch)
    for path in (*protected, *held):
        arguments += ["--ro-bind-try", str(path), str(path)]
    for _, flag, path in mounts:  # a protected folder shows again what it holds
        if flag in ("hide", "close") and not {*map(str, path.parents)}.isdisjoint(map(str, protected)):
            arguments += _mount(flag, path, scratch)
    for alias in policy.aliases:
        target = os.path.realpath(alias)
        arguments += (
            [] if os.path.realpath(alias.parent) != str(alias.parent) else ["--symlink", target, str(alias)]
        )
    # Only now: grants inside a hidden folder had to be mounted there first.
    for _, flag, path in mounts:
        arguments += ["--remount-ro", str(path)] if flag == "hide" and path.is_dir() else []
    # Without this, root inside could write kernel settings, and a process of the same user could write
    # another's memory.
    return [*arguments, "--remount-ro", "/proc", "--remount-ro", "/", "--chdir", "/", "--"]


def _mounts(policy: SandboxPolicy) -> list[tuple[int, str, Path]]:
    """Return (depth, kind, path) of each mount. Outer paths are mounted first, hidden paths after the folders
    that hold them."""
    mounts: list[tuple[int, str, Path]] = []
    for path in policy.read:
        mounts.append((2 * len(path.parts), "read", path))
    for path in (policy.workspace, *policy.write):
        mounts.append((2 * len(path.parts), "write", path))
    granted = (policy.workspace, *policy.write, *policy.read)
    for path in policy.hidden_paths():
        if any(path.is_relative_to(grant) for grant in granted) and not path.is_symlink():
            mounts.append((2 * len(path.parts) + 1, "close" if path in policy.closed else "hide", path))
    writes = {path for _, kind, path in mounts if kind == "write"}
    return [grant for grant in mounts if grant[1] != "read" or grant[2] not in writes]


def _mount(kind: str, path: Path, scratch: Scratch) -> list[str]:
    name = str(path)
    if kind in ("read", "write"):
        return ["--bind-try" if kind == "write" else "--ro-bind-try", name, name]
    if kind == "close" and path.exists():
        return ["--ro-bind", str(make_closed(path, scratch)), name]
    if path.is_dir():
        return ["--tmpfs", name]
    return ["--ro-bind", "/dev/null", name] if path.exists() else []
