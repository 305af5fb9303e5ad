"""Which protected and hidden names the mounts of a running launcher still hold, as the kernel says it.

Where a program outside puts another file in a name's place, as `git config` does, the kernel takes away the
mount on it, in every namespace. The list of mounts is read again only where a name has become another file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from whet.sandbox.guard import Looked, look
from whet.sandbox.policy import SandboxPolicy

_Stamps = dict[str, tuple[int, int]]


class Holding:
    """Looks after the names of one policy; `has_mounts`: the engine holds those that are there by mounts."""

    def __init__(self, policy: SandboxPolicy, *, has_mounts: bool) -> None:
        names = (*policy.protected_paths(), *policy.hidden_inside())
        self._marks = {str(path): _mark(path) for path in names}
        self._has_mounts = has_mounts
        self._pid = 0
        self._planned: frozenset[str] = frozenset()
        self._mounted: frozenset[str] = frozenset()
        self._looked: tuple[_Stamps, frozenset[str]] = ({}, frozenset())

    def plan(self) -> None:
        """Note which names are there, before a launcher mounts something on them."""
        self._planned = frozenset(look(self._marks))

    def started(self, pid: int) -> None:
        """Note what the launcher with this number has mounted."""
        self._pid = pid
        self._looked = ({}, frozenset())
        self._mounted = self._planned & self.mounts(look(self._marks))

    def mounts(self, looked: Looked) -> frozenset[str]:
        """Give the names that mounts hold now, by a look at them from just now."""
        # What tells another file under a name: its number may be an old one, given away again.
        stamps = {
            path: (state.st_ino, state.st_ctime_ns) for path, state in looked.items() if path in self._marks
        }
        before, found = self._looked
        if stamps != before:
            found = self._read() if self._has_mounts else frozenset[str]()
            self._looked = (stamps, found)
        return found

    def has_news(self, mounts: frozenset[str]) -> bool:
        """Whether a name has come to be since the launcher began, or one of its mounts is gone; `mounts` have
        just been looked at."""
        return not (self._looked[0].keys() <= self._planned and self._mounted <= mounts)

    def _read(self) -> frozenset[str]:
        try:
            with open(f"/proc/{self._pid}/mountinfo", "rb") as file:
                lines = file.read()
        except OSError:
            return frozenset()
        return frozenset(path for path, mark in self._marks.items() if mark in lines)


def _mark(path: Path) -> bytes:
    """Give a path as it stands in the kernel's list of mounts."""
    octal = re.sub(rb"[ \t\n\\#]", lambda found: b"\\%03o" % found[0][0], os.fsencode(path))
    return b" " + octal + b" "
