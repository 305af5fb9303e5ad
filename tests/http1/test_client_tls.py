"""The client with TLS and through proxies."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from pathlib import Path

import pytest

from tests.http1.test_client import OK, asking, failure, get, run, saying
from tests.listening import Handler, listening, self_signed
from whet.contract.errors import ConfigError
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed


def secured(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side and a client's that trusts it, for localhost."""
    certificate = self_signed(folder, "localhost", "far.invalid")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=str(certificate))


async def pages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request of a connection with its own body, in small pieces and a large one."""
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        body = await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for piece in (body[:3], body[3:7], body[7:]):
            writer.write(piece)
            await writer.drain()


def tunnel(asked: list[str], extra: bytes = b"") -> Handler:
    """A proxy that knows CONNECT and SOCKS 5; `extra` is what it says beyond its answer. Every far host is
    this machine."""

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x02" if 2 in methods else b"\x05\x00")
        if 2 in methods:
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            asked.append(
                f"{user.decode()}:{(await reader.readexactly((await reader.readexactly(1))[0])).decode()}"
            )
            writer.write(b"\x01\x00")
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        port = str(int.from_bytes(await reader.readexactly(2)))
        asked.append(f"SOCKS {host}:{port}")
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00" + extra)
        return port

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"\x05":
            port = await socks(reader, writer)
        else:
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            asked.append(head)
            method, where, _ = head.split(" ", 2)
            assert method == "CONNECT"
            port = where.rpartition(":")[2]
            writer.write(b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n" + extra)
        far_reader, far_writer = await asyncio.open_connection("localhost", int(port))
        try:
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        finally:
            far_writer.close()  # or the far server waits for a client that is gone

    return serve


@pytest.mark.fast_rows("https", "socks5h")
@pytest.mark.parametrize("proxied", ["", "http", "https", "socks5", "socks5h"])
def test_tls_carries_requests_one_after_the_other_also_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: str
):
    server, trust = secured(tmp_path)
    bodies = [b"small", b"", bytes(range(256)) * 8_000]
    asked: list[str] = []

    async def ask(client: HttpClient, url: str) -> list[bytes]:
        proxy = tunnel(asked)
        async with listening(proxy, trust=server if proxied == "https" else None) as port:
            if proxied:
                url = url.replace("localhost", "far.invalid")
                monkeypatch.delenv("NO_PROXY", raising=False)
                monkeypatch.setenv("HTTPS_PROXY", f"{proxied}://ann:p%40ss@localhost:{port}")
            got: list[bytes] = []
            for body in bodies:
                async with client.exchange(Request("POST", url, {}, body)) as answer:
                    got.append(await answer.read(10_000_000))
            await client.aclose()
            return got

    assert run(pages, ask, server=server, trust=trust) == bodies
    fields = {
        "": [],
        "socks5": ["ann:p@ss", "SOCKS far.invalid"],
        "socks5h": ["ann:p@ss", "SOCKS far.invalid"],
    }
    if proxied in fields:
        assert [line.rpartition(":")[0] if "SOCKS" in line else line for line in asked] == fields[proxied]
    else:
        assert len(asked) == 1 and "proxy-authorization: Basic YW5uOnBAc3M=" in asked[0]


def test_a_proxy_takes_a_request_in_the_clear_itself(monkeypatch: pytest.MonkeyPatch):
    serve, heads = saying(OK)

    async def ask(client: HttpClient, url: str) -> bytes:
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("HTTP_PROXY", url.replace("//", "//ann:secret@"))
        return await get(client, "http://far.invalid/way?x=1")

    assert run(serve, ask) == b"ok"
    lines = heads[0].split(b"\r\n")
    assert lines[0] == b"GET http://far.invalid/way?x=1 HTTP/1.1" and b"host: far.invalid" in lines
    assert b"proxy-authorization: Basic YW5uOnNlY3JldA==" in lines
    assert not any(line.startswith(b"authorization") for line in lines)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_what_a_proxy_says_beyond_its_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
):
    server, trust = secured(tmp_path)

    async def ask(client: HttpClient, url: str) -> HttpFailed:
        async with listening(tunnel([], b"HTTP/1.1 200 OK\r\n\r\nevil")) as port:
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://localhost:{port}")
            return await failure(client, url.replace("localhost", "far.invalid"))

    failed = run(pages, ask, server=server, trust=trust)
    assert failed.is_unsent and "came before" in str(failed)


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 407 No\r\n\r\n", b"nonsense\r\n\r\n", b"", b"x" * 100_000, b"\x05\x01\x00"]
)
async def test_a_proxy_that_refuses_or_speaks_nonsense_is_named(monkeypatch: pytest.MonkeyPatch, said: bytes):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(said)
        writer.close()

    async with asking(serve) as (_client, url):
        monkeypatch.delenv("NO_PROXY", raising=False)
        for scheme in ("http", "socks5"):
            monkeypatch.setenv("HTTPS_PROXY", url.replace("http", scheme))
            other = HttpClient(Limits(connect_s=20))
            failed = await failure(other, "https://far.invalid/")
            assert failed.is_unsent and failed.stage == "proxy", failed


async def test_proxy_settings_that_are_none_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "socks9://nowhere")
    with pytest.raises(ConfigError, match="proxy"):
        await get(HttpClient(Limits()), "http://far.invalid/")


async def test_tls_is_refused_for_another_name_and_an_unknown_certificate(tmp_path: Path):
    server, trust = secured(tmp_path)
    async with asking(pages, server=server, trust=trust) as (client, url):
        other = await failure(client, url, host="other.test", server_name="other.test")
        assert other.stage == "connect" and isinstance(other.__cause__, ssl.SSLCertVerificationError)
        unknown = await failure(HttpClient(Limits()), url)
        assert isinstance(unknown.__cause__, ssl.SSLCertVerificationError)
        async with client.exchange(Request("POST", url, {}, b"yes")) as answer:
            assert await answer.read(9) == b"yes"


def test_what_came_before_the_handshake_is_never_taken_for_an_answer(tmp_path: Path):
    """Somebody between the two can send it; the handshake itself goes well."""
    server, trust = secured(tmp_path)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
        with contextlib.suppress(OSError):
            await writer.start_tls(server)
            await reader.read()

    async def ask(client: HttpClient, url: str) -> HttpFailed:
        return await failure(client, url.replace("http:", "https:"))

    assert run(serve, ask, trust=trust).stage == "connect"
