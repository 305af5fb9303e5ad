"""Keep the beginning and the end of a program's output, without the lines that it overwrites.

A progress display prints its lines again and again. Only the last state counts, or two long displays would
take all the room that is kept, and what stands between them would be lost.
"""

from __future__ import annotations

from whet.tools.output import is_binary
from whet.tools.printed_screen import ROWS, has_moves, redraw

_MAX_OPEN_BYTES = 16_384
_MARKS = (b"\r", b"\b", b"\x1b[", b"\xc2\x9b")


class KeptOutput:
    """The first 40 % and the last 60 % of `cap_bytes` of a stream. Bytes between them are only counted."""

    def __init__(self, cap_bytes: int) -> None:
        self._kept_bytes = 0
        self._head_cap = cap_bytes * 2 // 5
        self._tail_cap = cap_bytes - self._head_cap
        self._head = bytearray()
        self._tail = bytearray()
        self._open = b""  # the last lines, which what comes next may overwrite
        self._is_binary = False

    @property
    def total_bytes(self) -> int:
        """The size of the output without overwritten lines."""
        return self._kept_bytes + len(self._open)

    def append(self, data: bytes) -> None:
        """Append the next bytes of the stream."""
        self._is_binary = self._is_binary or (b"\0" in data and is_binary(data))
        data, self._open = self._open + data, b""
        if not self._is_binary:
            data = _redraw(data)
            start = _find_open_lines(data)
            self._open = data[start:]
            data = data[:start]
        self._keep(data)

    def since(self, offset: int) -> tuple[bytes, int, bytes]:
        """Return the output after byte `offset`: kept head, number of bytes lost after it, kept tail."""
        data, self._open = self._open, b""
        self._keep(data)
        tail = self._tail[-self._tail_cap :]
        tail_start = self._kept_bytes - len(tail)
        lost = max(0, tail_start - max(offset, len(self._head)))
        return bytes(self._head[offset:]), lost, bytes(tail[max(0, offset - tail_start) :])

    def _keep(self, data: bytes) -> None:
        self._kept_bytes += len(data)
        room = self._head_cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_cap:
            self._tail[:] = data[-self._tail_cap :]
        elif data:
            self._tail += data
            # Cutting only at twice the cap amortises the copying.
            if len(self._tail) > 2 * self._tail_cap:
                del self._tail[: -self._tail_cap]


def _redraw(data: bytes) -> bytes:
    """Return shorter bytes that a terminal shows alike."""
    data = data.replace(b"\r\n", b"\n")
    if not any(mark in data for mark in _MARKS):
        return data
    text = data.decode("utf-8", "surrogateescape")
    return redraw(text).encode("utf-8", "surrogateescape") if has_moves(text) else data


def _find_open_lines(data: bytes) -> int:
    """Return where the lines begin that movement of the cursor can still reach."""
    start = len(data)
    for _ in range(ROWS):
        line_start = data.rfind(b"\n", 0, max(0, start - 1)) + 1 if start else 0
        if len(data) - line_start > _MAX_OPEN_BYTES:
            break
        start = line_start
    return start
