"""Limit redraws of the live area to one in 8 ms, and to half of the time if they take long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

GAP_S = 0.008


class Redraws:
    """Redraws on request. Requests within `GAP_S` after a redraw share the next one.

    After a redraw that takes long, on a busy machine or a slow line, the pause is as long as the redraw, so
    that keys and pieces of the answer are read in between.
    """

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._timer: asyncio.TimerHandle | None = None
        self._began_s = 0.0
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
        """Redraw without waiting for the gap."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.note_begin()
        self._draw()

    def note_begin(self) -> None:
        """Note that a redraw begins."""
        self._began_s = asyncio.get_running_loop().time()
        self._next_s = self._began_s + GAP_S

    def note_end(self, _: object = None) -> None:
        """Note that a redraw has ended. The next one waits as long as it took."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now_s + now_s - self._began_s)


def draw_keys_once(prompt: PromptSession[str]) -> None:
    """Make each key of a prompt cause one redraw, in the next pass of the loop.

    Validation and suggestions, which are not used, would start a task and another redraw at each key.
    """
    prompt.validate_while_typing = False
    prompt.default_buffer.auto_suggest = None
    prompt.app.max_render_postpone_time = None  # waiting for an idle pass takes three passes more
    prompt.app.terminal_size_polling_interval = None  # SIGWINCH reports the size
