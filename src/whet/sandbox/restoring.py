"""Restore protected names when a command ends, and again when the processes that it left running have
ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from whet.sandbox.guard import Guard, ProtectedRecord
from whet.sandbox.mount_check import MountTracker

_LOOK_S = 0.5


class ProtectedRestorer:
    """Restores protected names for the commands of one sandbox.

    `has_left` says whether processes other than its commands still run in it.
    """

    def __init__(self, guard: Guard, holding: MountTracker, has_left: Callable[[], bool]) -> None:
        self._guard = guard
        self._holding = holding
        self._has_left = has_left
        self._lock = threading.Lock()
        self._left: list[ProtectedRecord] = []
        self._late: list[Path] = []
        self._is_watched = False

    def finish(self, before: ProtectedRecord) -> list[Path]:
        """Restore the names that a command changed. Returns the restored paths, with those restored since the
        last command ended."""
        changed = self._restore(before)
        with self._lock:
            changed, self._late = list(dict.fromkeys((*self._late, *changed))), []
            if not self._has_left():
                self._guard.forget(before)
                return changed
            self._left.append(before)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="sandbox-left", daemon=True).start()
        return changed

    def settle(self) -> None:
        """Restore what leftover processes changed after their commands ended, once none is left."""
        if not self._left or self._has_left():
            return
        with self._lock:
            records, self._left = self._left, []
        for before in records:
            changed = self._restore(before)
            self._guard.forget(before)
            with self._lock:
                self._late += changed

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_LOOK_S)
            self.settle()
            with self._lock:
                self._is_watched = bool(self._left)
                if not self._is_watched:
                    return

    def _restore(self, before: ProtectedRecord) -> list[Path]:
        states = self._guard.read_states()
        return self._guard.restore(before, self._holding.mounts(states), states)
