"""What a server says of a call's progress, as a line that may be shown while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whet.clock import Clock
from whet.log import mask
from whet.mcp.words import clean

_EVERY_S = 0.2
_MOST_LINES = 500
_LINE_CHARS = 200
_LARGEST = 1e15


class ProgressLines:
    """Shows a call's progress, a line each, as often as a person can read it."""

    def __init__(self, show: Callable[[str], None], clock: Clock) -> None:
        self._show = show
        self._clock = clock
        self._shown_s = float("-inf")
        self._last = ""
        self._count = 0

    def __call__(self, params: dict[str, Any]) -> None:
        """Take one notification of the server."""
        line, now_s = progress_line(params), self._clock.monotonic_s()
        if not line or line == self._last or self._count >= _MOST_LINES or now_s - self._shown_s < _EVERY_S:
            return
        self._last, self._shown_s = line, now_s
        self._count += 1
        self._show(line + "\n")


def progress_line(params: dict[str, Any]) -> str:
    """Give it as `3 of 10: what is done`; empty where it says nothing."""
    done, total, said = params.get("progress"), params.get("total"), params.get("message")
    numbers = f"{done:g}" if _is_number(done) else ""
    if numbers and _is_number(total):
        numbers += f" of {total:g}"
    text = (
        mask(" ".join(clean(said[: _LINE_CHARS * 2]).split()))[:_LINE_CHARS] if isinstance(said, str) else ""
    )
    return ": ".join(part for part in (numbers, text) if part)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
