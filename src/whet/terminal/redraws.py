"""Decide when the live area is redrawn: at once if it was quiet, then at most 20 times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

GAP_S = 0.05


class Redraws:
    """Redraws on request. Requests that come within `GAP_S` of the last redraw share the next one."""

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = 0.0

    def request(self) -> None:
        """Redraw now, or as soon as the gap since the last redraw has passed."""
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_s:
            self.draw_now()
        else:
            self._timer = loop.call_at(self._next_s, self.draw_now)

    def draw_now(self) -> None:
        """Redraw without regard to the gap."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next_s = asyncio.get_running_loop().time() + GAP_S
        self._draw()
