"""Answers on the wire: whole ones in one piece, streamed ones as they come, broken ones as 500."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.confirm.running import request
from whet.web.connection import WebConnection
from whet.web.listening import SiteServer, listen, make_config
from whet.web.protocol import LimitedProtocol

LENGTH = (b"content-length", b"2")


def serve(app: Any, play: Any) -> Any:
    """Run an ASGI application on our protocol while `play(port)` talks to it."""

    async def go() -> Any:
        ready = asyncio.Event()
        server = SiteServer(make_config(app, 1.0), ready.set, lambda: None, takes_signals=False)
        task = asyncio.create_task(server.serve([listen("127.0.0.1", 0)]))
        await ready.wait()
        try:
            async with asyncio.timeout(20):
                return await play(server.servers[0].sockets[0].getsockname()[1])
        finally:
            server.stop()
            await task

    return asyncio.run(go())


async def call(port: int, raw: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    answer = await reader.read()
    writer.close()
    return answer


async def start(send: Any, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*headers]})


async def body(send: Any, data: bytes, more: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def answers(app: Any, *paths: str, method: str = "GET") -> list[bytes]:
    async def play(port: int) -> list[bytes]:
        return [await call(port, request(port, method, path)) for path in paths]

    return serve(app, play)


def test_broken_answers_are_500_and_never_half_an_answer(caplog):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/dies":
            await start(send, LENGTH)
            raise ValueError("between head and body")
        if scope["path"] == "/header":
            await start(send, LENGTH, (b"x", b"a\r\nset-cookie: b"))
        elif scope["path"] == "/short":
            await start(send, (b"content-length", b"3"))
        await body(send, b"ok")

    caplog.set_level(logging.CRITICAL, "uvicorn.error")
    for answer in answers(app, "/dies", "/header", "/short", "/nohead"):
        assert answer.startswith(b"HTTP/1.1 500 ") and answer.endswith(b"Internal Server Error")
        assert answer.count(b"HTTP/1.1") == 1 and b"set-cookie" not in answer


def test_whole_answers_keep_or_close_the_connection_as_they_should():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        closes = [(b"connection", b"close")] if scope["path"] == "/close" else []
        await start(send, LENGTH, *closes)
        await body(send, b"ok")

    async def play(port: int) -> tuple[bytes, bytes]:
        kept = f"GET /a HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        return await call(port, kept * 2 + kept.replace(b"/a", b"/close")), await call(
            port, request(port, "HEAD", "/a")
        )

    three, head = serve(app, play)
    assert three.count(b"HTTP/1.1 200 ") == 3 and three.count(b"\r\n\r\nok") == 3
    assert three.count(b"connection: close") == 1
    assert b"content-length: 2" in head and head.endswith(b"\r\n\r\n")


def test_a_streamed_answers_head_does_not_wait_and_a_cut_line_is_heard():
    lines: list[WebConnection] = []
    cut = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        line: WebConnection = scope["extensions"]["whet.line"]
        line.listen(cut.set)
        lines.append(line)
        await start(send, (b"content-type", b"text/event-stream"))
        await cut.wait()
        line.stop_listening(cut.set)

    async def play(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(port, "GET", "/"))
        head = await reader.readuntil(b"\r\n\r\n")  # before any of the body
        assert not lines[0].is_cut
        writer.close()
        await cut.wait()
        return head

    assert b"text/event-stream" in serve(app, play) and lines[0].is_cut


def test_a_connection_that_rests_is_closed_and_one_that_is_used_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One timer looks at a connection, however many answers it has given."""

    async def site(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    now, timers, closed, sent = [100.0], {}, [], []

    def call_later(wait_s: float, work: Any) -> Any:
        timer = SimpleNamespace(cancel=lambda: timers.pop(id(timer), None))
        timers[id(timer)] = (now[0] + wait_s, work)
        return timer

    config = uvicorn.Config(site, loop="none", log_config=None, timeout_keep_alive=75, lifespan="off")
    config.load()
    loop = asyncio.new_event_loop()
    protocol: Any = LimitedProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    monkeypatch.setattr(loop, "time", lambda: now[0])
    monkeypatch.setattr(loop, "call_later", call_later)
    protocol.connection_made(
        SimpleNamespace(
            is_closing=lambda: bool(closed),
            close=lambda: closed.append(now[0]),
            get_extra_info=lambda name: None,
            set_protocol=lambda protocol: None,
            resume_reading=lambda: None,
            write=sent.append,
        )
    )
    for now[0] in (100.0, 130.0, 140.0):
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        while protocol.tasks:
            loop.run_until_complete(asyncio.sleep(0))
    assert b"".join(sent).count(b"204 No Content") == 3
    for due_s in (175.0, 215.0):
        [(at_s, work)] = timers.values()
        timers.clear()
        assert at_s == due_s and not closed
        now[0] = at_s
        work()
    assert closed == [215.0] and not timers
    loop.close()
