"""Read which host the bytes at the beginning of a tunnel are for: TLS's server name, or a request's Host.

Many hosts share an address (content networks, clouds), and the name in the tunnel decides which one answers.
"""

from __future__ import annotations

import contextlib

from whet.late import late_pattern

_RECORD_HEAD, _HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 5, 22, 1, 0, 0
_MAX_HEAD_BYTES = 65_536
# A request's first line (RFC 9112, 3); a method may be any token. Servers also take lines with more blanks.
_REQUEST = late_pattern(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ (\S+) HTTP/[\d.]+\r?\n")
_LENIENT_REQUEST = late_pattern(rb"(?i)[^\r\n\0]*[ \t]HTTP/\d[^\r\n\0]*\r?\n")
_MAYBE_REQUEST = late_pattern(rb"[ \t!#$%&'*+.^_`|~0-9A-Za-z-][^\r\n\0]*\r?")
_ABSOLUTE = late_pattern(rb"(?i)https?://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)")
_HOST = late_pattern(rb"(?im)^host:[ \t]*(\[[^\]\r\n]*\]|[^\s:]*)")


class NotReadable(ValueError):
    """The beginning of a tunnel is TLS or HTTP, but not such that its host can be read."""


def read_tunnel_host(data: bytes) -> str | None:
    """Return the host that a tunnel's first bytes name, "" if they name none, or None if more are needed.

    Bytes that are neither TLS nor HTTP name none. Raises NotReadable.
    """
    if not data:
        return None
    if data[0] == _HANDSHAKE:
        end = _RECORD_HEAD + int.from_bytes(data[3:_RECORD_HEAD]) if len(data) >= _RECORD_HEAD else 0
        return _read_server_name(data[_RECORD_HEAD:end]) if end and len(data) >= end else None
    if (kind := is_http(data)) is not True:
        return None if kind is None else ""
    data = data.lstrip(b"\r\n")
    request = _REQUEST.match(data)
    if request is None:
        raise NotReadable("the request's first line is broken")
    if data.startswith(b"PRI "):
        raise NotReadable("the request is HTTP/2 without TLS")
    if b"\r\n\r\n" not in data:
        if len(data) > _MAX_HEAD_BYTES:
            raise NotReadable("the request's head is too long")
        return None
    hosts = {host.strip(b"[]") for host in _HOST.findall(data.partition(b"\r\n\r\n")[0])}
    if absolute := _ABSOLUTE.match(request[1]):  # it goes before the Host header (RFC 9112, 3.2.2)
        hosts.add(absolute[1].strip(b"[]"))
    if len(hosts) > 1:
        raise NotReadable("the request names two hosts")
    return _decode(hosts.pop()) if hosts else ""


def is_http(data: bytes) -> bool | None:
    """Return whether a connection's first bytes are an HTTP request, or None if more are needed. Raises
    NotReadable."""
    data = data.lstrip(b"\r\n")  # a server skips empty lines before a request (RFC 9112, 2.2)
    if _LENIENT_REQUEST.match(data):
        return True
    if not data or _MAYBE_REQUEST.fullmatch(data):
        if len(data) > _MAX_HEAD_BYTES:
            raise NotReadable("the request's head is too long")
        return None
    return False


def _read_server_name(message: bytes) -> str:
    """Read the server's name from a ClientHello (RFC 8446, 4.1.2; RFC 6066, 3)."""
    reader = _Reader(message)
    if reader.number(1) != _CLIENT_HELLO:
        raise NotReadable("the tunnel begins with no ClientHello")
    hello = _Reader(reader.block(3))
    hello.take(34)  # version and random
    for size in (1, 2, 1):  # session, cipher suites, compression
        hello.block(size)
    if not hello.left:
        return ""
    extensions = _Reader(hello.block(2))
    while extensions.left:
        kind, body = extensions.number(2), _Reader(extensions.block(2))
        if kind == _SERVER_NAME:
            names = _Reader(body.block(2))
            if names.number(1) == _HOST_NAME:
                return _decode(names.block(2))
    return ""


class _Reader:
    """Reads numbers and blocks with their length before them. Raises NotReadable at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def left(self) -> int:
        return len(self._data)

    def take(self, count: int) -> bytes:
        if count > len(self._data):
            raise NotReadable("the ClientHello is broken, or in several records")
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def block(self, size: int) -> bytes:
        return self.take(self.number(size))


def _decode(host: bytes) -> str:
    with contextlib.suppress(UnicodeDecodeError):
        return host.decode("ascii").rstrip(".").lower()
    raise NotReadable("the host's name is not ASCII")
