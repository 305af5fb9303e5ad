"""The sockets under the model's pool: in order, bounded, with time limits, and an end that is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from tests.listening import listening, self_signed
from whet.providers.network import WireBackend

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Play = Callable[[httpcore2.AsyncNetworkStream], Awaitable[Any]]


def run(serve: Serve, play: Play) -> Any:
    async def go() -> Any:
        async with asyncio.timeout(40), listening(serve) as port:
            stream = await WireBackend().connect_tcp("127.0.0.1", port, timeout=20)
            try:
                return await play(stream)
            finally:
                await stream.aclose()

    return asyncio.run(go())


def test_head_and_body_leave_together_when_the_answer_is_read() -> None:
    pieces: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces.append(await reader.read(1000))
        writer.write(b"yes")
        writer.close()

    async def play(stream: httpcore2.AsyncNetworkStream) -> list[bytes]:
        await stream.write(b"head ")
        await stream.write(b"body")
        return [await stream.read(1000, 20), await stream.read(1000, 20)]

    assert run(serve, play) == [b"yes", b""]
    assert pieces == [b"head body"]


def test_a_slow_reader_gets_everything_in_order() -> None:
    sent = b"".join(b"%08d" % number for number in range(400_000))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.close()

    async def play(stream: httpcore2.AsyncNetworkStream) -> bytes:
        got = bytearray()
        while piece := await stream.read(10_000, 20):
            got += piece
            await asyncio.sleep(0)
        return bytes(got)

    assert run(serve, play) == sent


def test_a_silent_peer_and_one_that_takes_nothing_have_their_time() -> None:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async def play(stream: httpcore2.AsyncNetworkStream) -> None:
        try:
            with pytest.raises(httpcore2.ReadTimeout):
                await stream.read(10, 0.05)
            with pytest.raises(httpcore2.WriteTimeout):
                for _ in range(100):
                    await stream.write(b"x" * 1_000_000, 0.05)
        finally:
            over.set()

    run(serve, play)


def test_the_end_of_a_resting_connection_is_seen() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()
        gone.set()

    async def play(stream: httpcore2.AsyncNetworkStream) -> None:
        await gone.wait()
        assert stream.get_extra_info("is_readable")
        assert await stream.read(10, 20) == b""
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"more")

    run(serve, play)


def test_nobody_there_is_a_connect_error() -> None:
    async def go() -> None:
        with pytest.raises(httpcore2.ConnectError):
            await WireBackend().connect_tcp("127.0.0.1", 1, timeout=20)

    asyncio.run(go())


def _secured(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side and a client's that trusts it, for localhost."""
    certificate = self_signed(folder, "localhost")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=str(certificate))


async def _pages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request of a connection with its own body, in small pieces and a large one."""
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        except asyncio.IncompleteReadError:
            writer.close()
            return
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        body = await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for piece in (body[:3], body[3:7], body[7:]):
            writer.write(piece)
            await writer.drain()


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that knows CONNECT alone."""
    asked = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split(" ")[:2]
    assert asked[0] == "CONNECT"
    far_reader, far_writer = await asyncio.open_connection(*asked[1].split(":"))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))


@pytest.mark.parametrize("proxied", ["", "http", "https"])
def test_tls_carries_requests_one_after_the_other_also_through_a_proxy(tmp_path: Path, proxied: str) -> None:
    server, client = _secured(tmp_path)
    bodies = [b"small", b"", bytes(range(256)) * 8_000]

    async def go() -> list[bytes]:
        async with (
            asyncio.timeout(40),
            listening(_pages, trust=server) as port,
            listening(_tunnel, trust=server if proxied == "https" else None) as proxy_port,
        ):
            trusted = client if proxied == "https" else None
            proxy = httpcore2.Proxy(f"{proxied or 'http'}://localhost:{proxy_port}", ssl_context=trusted)
            async with httpcore2.AsyncConnectionPool(
                ssl_context=client, proxy=proxy if proxied else None, network_backend=WireBackend()
            ) as pool:
                url = f"https://localhost:{port}/"
                got = [(await pool.request("POST", url, content=body)).content for body in bodies]
                assert len(pool.connections) == 1
        return got

    assert asyncio.run(go()) == bodies


def test_tls_is_refused_for_another_name(tmp_path: Path) -> None:
    server, client = _secured(tmp_path)

    async def go() -> None:
        async with asyncio.timeout(40), listening(_pages, trust=server) as port:
            stream = await WireBackend().connect_tcp("127.0.0.1", port, timeout=20)
            with pytest.raises(httpcore2.ConnectError, match=r"doesn't match|not valid for"):
                await stream.start_tls(client, "other.test", timeout=20)

    asyncio.run(go())


def test_what_came_before_the_handshake_is_never_taken_for_an_answer(tmp_path: Path) -> None:
    """Somebody between the two can send it; the handshake itself goes well."""
    server, client = _secured(tmp_path)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
        with contextlib.suppress(OSError):
            await writer.start_tls(server)
            await reader.read()

    async def play(stream: httpcore2.AsyncNetworkStream) -> None:
        while not stream.get_extra_info("is_readable"):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)  # it is read in the pass of the loop that follows
        await asyncio.sleep(0)
        with pytest.raises(httpcore2.ConnectError):
            await stream.start_tls(client, "localhost", timeout=20)

    run(serve, play)
