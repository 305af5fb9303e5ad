"""Odd things that clients do on a connection: they ask ahead, wish for another protocol, and go away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.confirm.running import request
from tests.web.test_cycle import body, call, serve, start


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what was sent."""
    data = b""
    while True:
        message = await receive()
        data += message.get("body", b"")
        if not message.get("more_body", False):
            break
    told = scope["path"].encode() + b" got " + data
    await start(send, (b"content-length", str(len(told)).encode()))
    await body(send, told)


UPGRADES = (
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    "Connection: Upgrade\r\nUpgrade: websocket",
)


@pytest.mark.parametrize("wish", UPGRADES)
@pytest.mark.parametrize("cuts", [1, 7])
def test_a_wish_for_another_protocol_is_passed_over_and_the_request_is_answered(wish: str, cuts: int) -> None:
    # Java's HTTP client sends the first with every request that it does not encrypt.
    async def play(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"Host: 127.0.0.1:{port}\r\n{wish}\r\n"
        raw = f"POST /one HTTP/1.1\r\n{head}Content-Length: 5\r\n\r\nhello".encode()
        raw += f"POST /two HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n3\r\nyou\r\n0\r\n\r\n".encode()
        raw += f"GET /three HTTP/1.1\r\n{head}\r\n".encode() + request(port, "GET", "/four")
        size = -(-len(raw) // cuts)
        for at in range(0, len(raw), size):
            writer.write(raw[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        return answer

    said = serve(echo, play)
    for data in (b"/one got hello", b"/two got you", b"/three got ", b"/four got "):
        assert data in said
    assert said.count(b"HTTP/1.1 200 ") == 4


def test_all_that_are_asked_on_a_connection_hear_that_it_was_cut() -> None:
    gone: list[str] = []
    began = asyncio.Event()
    all_gone = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await start(send, (b"content-type", b"text/event-stream"))
        began.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.append(scope["path"])
        all_gone.set()

    async def play(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        asked = f"GET /first HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        writer.write(asked + asked.replace(b"/first", b"/ahead"))
        await reader.readuntil(b"\r\n\r\n")
        await began.wait()
        writer.transport.abort()
        await all_gone.wait()

    serve(app, play)
    assert gone == ["/first"]


def test_an_http_1_0_client_gets_a_stream_without_chunks() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await start(send, (b"content-type", b"text/event-stream"))
        await body(send, b"data: one\n\n", more=True)
        await body(send, b"data: two\n\n")

    async def play(port: int) -> bytes:
        return await call(port, f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())

    head, _, said = serve(app, play).partition(b"\r\n\r\n")
    assert said == b"data: one\n\ndata: two\n\n" and b"chunked" not in head and b"connection: close" in head
