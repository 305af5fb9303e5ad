"""Show a call's progress notifications as lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whet.clock import Clock
from whet.foreign_text import clean
from whet.log import mask

_MIN_PAUSE_S = 0.2
_MAX_LINES = 500
_MAX_LINE_CHARS = 200
_MAX_NUMBER = 1e15


class ProgressLines:
    """Shows a call's progress as lines, at most five a second and 500 in all."""

    def __init__(self, show: Callable[[str], None], clock: Clock) -> None:
        self._show = show
        self._clock = clock
        self._shown_s = float("-inf")
        self._last = ""
        self._count = 0

    def __call__(self, params: dict[str, Any]) -> None:
        """Show one progress notification of the server."""
        line, now_s = format_progress(params), self._clock.monotonic_s()
        if (
            not line
            or line == self._last
            or self._count >= _MAX_LINES
            or now_s - self._shown_s < _MIN_PAUSE_S
        ):
            return
        self._last, self._shown_s = line, now_s
        self._count += 1
        self._show(line + "\n")


def format_progress(params: dict[str, Any]) -> str:
    """Return progress as `3 of 10: message`, or an empty string if it has neither number nor message."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    numbers = f"{done:g}" if _is_number(done) else ""
    if numbers and _is_number(total):
        numbers += f" of {total:g}"
    text = (
        mask(" ".join(clean(message[: _MAX_LINE_CHARS * 2]).split()))[:_MAX_LINE_CHARS]
        if isinstance(message, str)
        else ""
    )
    return ": ".join(part for part in (numbers, text) if part)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
