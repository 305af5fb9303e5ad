"""Send a whole answer in one write, unlike uvicorn.

The head of an answer with a content-length is held until the body. For a small answer this saves one of two
system calls, and wakes the client only once. A streamed answer is sent by uvicorn; for an HTTP/1.0 client it
is not chunked and ends with the connection.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

_NO_BODY = (204, 304)
_PLAIN = 2  # most answers have only a type and a length, which are no secret and may be cached


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    _head: Any = None
    _ends_with_connection = False

    async def send(self, message: Any) -> None:
        """Handle a part of the answer (ASGI). Raises RuntimeError if it breaks the protocol."""
        if message["type"] == "http.response.start" and not self.response_started and _has_length(message):
            self._head = message
            return
        head, self._head = self._head, None
        if head is None:
            if self._ends_with_connection:
                self.expected_content_length: int = len(message.get("body", b""))
            elif not self.response_started and cast("Any", self.scope)["http_version"] == "1.0":
                self._ends_with_connection = True
                self.chunked_encoding: bool | None = False
            await super().send(message)
        elif message.get("more_body", False) or head["status"] in _NO_BODY or self.flow.write_paused:
            await super().send(head)
            await super().send(message)
        elif not self.disconnected:
            self._answer(head["status"], head["headers"], message.get("body", b""))

    def _answer(self, status: int, headers: Any, body: bytes) -> None:
        scope: Any = self.scope
        has_body = scope["method"] != "HEAD"
        date, _, _ = _plain_lines(tuple(self.default_headers))
        encode = _plain_lines if len(headers) == _PLAIN else _encode_headers
        lines, length, closes = encode(tuple(headers))
        if has_body and length != len(body):
            raise RuntimeError("the answer's body does not match its content-length")
        if closes:
            self.keep_alive: bool = False
        keep_alive = self.keep_alive
        ending = b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join((STATUS_LINE[status], date, lines, ending, body if has_body else b"")))
        self.message_event.set()
        if not keep_alive:
            self.transport.close()
        self.on_response()


def _encode_headers(headers: tuple[tuple[bytes, bytes], ...]) -> tuple[bytes, int, bool]:
    """Return the encoded headers, the content-length (-1 if missing), and whether the connection is to be
    closed.

    Raises RuntimeError for a header with a control character.
    """
    parts: list[bytes] = []
    length, closes = -1, False
    for name, value in headers:
        if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
            raise RuntimeError("a header of the answer holds a control character")
        if name == b"connection" and b"close" in value.lower():
            closes = True
            continue
        if name == b"content-length":
            length = int(value)
        parts += (name, b": ", value, b"\r\n")
    return b"".join(parts), length, closes


_plain_lines = lru_cache(maxsize=512)(_encode_headers)


def _has_length(head: Any) -> bool:
    return b"content-length" in dict(head.get("headers", ()))
