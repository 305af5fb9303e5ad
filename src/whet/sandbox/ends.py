"""Puts protected names back when a command ends, and once more when nothing that it left running is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from whet.sandbox.guard import Before, Guard
from whet.sandbox.holding import Holding

_LOOK_S = 0.5


class CommandEnds:
    """For the commands of one jail. `has_left`: whether something runs in it that is none of them."""

    def __init__(self, guard: Guard, holding: Holding, has_left: Callable[[], bool]) -> None:
        self._guard = guard
        self._holding = holding
        self._has_left = has_left
        self._lock = threading.Lock()
        self._left: list[Before] = []
        self._late: list[Path] = []
        self._is_watched = False

    def ended(self, before: Before) -> list[Path]:
        """Put back what a command changed; gives that, and what was put back since the last one's end."""
        changed = self._restored(before)
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
        """Once nothing is left, put back what was changed after the commands' ends."""
        if not self._left or self._has_left():
            return
        with self._lock:
            left, self._left = self._left, []
        for before in left:
            changed = self._restored(before)
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

    def _restored(self, before: Before) -> list[Path]:
        looked = self._guard.look()
        return self._guard.restore(before, self._holding.mounts(looked), looked)
