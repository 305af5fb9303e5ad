"""Parse a request's URL once, and encode the head of a request as bytes.

Characters that could end a line early are refused, so that no value can inject a header or a request.
Errors never quote a header, because it may be a key.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import SplitResult, quote, unquote

import msgspec

from whet.contract.texts import PORTS, split_http_url
from whet.http1.failure import HttpFailed

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
_TARGET = re.compile(r"[\x21-\x7e]+")


class Address(msgspec.Struct, frozen=True):
    """A URL in the form that a connection needs.

    `host` is the host to connect to, `server_name` the name that the certificate must have, `authority`
    the Host header; `user` is `Basic ...` if the URL contains a user name.
    """

    scheme: str
    host: str
    port: int
    target: str
    authority: str
    server_name: str
    user: str = ""

    @property
    def is_secure(self) -> bool:
        """Whether it uses TLS."""
        return self.scheme == "https"


def parse_address(url: str) -> Address:
    """Parse a URL. Raises HttpFailed if it is not an http(s) URL."""
    parts = split_http_url(url)
    if parts is None:
        raise HttpFailed("request", "not an http or https URL")
    name = parts.hostname or ""
    try:
        host = name if name.isascii() else name.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise HttpFailed("request", "the URL's host is no name") from error
    port = parts.port or PORTS[parts.scheme]
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~") or "/"
    query = f"?{quote(parts.query, safe='/%:@!$&()*+,;=~?')}" if parts.query else ""
    host_text = f"[{host}]" if ":" in host else host
    return Address(
        scheme=parts.scheme,
        host=host,
        port=port,
        target=path + query,
        authority=host_text if port == PORTS[parts.scheme] else f"{host_text}:{port}",
        server_name=host,
        user=basic_auth(parts),
    )


def basic_auth(parts: SplitResult) -> str:
    """Return the authorization header for the credentials in a URL, or an empty string."""
    if not (parts.username or parts.password):
        return ""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def encode_head(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Encode a request's head. Raises HttpFailed for an invalid header name or value."""
    head = _encode_lines(method, target, tuple(headers.items()))
    if body is None and method not in ("POST", "PUT", "PATCH"):
        return head + b"\r\n"
    return b"%bcontent-length: %d\r\n\r\n" % (head, len(body or b""))


@lru_cache(maxsize=64)  # a session sends the same headers repeatedly, and checking them takes longer
def _encode_lines(method: str, target: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    if not (_NAME.fullmatch(method) and _TARGET.fullmatch(target)):
        raise HttpFailed("request", "a method or path that can't be sent")
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise HttpFailed("request", "a header's name can't be sent")
        if not _VALUE.fullmatch(value):
            raise HttpFailed("request", f"the header {name.lower()} has characters that can't be sent")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("ascii")
