"""Every request of a sandbox's connection is for an allowed host, however requests follow each other."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from whet.sandbox import proxy
from whet.sandbox.tunnel_names import NotReadable
from whet.sandbox.tunnel_requests import TunnelFilter

GOOD = b"GET /a HTTP/1.1\r\nHost: good.example\r\n\r\n"
EVIL = b"GET /b HTTP/1.1\r\nHost: evil.example\r\n\r\n"
UPGRADE = b"GET /s HTTP/1.1\r\nHost: good.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


class Refused(Exception):
    """Raised for the host that is not allowed."""


def allow(host: str) -> None:
    if host not in ("good.example", ""):
        raise Refused(host)


def post(fields: bytes, body: bytes) -> bytes:
    return b"POST /p HTTP/1.1\r\nHost: good.example\r\n" + fields + b"\r\n\r\n" + body


LED_TO_ANOTHER_HOST = {
    "second": GOOD + EVIL,
    "third": GOOD + GOOD + EVIL,
    "empty-lines": GOOD + b"\r\n\r\n" + EVIL,
    "after-body": post(b"Content-Length: 4", b"body") + EVIL,
    "after-chunks": post(b"Transfer-Encoding: chunked", b"4;x=y\r\nbody\r\n0\r\nX: y\r\n\r\n") + EVIL,
    "short-length": post(b"Content-Length: 0", b"") + EVIL,
    "two-lengths": post(b"Content-Length: 90\r\nContent-Length: 0", b"") + EVIL,
    "length-and-chunks": post(b"Content-Length: 90\r\nTransfer-Encoding: chunked", b"0\r\n\r\n") + EVIL,
    "signed-length": post(b"Content-Length: +90", b"") + EVIL,
    "list-of-lengths": post(b"Content-Length: 90, 90", b"") + EVIL,
    "other-coding": post(b"Transfer-Encoding: xchunked", b"0\r\n\r\n") + EVIL,
    "two-codings": post(b"Transfer-Encoding: gzip, chunked", b"0\r\n\r\n") + EVIL,
    "blank-before-colon": b"GET / HTTP/1.1\r\nHost : evil.example\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\nX: y\r\n Host: evil.example\r\n\r\n",
    "lone-line-end": b"GET / HTTP/1.1\nHost: evil.example\n\n\r\n\r\n",
    "lone-end-in-first-line": b"GET / HTTP/1.1\nContent-Length: 90\r\nHost: good.example\r\n\r\n" + EVIL,
    "lone-end-in-field": GOOD[:-4] + b"\r\nX: y\nContent-Length: 90\r\n\r\n" + EVIL,
    "two-blanks": b"GET  / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "tab": b"GET\t/\tHTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "lower-case": b"get / http/1.1\r\nHost: evil.example\r\n\r\n",
    "blank-at-end": b"GET / HTTP/1.1 \r\nHost: evil.example\r\n\r\n",
    "absolute": b"GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "second-is-not-http": GOOD + b"\x16\x03\x01\x00\x05" + EVIL,
    "upgrade-ignored": UPGRADE + EVIL,
    "upgrade-second": GOOD + UPGRADE + EVIL,
    "upgrade-with-body": post(b"Upgrade: x\r\nContent-Length: 1", b"x") + EVIL,
    "wrong-chunk": post(b"Transfer-Encoding: chunked", b"2\r\nbody\r\n0\r\n\r\n") + EVIL,
    "chunk-sign": post(b"Transfer-Encoding: chunked", b"0x0\r\n\r\n") + EVIL,
}


@pytest.mark.fast_rows("-7")
@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize("name", LED_TO_ANOTHER_HOST)
def test_no_request_of_a_connection_reaches_another_host(name: str, step: int) -> None:
    requests, data, sent = TunnelFilter(allow), LED_TO_ANOTHER_HOST[name], b""
    try:
        for start in range(0, len(data), step):
            sent += requests.check(data[start : start + step])
        sent += requests.note_answer(b"HTTP/1.1 200 OK\r\n\r\n")
    except (Refused, NotReadable):
        pass
    assert b"evil.example" not in sent


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_allowed_requests_pass_unchanged(step: int) -> None:
    chunks = b"4;x=y\r\nbody\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
    data = GOOD + post(b"Content-Length: 4", b"GET ") + post(b"Transfer-Encoding: Chunked", chunks) + GOOD
    requests = TunnelFilter(allow)
    assert b"".join(requests.check(data[n : n + step]) for n in range(0, len(data), step)) == data
    others = (b"SSH-2.0-OpenSSH_9\r\n\x00\x01", b"\0\0\0\x08rest", b"0032git-upload-pack /p\0host=x\0")
    for data in others:
        assert TunnelFilter(allow).check(data) == data


def test_a_changed_protocol_passes_after_the_server_agreed() -> None:
    requests = TunnelFilter(allow)
    assert requests.check(UPGRADE + b"\x81\x05") == UPGRADE
    assert requests.note_answer(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Swit") == b""
    assert requests.note_answer(b"ching Protocols\r\n\r\n") == b"\x81\x05"
    assert requests.check(b"hello") == b"hello"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[proxy.Proxy]:
    """A proxy that allows localhost, whose address counts as public: there is no other server in a test."""

    def is_loopback(text: str) -> bool:
        return text.startswith(("127.", "::1"))

    monkeypatch.setattr(proxy, "is_public", is_loopback)
    served = proxy.Proxy(socket.create_server(("127.0.0.1", 0)), ("localhost",))
    yield served
    served.close()


@pytest.mark.parametrize("tunnel", [True, False], ids=["tunnel", "plain"])
def test_a_connections_second_request_to_another_host_is_refused(served: proxy.Proxy, tunnel: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = b"localhost:%d" % server.getsockname()[1]
        first = b"POST /a HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\nab" % name
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            if tunnel:
                client.sendall(b"CONNECT %s HTTP/1.1\r\n\r\n" % name)
                assert client.recv(100).startswith(b"HTTP/1.1 200")
            client.sendall(first if tunnel else first.replace(b"/a", b"http://%s/a" % name))
            with server.accept()[0] as end:
                received = b""
                while not received.endswith(b"ab"):
                    received += end.recv(10_000)
                client.sendall(EVIL)
                after = b"".join(iter(lambda: end.recv(10_000), b""))
    assert received.startswith(b"POST /a ") and after == b""
    assert served.refused == (["evil.example"] if tunnel else [])
