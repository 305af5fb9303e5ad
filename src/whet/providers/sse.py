"""Parse server-sent events from bytes that may be split anywhere, even in a character or a line end.

Follows the WHATWG event stream format: LF, CRLF or CR line ends, comments, several data lines, a leading
byte order mark. Data stays bytes.
"""

from __future__ import annotations

from whet.contract.errors import WireError
from whet.late import late_pattern

_LINE_END = late_pattern(rb"\r\n|\n|\r")
_LIMIT_BYTES = 64 * 1024 * 1024

SseEvent = tuple[bytes, bytes]
"""An event's name and data."""


class SseParser:
    """The parser of one stream.

    `has_events`: whether there was any event. `last_id`: the id of the last complete event that had one.
    `retry_ms`: the reconnection pause that the server last asked for, or None.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._at_start = True
        self.has_events = False
        self.last_id = ""
        self.retry_ms: int | None = None
        self._id = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that are complete with these bytes. Raises WireError if one line or event exceeds
        64 MB."""
        # `find` is faster than `in`, which first tries the bytes as a number and raises an error for that
        if chunk.find(b"\n") < 0 and chunk.find(b"\r") < 0 and not self._buffer.endswith(b"\r"):
            self._buffer += chunk
            if len(self._buffer) > _LIMIT_BYTES:
                raise WireError("the server sent a line without end")
            return []
        if self._buffer:
            self._buffer += chunk
            chunk = bytes(self._buffer)
            self._buffer.clear()
        events = self._lines(self._split(chunk))
        self._data_bytes = self._data_bytes + len(chunk) if self._data else 0
        if self._data_bytes > _LIMIT_BYTES:
            raise WireError("the server sent an event without end")
        return events

    def finish(self) -> list[SseEvent]:
        """Return the last event if the stream ended without the empty line after it."""
        lines = [bytes(self._buffer).rstrip(b"\r"), b""]
        self._buffer.clear()
        return self._lines(lines)

    def _split(self, chunk: bytes) -> list[bytes]:
        if chunk.find(b"\r") < 0:
            lines = chunk.split(b"\n")
        else:
            # A CR at the very end may be half of a CRLF, so it is kept for the next bytes.
            carry = b"\r" if chunk.endswith(b"\r") else b""
            lines = _LINE_END.split(chunk[: len(chunk) - len(carry)])
            lines[-1] += carry
        self._buffer += lines.pop()
        return lines

    def _lines(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        data = self._data
        if self._at_start and lines:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        for line in lines:
            if line.startswith(b"data: "):
                data.append(line[6:])
            elif not line:
                if data:
                    events.append((self._name, b"\n".join(data)))
                    data.clear()
                self._name = b""
                self.last_id: str = self._id
            elif line.startswith(b"data:"):
                data.append(line[5:])
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
            elif line == b"data":
                data.append(b"")
            else:
                self._read_other_field(line)
        self.has_events: bool = self.has_events or bool(events)
        return events

    def _read_other_field(self, line: bytes) -> None:
        if line.startswith(b"id:"):
            self._id = line[3:].strip().decode("utf-8", "replace")
        elif line.startswith(b"retry:") and (pause := line[6:].strip()).isdigit():
            self.retry_ms = int(pause[:9])
        elif line.startswith(b"{"):  # some proxies leave out the field's name
            self._data.append(line)
