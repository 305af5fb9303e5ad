"""The client against servers that behave, and that don't: order, bounds, time limits, TLS, proxies, reuse."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.listening import Handler, listening
from tests.support import cancel_task, let_pass
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
PATIENT = Limits(connect_s=20, silence_s=20)
Ask = Callable[[HttpClient, str], Awaitable[Any]]


@asynccontextmanager
async def asking(
    serve: Handler, limits: Limits = PATIENT, **options: Any
) -> AsyncIterator[tuple[HttpClient, str]]:
    """A client, and the address of one server on loopback."""
    trust = options.pop("server", None)
    client = HttpClient(limits, **options)
    async with asyncio.timeout(400), listening(serve, trust=trust) as port:
        try:
            yield client, f"http{'s' if trust else ''}://localhost:{port}/"
        finally:
            await client.aclose()


def run(serve: Handler, ask: Ask, limits: Limits = PATIENT, **options: Any) -> Any:
    async def go() -> Any:
        async with asking(serve, limits, **options) as (client, url):
            return await ask(client, url)

    return asyncio.run(go())


async def get(client: HttpClient, url: str, **fields: Any) -> bytes:
    """The whole body of an answer."""
    async with client.exchange(Request("GET", url, {}, **fields)) as answer:
        return await answer.read(100_000_000)


async def failure(client: HttpClient, url: str, **fields: Any) -> HttpFailed:
    with pytest.raises(HttpFailed) as caught:
        await get(client, url, **fields)
    assert "\n" not in str(caught.value)
    return caught.value


def saying(*answers: bytes, hangs_up: bool = False) -> tuple[Handler, list[bytes]]:
    """A server that gives each request the next answer, the last one for good; and the heads it got."""
    heads: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(left.pop(0) if len(left) > 1 else left[0])
                await writer.drain()
                if hangs_up:
                    break
        writer.close()

    return serve, heads


async def test_head_and_body_leave_together():
    pieces: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces.append(await reader.read(1000))
        writer.write(OK)

    async with asking(serve) as (client, url):
        request = Request("POST", url + "a b?q=ü", {"x-y": "z"}, b"body")
        async with client.exchange(request) as answer:
            assert (answer.status, await answer.read(10)) == (200, b"ok")
    head, _, body = pieces[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /a%20b?q=%C3%BC HTTP/1.1" and body == b"body"
    assert b"x-y: z" in lines and b"content-length: 4" in lines


@pytest.mark.slow
def test_a_slow_reader_gets_everything_in_order_and_the_server_waits_for_it():
    sent = b"".join(b"%08d" % number for number in range(400_000))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        writer.close()

    async def ask(client: HttpClient, url: str) -> bytes:
        got = bytearray()
        async with client.exchange(Request("GET", url, {})) as answer:
            async for piece in answer.chunks():
                assert len(piece) <= 400_000
                got += piece
                await asyncio.sleep(0)
        return bytes(got)

    assert run(serve, ask) == sent


async def test_a_silent_server_and_one_that_takes_nothing_have_their_time():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with asking(serve, Limits(silence_s=0.05)) as (client, url):
        silent = await failure(client, url)
        assert (silent.stage, silent.is_timeout, silent.is_unsent) == ("read", True, False)
        full = await failure(client, url, body=b"x" * 20_000_000)
        assert (full.stage, full.is_timeout, full.is_unsent) == ("write", True, False)


def test_a_head_that_comes_byte_by_byte_is_no_progress():
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
        while sent < 300 and not writer.is_closing():
            writer.write(b"x")
            sent += 1
            for _ in range(20):  # until it is read
                await asyncio.sleep(0)
            let_pass(1)
        await asyncio.Event().wait()

    async def ask(client: HttpClient, url: str) -> HttpFailed:
        return await failure(client, url)

    slow = run(serve, ask, Limits(silence_s=30))
    assert slow.is_timeout and 25 <= sent <= 60


def test_silence_between_two_pieces_is_measured_from_the_last():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(6):
            writer.write(b"x")
            for _ in range(20):  # until it is read
                await asyncio.sleep(0)
            let_pass(20)
        let_pass(11)
        await asyncio.Event().wait()

    async def ask(client: HttpClient, url: str) -> bytes:
        got = b""
        with pytest.raises(HttpFailed, match=r"silent for 30 s"):
            async with client.exchange(Request("GET", url, {})) as answer:
                async for piece in answer.chunks():
                    got += piece
        return got

    assert run(serve, ask, Limits(silence_s=30)) == b"xxxxxx"


def test_small_pieces_that_follow_each_other_are_read_together():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(2_000):
            writer.write(b"x")
            await asyncio.sleep(0)  # the client reads in the same pass
        writer.close()

    async def ask(client: HttpClient, url: str) -> list[int]:
        async with client.exchange(Request("GET", url, {})) as answer:
            return [len(piece) async for piece in answer.chunks()]

    sizes = run(serve, ask)
    assert sum(sizes) == 2_000
    assert 2 <= len(sizes) < 1_000


async def test_a_connection_is_used_again_while_it_is_young_and_quiet():
    serve, heads = saying(OK)
    ports: list[int] = []

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(writer.get_extra_info("peername")[1])
        await serve(reader, writer)

    async with asking(counted, Limits(idle_s=60)) as (client, url):
        assert [await get(client, url) for _ in range(3)] == [b"ok"] * 3
        assert len(ports) == 1
        let_pass(61)
        assert await get(client, url) == b"ok" and len(ports) == 2
        await client.aclose()
        assert await get(client, url) == b"ok" and len(ports) == 3
    assert len(heads) == 5


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        OK + b"x",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
async def test_a_connection_that_may_not_be_used_again_is_closed(answer: bytes):
    serve, _ = saying(answer)
    opened: list[int] = []

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(1)
        await serve(reader, writer)

    async with asking(counted) as (client, url):
        assert [await get(client, url) for _ in range(2)] == [b"ok", b"ok"]
        assert len(opened) == 2


async def test_a_kept_connection_on_which_the_server_spoke_or_hung_up_is_not_used():
    wake = asyncio.Event()
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await wake.wait()
        writer.write(b"HTTP/1.1 408 Timeout\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        done.set()

    async with asking(serve) as (client, url):
        assert await get(client, url) == b"ok"
        wake.set()
        await done.wait()
        assert await get(client, url) == b"ok"


async def test_nothing_is_sent_twice():
    serve, heads = saying(OK, b"", hangs_up=False)

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    del serve
    async with asking(cut) as (client, url):
        assert await get(client, url) == b"ok"
        lost = await failure(client, url)
        assert lost.stage == "read" and not lost.is_unsent
    assert len(heads) == 2


async def test_a_body_that_ends_with_the_connection_is_whole_unless_that_breaks():
    has_half = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        if b"break" in head:
            await has_half.wait()
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    async with asking(serve) as (client, url):
        assert await get(client, url) == b"half"
        with pytest.raises(HttpFailed, match="reset"):
            async with client.exchange(Request("GET", url + "break", {})) as answer:
                async for piece in answer.chunks():
                    assert piece == b"half"
                    has_half.set()


async def test_an_answer_before_the_request_was_taken_is_read():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too large\r\ncontent-length: 3\r\n\r\nbig")
        await asyncio.Event().wait()

    async with asking(serve) as (client, url):
        request = Request("POST", url, {}, b"x" * 20_000_000)
        async with client.exchange(request) as answer:
            assert (answer.status, await answer.read(10)) == (413, b"big")


async def test_nobody_there_a_name_that_is_none_and_headers_that_are_two():
    client = HttpClient(Limits(connect_s=20))
    for url in ("http://127.0.0.1:1/", "http://nobody.invalid/", "https://127.0.0.1:1/"):
        away = await failure(client, url)
        assert (away.stage, away.is_unsent) == ("connect", True)
    for url in ("ftp://x/", "http://", "http://x:99999/", "x", "http://[::1/"):
        assert (await failure(client, url)).stage == "request"
    for headers in ({"a": "b\r\nevil: 1"}, {"a\r\nb": "c"}, {"a": "b\x00"}, {"a": "ü"}, {"": "b"}):
        with pytest.raises(HttpFailed) as caught:
            async with client.exchange(Request("GET", "http://127.0.0.1:1/", headers)):
                pass
        assert caught.value.stage == "request" and "evil" not in str(caught.value)


async def test_so_many_connections_and_no_more():
    serve, _ = saying(OK)
    now, most = [0], [0]

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await serve(reader, writer)
        now[0] -= 1

    async with asking(counted, Limits(max_connections=2)) as (client, url):
        assert await asyncio.gather(*[get(client, url) for _ in range(20)]) == [b"ok"] * 20
        async with client.exchange(Request("GET", url, {})), client.exchange(Request("GET", url, {})):
            full = await failure(client, url, silence_s=0.02)
            assert (full.stage, full.is_unsent, full.is_timeout) == ("wait", True, True)
    assert most[0] == 2


@pytest.mark.parametrize("kind", ["behind its end", "empty blocks"])
async def test_a_compression_that_goes_on_for_ever_is_stopped(kind: str):
    packer = zlib.compressobj(wbits=-15)
    first = packer.compress(b"text") + packer.flush(
        zlib.Z_FINISH if kind == "behind its end" else zlib.Z_SYNC_FLUSH
    )
    more = b"x" * 50_000 if kind == "behind its end" else b"\x00\x00\x00\xff\xff" * 10_000
    sent = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: deflate\r\n\r\n" + first)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(more)
                sent[0] += len(more)
                await writer.drain()
                await asyncio.sleep(0)

    async with asking(serve) as (client, url):
        if kind == "behind its end":
            assert await get(client, url) == b"text"
        else:
            assert (await failure(client, url)).stage == "body"
    assert sent[0] < 20_000_000


# TLS and proxies.


async def test_a_cancelled_request_closes_its_connection():
    gone = asyncio.Event()
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        while await reader.read(1000):
            pass
        gone.set()

    async with asking(serve) as (client, url):
        task = asyncio.create_task(get(client, url))
        await asked.wait()
        await cancel_task(task)
        await gone.wait()


@pytest.mark.slow
async def test_a_thousand_exchanges_leave_no_descriptor():
    serve, _ = saying(OK, hangs_up=True)
    async with asking(serve) as (client, url):
        await get(client, url)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(200):
            await get(client, url)
        while len(os.listdir("/proc/self/fd")) > before + 4:  # until the last ones are closed
            await asyncio.sleep(0)
