"""Keep the beginning and the end of a program's output, without the lines that it overwrites.

A progress bar prints its line again and again behind a carriage return. Only the last one counts, or two long
bars would take all the room that is kept, and what stands between them would be lost.
"""

from __future__ import annotations

import re

_OVERWRITTEN = re.compile(rb"\r[^\r\n]*(?=\r[^\n])")
_MAX_LINE_BYTES = 8_192


class KeptOutput:
    """The first 40 % and the last 60 % of `cap_bytes` of a stream. Bytes between them are only counted."""

    def __init__(self, cap_bytes: int) -> None:
        self.total_bytes: int = 0
        self._head_cap = cap_bytes * 2 // 5
        self._tail_cap = cap_bytes - self._head_cap
        self._head = bytearray()
        self._tail = bytearray()
        self._line = b""
        self._is_binary = False

    def append(self, data: bytes) -> None:
        """Append the next bytes of the stream."""
        self._is_binary = self._is_binary or b"\0" in data
        if self._is_binary or not (self._line or b"\r" in data):
            self._settle()
            self._keep(data)
            return
        data = _OVERWRITTEN.sub(b"", self._line + data)
        # The last line may be overwritten by what comes next.
        start = data.rfind(b"\r", data.rfind(b"\n") + 1)
        is_open = start >= 0 and len(data) - start <= _MAX_LINE_BYTES
        self._line = data[start:] if is_open else b""
        self._keep(data[:start] if is_open else data)

    def _settle(self) -> None:
        """Keep the last line as it is now."""
        line, self._line = self._line, b""
        self._keep(line)

    def since(self, offset: int) -> tuple[bytes, int, bytes]:
        """Return the output after byte `offset`: kept head, number of bytes lost after it, kept tail."""
        self._settle()
        tail = self._tail[-self._tail_cap :]
        tail_start = self.total_bytes - len(tail)
        lost = max(0, tail_start - max(offset, len(self._head)))
        return bytes(self._head[offset:]), lost, bytes(tail[max(0, offset - tail_start) :])

    def _keep(self, data: bytes) -> None:
        self.total_bytes += len(data)
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
