"""A scripted raw HTTP server on loopback: each connection's requests are answered by the next script.

Not a model: it sends exactly the bytes it was told to, can cut, stall, reset, and keeps what it received.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.listening import listening

SSE = "text/event-stream"


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Script:
    """One answer. `cut`: close without the final chunk; `stall`: never end; `reset`: close with RST;
    `bare`: the end of the connection alone ends the body."""

    chunks: Sequence[bytes] = ()
    status: int = 200
    content_type: str = SSE
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    stall: bool = False
    reset: bool = False
    bare: bool = False


class Server:
    """The running server: its URL, what it received, what it will answer."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.requests: list[Request] = []
        self.on_request: Callable[[Request], None] | None = None
        self.connections = 0
        self.closed = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(self, *scripts: Script) -> None:
        self.scripts += scripts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            self.closed.set()
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(Request(method, target, headers, body))
        if self.on_request is not None:
            self.on_request(self.requests[-1])
        script = self.scripts.pop(0)
        framing = "connection: close" if script.bare else "transfer-encoding: chunked"
        lines = [f"HTTP/1.1 {script.status} Scripted", framing]
        if script.content_type:
            lines.append(f"content-type: {script.content_type}")
        lines += [f"{name}: {value}" for name, value in script.headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        for chunk in script.chunks:
            writer.write(chunk if script.bare else b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        if script.reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if script.cut or script.reset or script.bare:
            return False
        if script.stall:
            await reader.read()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def running(*scripts: Script) -> AsyncIterator[Server]:
    server = Server()
    server.answer(*scripts)
    async with listening(server.serve) as server.port:
        yield server


def sse(*payloads: bytes | str, names: Sequence[str] = ()) -> bytes:
    """Join payloads as SSE events."""
    lines: list[bytes] = []
    for index, payload in enumerate(payloads):
        if names:
            lines.append(b"event: " + names[index].encode())
        lines += [b"data: " + (payload if isinstance(payload, bytes) else payload.encode()), b""]
    return b"\n".join(lines) + b"\n"
