"""uvicorn's request and answer, with a whole answer leaving in one write.

An answer's head waits for the first part of its body. For a small answer that is one system call in place of
two, and the client is woken once. A streamed answer goes uvicorn's way from its first part on.
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

    async def send(self, message: Any) -> None:
        """Take a part of the answer (ASGI). Raises RuntimeError for one that breaks the protocol."""
        if self._head is None:
            if message["type"] == "http.response.start" and not self.response_started:
                self._head = message
                return
            await super().send(message)
            return
        head, self._head = self._head, None
        if self.disconnected:
            return
        if message.get("more_body", False) or head["status"] in _NO_BODY or self.flow.write_paused:
            await super().send(head)
            await super().send(message)
            return
        self._answer(head["status"], head.get("headers", ()), message.get("body", b""))

    def _answer(self, status: int, headers: Any, body: bytes) -> None:
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        parts = [STATUS_LINE[status]]
        has_length = closes = False
        for name, value in (*self.default_headers, *headers):
            if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
                raise RuntimeError("an answer's header holds a control character")
            if name == b"content-length":
                has_length = True
            elif name == b"connection" and b"close" in value.lower():
                closes = True
            parts += (name, b": ", value, b"\r\n")
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            parts.append(b"connection: close\r\n")
        if not has_length:
            parts.append(b"content-length: %d\r\n" % len(body))
        parts.append(b"\r\n")
        if cast("Any", self.scope)["method"] != "HEAD":
            parts.append(body)
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
