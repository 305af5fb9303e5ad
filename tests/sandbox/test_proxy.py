"""The way to allowed hosts, through a real jail and real sockets, and what is refused there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import ssl
import struct
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from whet.sandbox import proxy
from whet.sandbox.hosts import expand_hosts, read_package_indexes
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.policy import EVERYWHERE, PRIVATE_TOO
from whet.sandbox.proxy import ProxyRefused, read_request
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.system_folders import PolicyAdditions, default_policy
from whet.sandbox.tunnel_names import NotReadable, read_tunnel_host


def test_a_name_that_leads_home_is_refused() -> None:
    with pytest.raises(ProxyRefused, match="not a public address"):
        proxy.connect("localhost", 80)
    for address in ("2130706433", "168.63.129.16", "64:ff9b::a83f:8110"):
        with pytest.raises(ProxyRefused):
            proxy.connect(address, 80)


def test_every_host_is_none_of_this_machines() -> None:
    for address in ("localhost", "127.0.0.1", "169.254.169.254", "168.63.129.16", *own_addresses()):
        with pytest.raises(ProxyRefused, match="this machine's own or its cloud's"):
            proxy.connect(address, 80, private=True)


def answer_of(hosts: tuple[str, ...], target: str) -> bytes:
    """Return what a proxy with this list answers to a request for a tunnel. Without an answer the request was
    let through to an address that leads nowhere."""
    served = proxy.Proxy(socket.create_server(("127.0.0.1", 0)), hosts, connect_s=0.001)
    try:
        with socket.create_connection(("127.0.0.1", served.port), 30) as client:
            client.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
            with client.makefile("rb") as answer:
                return answer.read()
    finally:
        served.close()


def test_a_named_host_of_a_private_network_is_reached() -> None:
    for hosts in (("10.255.255.1", PRIVATE_TOO), ("*.255.1", PRIVATE_TOO), (EVERYWHERE,)):
        answer = answer_of(hosts, "10.255.255.1:9")
        assert answer.startswith(b"HTTP/1.1 502"), hosts
        assert b"\r\n\r\nthe sandbox's proxy: " in answer, "a person who reads only the body reads why"
    for hosts in (("10.255.255.1",), ("*", PRIVATE_TOO), ("10.255.255.2", PRIVATE_TOO)):
        assert answer_of(hosts, "10.255.255.1:9").startswith(b"HTTP/1.1 403"), hosts
    for address in ("127.0.0.1", "169.254.169.254", "100.100.100.200", *own_addresses()):
        for hosts in ((address, PRIVATE_TOO), (EVERYWHERE,)):
            assert b"this machine's own or its cloud's" in answer_of(hosts, f"{address}:9")


def own_addresses() -> list[str]:
    """Return the IPv4 addresses of this machine's interfaces."""
    texts: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(asked, 0x8915, struct.pack("256s", name.encode()))
                texts.append(socket.inet_ntoa(answer[20:24]))
    return texts


