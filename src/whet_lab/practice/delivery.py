"""Sends an answer in one write, or slowly, cut, stalled or split, as its fault requires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from starlette.types import Message, Receive, Scope, Send

from whet_lab.practice.script import Fault


class StallGate:
    """Holds stalled answers and closes connections. Belongs to the server's event loop.

    `on_stall` is called for each answer that stalls. The server sets `hang_up`, which closes the connection
    of an address at once.
    """

    def __init__(self, on_stall: Callable[[], None]) -> None:
        self._waiting: set[asyncio.Event] = set()
        self._on_stall = on_stall
        self.hang_up: Callable[[object], None] = lambda client: None

    async def wait(self, receive: Receive) -> bool:
        """Wait for `release` or for the client to disconnect. Returns True if the answer may continue."""
        event = asyncio.Event()
        self._waiting.add(event)
        self._on_stall()
        release_task = asyncio.ensure_future(event.wait())
        disconnect_task = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((release_task, disconnect_task), return_when=asyncio.FIRST_COMPLETED)
            return event.is_set()
        finally:
            self._waiting.discard(event)
            release_task.cancel()
            disconnect_task.cancel()

    def release(self) -> None:
        """Release every answer that is waiting."""
        for event in self._waiting:
            event.set()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class FaultyResponse(msgspec.Struct, frozen=True):
    """An answer as an ASGI response. `chunks` are written one by one only if the fault requires it."""

    chunks: Sequence[bytes]
    status: int
    content_type: str
    fault: Fault
    gate: StallGate
    error_chunk: bytes = b""
    has_length: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. A cut answer returns early, which makes uvicorn close the connection."""
        fault = self.fault
        if fault.stall_after == -1 and not await self.gate.wait(receive):
            return
        if fault.drop:
            self.gate.hang_up(scope["client"])
            await asyncio.sleep(0)  # let uvicorn notice the abort, or it answers 500 itself
            return
        await send(self._start_message())
        if fault.split_utf8 or fault.delay_s or fault.error_after is not None or self._stops_between_chunks:
            await self._send_chunks(receive, send)
        else:
            await send({"type": "http.response.body", "body": b"".join(self.chunks)})

    @property
    def _stops_between_chunks(self) -> bool:
        stall = self.fault.stall_after
        return self.fault.cut_after is not None or (stall is not None and stall >= 0)

    def _start_message(self) -> Message:
        fault = self.fault
        headers = {"content-type": fault.content_type or self.content_type, "x-request-id": "req_practice"}
        headers["request-id"] = "req_practice"
        if self.has_length:
            headers["content-length"] = str(sum(map(len, self.chunks)))
        headers |= {name.lower(): value for name, value in fault.headers.items()}
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        return {"type": "http.response.start", "status": self.status, "headers": pairs}

    async def _send_chunks(self, receive: Receive, send: Send) -> None:
        fault = self.fault
        for index, chunk in enumerate(self.chunks):
            if index == fault.cut_after:
                await asyncio.sleep(0)
                return
            if index == fault.stall_after and not await self.gate.wait(receive):
                return
            if index == fault.error_after:
                await send({"type": "http.response.body", "body": self.error_chunk})
                return
            if fault.delay_s:
                await asyncio.sleep(fault.delay_s)
            for piece in _split(chunk) if fault.split_utf8 else (chunk,):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


def _split(chunk: bytes) -> tuple[bytes, ...]:
    """Split a chunk inside its first character of several bytes, or in the middle."""
    cut = next((index + 1 for index, byte in enumerate(chunk) if byte >= 0xC0), len(chunk) // 2)
    return chunk[:cut], chunk[cut:]
