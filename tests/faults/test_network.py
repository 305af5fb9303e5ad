"""The way to the model server: names, ports, proxies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.stories.program import Program, assert_requests_are_sound
from tests.support import ended, quiet_port
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


@dataclass
class Proxy:
    """An HTTP proxy on loopback that reaches one server whatever name is asked for, or refuses."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def proxy(server: PracticeServer, answer: bytes = b"") -> Iterator[Proxy]:
    """Forward to `server`, or give every client `answer` and hang up."""
    listener = socket.create_server(("127.0.0.1", 0))
    found = Proxy(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.settimeout(30)
            with client, suppress(OSError):
                head = client.recv(65_536)
                found.asked.append(head.split(b"\r\n", 1)[0].decode())
                if answer:
                    client.sendall(answer)
                    continue
                port = int(server.url.rpartition(":")[2])
                with socket.create_connection(("127.0.0.1", port), timeout=30) as upstream:
                    method, target, rest = head.split(b" ", 2)
                    path = b"/" + target.split(b"/", 3)[3]
                    upstream.sendall(b" ".join((method, path, rest)))
                    back = threading.Thread(target=pipe, args=(upstream, client), daemon=True)
                    back.start()
                    pipe(client, upstream)
                    ended(back, "the end of the answer")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)


def pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def server():
    with PracticeServer(script=[ScriptedReply("through")] * 3) as server:
        yield server


def at(root: Path, base_url: str) -> Program:
    """A program whose model server is at any address."""
    far = {"PROVIDER": "far", "BASE_URL": base_url, "MODEL": "practice"}
    return Program(root, environ={f"WHET_MODEL_{name}": value for name, value in far.items()})


def test_a_name_that_no_one_knows_is_named(tmp_path):
    done = at(tmp_path, "http://models.whet.invalid/v1").ask("?")
    done.assert_error("models.whet.invalid", "resolve", "base_url")
    assert done.row["end_reason"] == "failed"


def test_a_port_where_nobody_listens_is_named(tmp_path):
    port = quiet_port()
    done = at(tmp_path, f"http://127.0.0.1:{port}/v1").ask("?")
    done.assert_error(f"127.0.0.1:{port}", "connect")


@pytest.mark.slow
def test_a_url_that_is_none_is_refused_before_anything_is_stored(tmp_path):
    for url in ("not a url", "ftp://x/v1", "http://", "http://[::1/v1", "http://x:99999/v1"):
        for provider in ("far", ""):
            program = at(tmp_path / (provider + url.replace("/", "_")), url)
            done = program.ask("?", WHET_MODEL_PROVIDER=provider)
            done.assert_error("base_url")
            assert (done.row["session_id"], done.row["end_reason"]) == ("", "failed")


def test_a_proxy_is_the_way_out(tmp_path, server):
    with proxy(server) as way:
        program = at(tmp_path, "http://models.whet.invalid/v1")
        program.environ |= {"HTTP_PROXY": way.url, "NO_PROXY": ""}
        done = program.ask("?")
    assert (done.code, done.row["text"]) == (0, "through"), done
    assert way.asked == ["POST http://models.whet.invalid/v1/chat/completions HTTP/1.1"]
    assert_requests_are_sound(server)


def test_loopback_needs_no_proxy_where_that_is_said(tmp_path, server):
    program = at(tmp_path, server.base_url)
    program.environ |= {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    assert program.ask("?").row["text"] == "through"


@pytest.mark.slow
def test_a_proxy_that_wants_a_password_or_is_away_is_named(tmp_path, server):
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    with proxy(server, refusal) as way:
        program = at(tmp_path, "http://models.whet.invalid/v1")
        program.environ |= {"HTTP_PROXY": way.url, "NO_PROXY": ""}
        program.ask("?").assert_error("proxy")
    program.ask("?").assert_error("connect")
    assert server.count == 0


def test_proxy_settings_that_are_none_are_named(tmp_path, server):
    program = at(tmp_path, "http://models.whet.invalid/v1")
    program.environ |= {"HTTP_PROXY": "socks9://nowhere", "NO_PROXY": ""}
    done = program.ask("?")
    done.assert_error("proxy")
    assert done.row["end_reason"] == "failed"