def _hello(name: str | None) -> bytes:
    """Return the first bytes of a TLS client that wants this server."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    context.check_hostname = name is not None
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def test_a_tunnels_first_bytes_name_its_host() -> None:
    hello = _hello("Inside.Example.com")
    assert read_tunnel_host(hello) == "inside.example.com"
    assert [read_tunnel_host(hello[:at]) for at in range(len(hello))] == [None] * len(hello)
    assert read_tunnel_host(_hello(None)) == ""
    assert read_tunnel_host(b"SSH-2.0-OpenSSH_9\r\n") == ""
    assert read_tunnel_host(b"\0\0\0\x08") == ""
    assert (
        read_tunnel_host(b"GET / HTTP/1.1\r\nAccept: x\r\nhost:  Evil.example:80\r\n\r\n") == "evil.example"
    )
    assert read_tunnel_host(b"GET / HTTP/1.1\r\nHost: x") is None
    two = b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n"
    broken = b"\x16\x03\x01\x00\x20" + hello[5:37]
    for data in (two, broken):
        with pytest.raises(NotReadable):
            read_tunnel_host(data)


@pytest.mark.parametrize("name", ["localhost", "other.example"])
def test_a_tunnel_to_an_allowed_host_is_for_no_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "is_public", lambda text: text.startswith(("127.", "::1")))
    hello = _hello(name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        served = proxy.Proxy(socket.create_server(("127.0.0.1", 0)), ("localhost",))
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % server.getsockname()[1])
            with server.accept()[0] as end:
                assert client.recv(100).startswith(b"HTTP/1.1 200")
                client.sendall(hello[:50])
                client.sendall(hello[50:])
                received = end.recv(len(hello), socket.MSG_WAITALL)
        served.close()
    assert received == (hello if name == "localhost" else b"")
    assert served.refused == ([] if name == "localhost" else ["other.example"])


def test_requests() -> None:
    tunnel = read_request(b"CONNECT Example.com.:443 HTTP/1.1\r\nHost: x")
    assert (tunnel.host, tunnel.port, tunnel.head) == ("example.com", 443, b"")
    plain = read_request(b"GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\nProxy-Connection: x")
    assert plain.head == b"GET /a?b HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
    other = read_request(b"GET http://example.com:81/ HTTP/1.1\r\nHost: evil.example")
    assert other.head == b"GET / HTTP/1.1\r\nHost: example.com:81\r\nConnection: close\r\n\r\n"
    for head in (b"GET / HTTP/1.1", b"nonsense", b"GET file:///etc/passwd HTTP/1.1", b"CONNECT x HTTP/1.1"):
        with pytest.raises(ValueError):
            read_request(head)


@pytest.mark.parametrize("case", ENGINES[:2], ids=str)
def test_allowed_hosts_and_no_others(
    case: EngineCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address check is told that loopback is public: there is no other server in a test."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(proxy, "is_public", lambda text: text.startswith(("127.", "::1")))
        (tmp_path / "ws").mkdir()
        policy = default_policy(
            tmp_path / "ws", tmp_path / "whet", os.environ, PolicyAdditions(hosts=["localhost"])
        )
        scratch = Scratch()
        jail = Jail(JailPlan(case.engine(), policy, scratch, Path.home()))
        try:
            inside = {**jail.environment(os.environ), "NO_PROXY": "", "no_proxy": ""}
            text = (
                f"curl -s -m 5 -o /dev/null -w '%{{http_code}} ' http://other.example:{port}/;"
                f"curl -s -m 5 http://127.0.0.1:{port}/ -x '' ; echo $?;"
                f"curl -s -m 5 http://localhost:{port}/path"
            )
            run = JailedCommand(["bash", "-c", text], inside, policy.workspace)
            null = os.open(os.devnull, os.O_RDWR)
            reading, writing = os.pipe()
            started = jail.spawn(run, (null, writing, null))
            os.close(writing)
            client, _ = server.accept()
            with client:
                assert client.recv(4096).startswith(b"GET /path HTTP/1.1\r\n")
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere")
            assert started.wait(20) == 0
            with os.fdopen(reading) as printed:
                assert printed.read() == "403 7\nthere"
            os.close(null)
            assert jail.take_refused_hosts() == ["other.example"]
            assert jail.received_bytes == len("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere")
        finally:
            jail.close()
            scratch.close()


@pytest.mark.slow
def test_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".npmrc").write_text("registry=https://npm.corp.example/\n@x:registry=https://x.example/\n")
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://pip.corp.example/simple\n")
    given = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    assert {"npm.corp.example", "x.example", "pip.corp.example"} <= set(read_package_indexes(given))
    assert "npm.corp.example" in expand_hosts(["package-indexes"], given)
    assert "github.com" in expand_hosts(["code-hosts"], {})
    assert expand_hosts(["A.example"], {}) == ("a.example",)


def test_package_indexes_without_settings_are_those_that_pip_and_npm_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs here print other defaults, and are used only if no setting names an index."""
    programs = {"python3": "echo pip.example files.example", "npm": "echo https://npm.example/"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_hosts(["package-indexes"], {}) == ("pip.example", "files.example", "npm.example")
    given = {"PIP_INDEX_URL": "https://pip.corp.example/simple"}
    assert expand_hosts(["package-indexes"], given) == ("pip.corp.example", "npm.example")
    (tmp_path / ".npmrc").write_text("registry=https://npm.corp.example/\n")
    assert expand_hosts(["package-indexes"], given) == ("pip.corp.example", "npm.corp.example")
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert expand_hosts(["package-indexes"], {}) == ("npm.corp.example",)


def test_the_default_index_is_asked_of_the_first_python_that_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment may have no pip. An index that a setting names may serve its files elsewhere."""
    for folder, text in {"first": "exit 1", "second": "echo pip.example files.example"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python3").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / folder / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/first:{tmp_path}/second")
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ({}, {"PIP_INDEX_URL": "https://pip.example/simple"}):
        assert expand_hosts(["package-indexes"], given) == ("pip.example", "files.example")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm")
def test_the_real_npm_names_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_hosts(["package-indexes"], {"PIP_INDEX_URL": "https://pip.corp.example/simple"})[1:]
