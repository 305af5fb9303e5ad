"""uvicorn's request and answer, with a whole answer leaving in one write.

The head of an answer that names its length waits for the body. For a small answer that is one system call in
place of two, and the client is woken once. A streamed answer goes uvicorn's way, for a client of HTTP/1.0
without chunks: it ends with the connection.
"""

from __future__ import annotations

from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

_NO_BODY = (204, 304)


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    _head: Any = None
    _ends_with_connection = False

    async def send(self, message: Any) -> None:
        """Take a part of the answer (ASGI). Raises RuntimeError for one that breaks the protocol."""
        if message["type"] == "http.response.start" and not self.response_started and _names_length(message):
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
        has_body = cast("Any", self.scope)["method"] != "HEAD"
        keep_alive = self.keep_alive
        parts = [STATUS_LINE[status]]
        all_headers = [*self.default_headers, *headers]
        names, values = (b"".join(those) for those in zip(*all_headers, strict=True))
        if HEADER_RE.search(names) or HEADER_VALUE_RE.search(values):
            raise RuntimeError("a header of the answer holds a control character")
        for name, value in all_headers:
            if name == b"connection" and b"close" in value.lower():
                keep_alive = False
                continue
            if has_body and name == b"content-length" and int(value) != len(body):
                raise RuntimeError("the answer is not as long as it says")
            parts += (name, b": ", value, b"\r\n")
        if not keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if has_body:
            parts.append(body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.keep_alive: bool = keep_alive
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not keep_alive:
            self.transport.close()
        self.on_response()


def _names_length(head: Any) -> bool:
    return b"content-length" in [name for name, _ in head.get("headers", ())]
