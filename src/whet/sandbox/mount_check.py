"""Ask the kernel which protected and hidden names the mounts of a running launcher still cover.

If an outside program replaces a name's file, as `git config` does, the kernel removes the mount on it in
every namespace. The mount list is read again only if a name has become another file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from whet.sandbox.guard import PathStates, read_states
from whet.sandbox.policy import SandboxPolicy

_Stamps = dict[str, tuple[int, int]]


class MountTracker:
    """Tracks the mounts of one policy's names. `has_mounts`: the engine covers existing names by mounts."""

    def __init__(self, policy: SandboxPolicy, *, has_mounts: bool) -> None:
        names = (*policy.protected_paths(), *policy.hidden_inside())
        self._marks = {str(path): _mark(path) for path in names}
        self._has_mounts = has_mounts
        self._pid = 0
        self._planned: frozenset[str] = frozenset()
        self._mounted: frozenset[str] = frozenset()
        self._looked: tuple[_Stamps, frozenset[str]] = ({}, frozenset())

    def plan(self) -> None:
        """Record which names exist, before a launcher mounts over them."""
        self._planned = frozenset(read_states(self._marks))

    def record_mounts(self, pid: int) -> None:
        """Record the mounts of the launcher with this process id."""
        self._pid = pid
        self._looked = ({}, frozenset())
        self._mounted = self._planned & self.mounts(read_states(self._marks))

    def mounts(self, states: PathStates) -> frozenset[str]:
        """Return the names that mounts cover now. `states` must be current."""
        # The inode alone doesn't identify a file: its number may have been reused.
        stamps = {
            path: (state.st_ino, state.st_ctime_ns) for path, state in states.items() if path in self._marks
        }
        before, covered = self._looked
        if stamps != before:
            covered = self._read() if self._has_mounts else frozenset[str]()
            self._looked = (stamps, covered)
        return covered

    def needs_restart(self, mounts: frozenset[str]) -> bool:
        """Return whether a name has appeared since the launcher started, or lost its mount. `mounts` must be
        current."""
        return not (self._looked[0].keys() <= self._planned and self._mounted <= mounts)

    def _read(self) -> frozenset[str]:
        try:
            with open(f"/proc/{self._pid}/mountinfo", "rb") as file:
                lines = file.read()
        except OSError:
            return frozenset()
        return frozenset(path for path, mark in self._marks.items() if mark in lines)


def _mark(path: Path) -> bytes:
    """Return a path as written in the kernel's mount list."""
    octal = re.sub(rb"[ \t\n\\#]", lambda match: b"\\%03o" % match[0][0], os.fsencode(path))
    return b" " + octal + b" "
