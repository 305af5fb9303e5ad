"""Check every plain HTTP request that a sandbox sends through a connection, not only the first.

A server, or a content network before it, answers each request of a connection for the host that it names. So
requests are separated here as a server separates them (RFC 9112), and one whose end two servers could see in
different places is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from whet.late import late_pattern
from whet.sandbox.tunnel_names import NotReadable, is_http, read_tunnel_host

_MAX_HEAD_BYTES = 65_536
_FIELD = late_pattern(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_SIZE_LINE = late_pattern(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\r\n\0]*)?")
_STATUS = late_pattern(rb"HTTP/1\.1 (\d\d\d)[ \r]")


class TunnelFilter:
    """Passes the bytes that a client sends after each request's host is known and allowed.

    Bytes that are not HTTP pass as they are after `allow` has seen the name in TLS's first message. `allow`
    raises to refuse a host. With `first_head` the first request's head was sent already and is the only one.
    """

    def __init__(self, allow: Callable[[str], None], first_head: bytes = b"") -> None:
        self._allow = allow
        self._pending = b""
        self._is_first, self._is_last = True, bool(first_head)
        self._read: Callable[[], bytes] = self._read_start
        self._body_bytes = 0
        self._answer = b""
        if first_head:
            self._begin_body(first_head)

    def check(self, data: bytes) -> bytes:
        """Return the bytes that may be sent now. Raises NotReadable, or what `allow` raises."""
        self._pending += data
        sent = b""
        while self._pending and (part := self._read()):
            sent += part
        return sent

    def note_answer(self, data: bytes) -> bytes:
        """Read the server's bytes, and return those of the client that wait for an answer and may be sent
        now: after "101 Switching Protocols" the connection is no longer HTTP."""
        if self._read != self._wait_for_answer:
            return b""
        self._answer += data
        while b"\r\n\r\n" in self._answer:
            status = _STATUS.match(self._answer)
            if status is None or not status[1].startswith(b"1"):
                break
            if status[1] == b"101":
                self._read = self._take_all
                return self.check(b"")
            self._answer = self._answer.partition(b"\r\n\r\n")[2]
        else:
            if len(self._answer) <= _MAX_HEAD_BYTES:
                return b""
        self._read = self._read_head
        return self.check(b"")

    def _read_start(self) -> bytes:
        kind = is_http(self._pending)
        if kind is None:
            return b""
        if kind:
            self._read = self._read_head
            return self._read_head()
        host = read_tunnel_host(self._pending)
        if host is None:
            return b""
        self._allow(host)
        self._read = self._take_all
        return self._take_all()

    def _take_all(self) -> bytes:
        sent, self._pending = self._pending, b""
        return sent

    def _wait_for_answer(self) -> bytes:
        if len(self._pending) > _MAX_HEAD_BYTES:
            raise NotReadable("too much was sent before the server changed the protocol")
        return b""

    def _read_head(self) -> bytes:
        data = self._pending.lstrip(b"\r\n")  # a server skips empty lines before a request (RFC 9112, 2.2)
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            if len(data) > _MAX_HEAD_BYTES:
                raise NotReadable("the request's head is too long")
            return b""
        if self._is_last:
            raise NotReadable("one connection carries one request to the proxy")
        host = read_tunnel_host(head + end)
        self._allow(host or "")
        self._pending = rest
        self._begin_body(head)
        self._is_first = False
        return head + end

    def _begin_body(self, head: bytes) -> None:
        fields = read_fields(head)
        lengths = fields.get(b"content-length", [])
        codings = fields.get(b"transfer-encoding", [])
        if len(lengths) + len(codings) > 1:
            raise NotReadable("the request's length is stated twice")
        if codings:
            if codings[0].lower() != b"chunked":
                raise NotReadable("the request's transfer coding is not known")
            self._read = self._read_chunk_size
        elif lengths:
            if not re.fullmatch(rb"\d{1,15}", lengths[0]):
                raise NotReadable("the request's length is not a number")
            self._body_bytes = int(lengths[0])
            self._read = self._read_body if self._body_bytes else self._read_head
        else:
            self._read = self._read_head
        if b"upgrade" in fields and not self._is_last:
            if not self._is_first or self._read != self._read_head:
                raise NotReadable(
                    "only a connection's first request, without a body, may change the protocol"
                )
            self._read = self._wait_for_answer

    def _read_body(self) -> bytes:
        sent, self._pending = self._pending[: self._body_bytes], self._pending[self._body_bytes :]
        self._body_bytes -= len(sent)
        if not self._body_bytes:
            self._read = self._read_head
        return sent

    def _take_line(self) -> bytes | None:
        line, end, rest = self._pending.partition(b"\r\n")
        if not end:
            if len(line) > _MAX_HEAD_BYTES:
                raise NotReadable("a line of the request's body is too long")
            return None
        if b"\n" in line or b"\r" in line:
            raise NotReadable("a line of the request's body is broken")
        self._pending = rest
        return line

    def _read_chunk_size(self) -> bytes:
        line = self._take_line()
        if line is None:
            return b""
        size = _SIZE_LINE.fullmatch(line)
        if size is None:
            raise NotReadable("the size of a chunk is not a number")
        self._body_bytes = int(size[1], 16)
        self._read = self._read_chunk if self._body_bytes else self._read_trailer
        return line + b"\r\n"

    def _read_chunk(self) -> bytes:
        sent = self._read_body()
        self._read = self._read_chunk if self._body_bytes else self._read_chunk_end
        return sent

    def _read_chunk_end(self) -> bytes:
        if len(self._pending) < len(b"\r\n"):
            return b""
        if not self._pending.startswith(b"\r\n"):
            raise NotReadable("a chunk is longer than its size")
        self._pending = self._pending[2:]
        self._read = self._read_chunk_size
        return b"\r\n"

    def _read_trailer(self) -> bytes:
        line = self._take_line()
        if line is None:
            return b""
        if not line:
            self._read = self._read_head
        elif _FIELD.fullmatch(line) is None:
            raise NotReadable("a trailer of the request is broken")
        return line + b"\r\n"


def read_fields(head: bytes) -> dict[bytes, list[bytes]]:
    """Return the fields of a request's head by their names in lower case. Raises NotReadable for a line that
    two servers could read differently: folded, with a space before the colon, or with a lone line end."""
    fields: dict[bytes, list[bytes]] = {}
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if b"\n" in first or b"\r" in first:
        raise NotReadable("the request's first line is broken")
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise NotReadable("a line of the request's head is broken")
        fields.setdefault(field[1].lower(), []).append(field[2].strip())
    return fields
