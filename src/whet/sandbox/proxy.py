"""The only connection from a jail to other hosts: an HTTP proxy with a list of allowed hosts.

The launcher creates the listening socket inside and hands it over, so that nothing outside reaches it. Names
are resolved here; an address that is not public is refused, whatever its name. If `may_be_private`, only
this machine's addresses and those of clouds' credentials are refused. The connection goes to the address that
was checked. TLS passes through unopened, if the server's name in it is on the list too; in plain HTTP each
request is checked. Hosts and bytes are logged.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import msgspec

from whet.internet import is_other_machine, is_public
from whet.sandbox.policy import may_be_private, names_host
from whet.sandbox.tunnel_requests import TunnelFilter, read_fields

log: logging.Logger = logging.getLogger("whet.sandbox")
_HEAD_BYTES = 65_536
_CHUNK_BYTES = 65_536
_CONNECT_S, _IDLE_S = 15.0, 300.0
_MAX_CONNECTIONS = 128
_HOP = (b"host:", b"proxy-connection:", b"proxy-authorization:", b"connection:", b"keep-alive:")


class ProxyRefused(Exception):
    """Raised if the list, or the address behind a name, forbids a connection; the message says which."""


class ProxyRequest(msgspec.Struct, frozen=True):
    """A request to the proxy: a tunnel, or (with `head`) one plain request to forward."""

    host: str
    port: int
    head: bytes = b""


class Proxy:
    """Serves one sandbox until `close`.

    `refused` are requested hosts that are not on the list. `received_bytes` counts the bytes received from
    hosts, before the sandbox gets them. `connect_s`: how long a host may take to accept a connection.
    """

    def __init__(
        self, listener: socket.socket, hosts: Sequence[str], *, connect_s: float = _CONNECT_S
    ) -> None:
        self.refused: list[str] = []
        self.received_bytes: int = 0
        self.port: int = listener.getsockname()[1]
        self._hosts = tuple(hosts)
        self._connect_s = connect_s
        self._listener = listener
        self._connection_slots = threading.Semaphore(_MAX_CONNECTIONS)
        self._count_lock = threading.Lock()
        threading.Thread(target=self._accept, name="sandbox-proxy", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._connection_slots.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                client.settimeout(_IDLE_S)
                self._forward(client)
            except ProxyRefused as refused:
                _answer(client, b"403 Forbidden", str(refused))
            except (OSError, ValueError) as error:
                log.info("the sandbox's proxy: %s", error)
                _answer(client, b"502 Bad Gateway", f"the sandbox's proxy: {error}")
            finally:
                self._connection_slots.release()

    def _forward(self, client: socket.socket) -> None:
        head, body_start = _read_head(client)
        request = read_request(head)
        if not names_host(self._hosts, request.host):
            self.refused.append(request.host)
            raise ProxyRefused(f"{request.host} is not an allowed host of the sandbox")
        private = may_be_private(self._hosts, request.host)
        with connect(request.host, request.port, private=private, connect_s=self._connect_s) as server:
            requests = TunnelFilter(lambda host: self._allow_inner(host, request.host), request.head)
            client.sendall(b"" if request.head else b"HTTP/1.1 200 Connection established\r\n\r\n")
            server.sendall(request.head + requests.check(body_start))
            up, down = _pump(client, server, self._count_received, requests)
        log.info("the sandbox reached %s:%d, %d bytes up, %d down", request.host, request.port, up, down)

    def _allow_inner(self, host: str, outer: str) -> None:
        """Raise ProxyRefused if the host that a tunnel's bytes name is not allowed."""
        if host and not names_host((*self._hosts, outer), host):
            self.refused.append(host)
            raise ProxyRefused(f"{host} is not an allowed host of the sandbox")

    def _count_received(self, count: int) -> None:
        with self._count_lock:
            self.received_bytes += count


def read_request(head: bytes) -> ProxyRequest:
    """Parse a request's head. Raises ValueError if it is not a request to a proxy."""
    read_fields(head)
    first, _, header_lines = head.partition(b"\r\n")
    method, target, version = first.decode("ascii").split(" ")
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        return ProxyRequest(_normalise_host(host), int(port))
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("not a request to a proxy")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [line for line in header_lines.split(b"\r\n") if line and not line.lower().startswith(_HOP)]
    named = f"Host: {parts.netloc.rpartition('@')[2]}".encode()  # the request's own could name another host
    sent = b"\r\n".join(
        [f"{method} {path} {version}".encode(), named, *lines, b"Connection: close", b"", b""]
    )
    return ProxyRequest(_normalise_host(parts.hostname), parts.port or 80, sent)


def connect(host: str, port: int, *, private: bool = False, connect_s: float = _CONNECT_S) -> socket.socket:
    """Connect to a host. Raises ProxyRefused if one of its addresses is not public; with `private`, only if
    one is this machine's."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, _, _, _, address in addresses:
        text = str(address[0])
        if private and (not is_other_machine(text) or _is_own(family, text)):
            raise ProxyRefused(f"{host} leads to {text}, which is this machine's own or its cloud's")
        if not private and not is_public(text):
            raise ProxyRefused(f"{host} leads to {text}, which is not a public address")
    last: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in addresses:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(connect_s)
            connection.connect(address)
            connection.settimeout(_IDLE_S)
            return connection
        except OSError as error:
            connection.close()
            last = error
    raise last


def _is_own(family: int, address: str) -> bool:
    """Return whether this machine has an address on one of its interfaces: only then can a socket be bound to
    it."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _normalise_host(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def _answer(client: socket.socket, status: bytes, text: str) -> None:
    """Send an answer of one line, as far as the client still listens."""
    body = f"{text}\n".encode()
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    with contextlib.suppress(OSError):
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Read a request's head. Returns it without the empty line, and the bytes after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(_CHUNK_BYTES)
        if not part or len(data) > _HEAD_BYTES:
            raise ValueError("no request")
        data += part
    head, _, remainder = data.partition(b"\r\n\r\n")
    return head, remainder


def _pump(
    client: socket.socket, server: socket.socket, received: Callable[[int], None], requests: TunnelFilter
) -> tuple[int, int]:
    """Pass bytes both ways until both sides have ended. Returns the number of bytes sent up and down.

    `received` is called with each count of bytes before the client gets them. `requests` holds back the
    client's bytes until they may be sent.
    """
    counts = {client: 0, server: 0}
    other = {client: server, server: client}
    with selectors.DefaultSelector() as selector:
        for side in other:
            selector.register(side, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(_IDLE_S)
            if not ready:
                break
            for key, _ in ready:
                source = client if key.fd == client.fileno() else server
                data = source.recv(_CHUNK_BYTES)
                if data:
                    counts[source] += len(data)
                    if source is server:
                        received(len(data))
                        client.sendall(data)
                        server.sendall(requests.note_answer(data))
                    else:
                        server.sendall(requests.check(data))
                    continue
                selector.unregister(source)
                with contextlib.suppress(OSError):
                    other[source].shutdown(socket.SHUT_WR)
    return counts[client], counts[server]
