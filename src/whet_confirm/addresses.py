"""Check webhook addresses: resolve the host once, refuse private addresses, connect to the checked address.

The connection goes to the address that was checked, so a name that resolves differently a moment later
can't redirect it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

import msgspec

from whet.contract.errors import WhetError
from whet.internet import is_public

_NOT_HTTP = "not an http or https address"


class AddressRefused(WhetError):
    """Raised for a webhook address that may not be called."""


class Target(msgspec.Struct, frozen=True):
    """A checked address: connect to `url`, send `host_header` as the Host header and `server_name` to TLS."""

    url: str
    host_header: str
    server_name: str


def split_callback_url(url: str) -> SplitResult:
    """Parse a webhook address. Raises AddressRefused if it is not a plain http or https address."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # brackets, letters or a port that no valid address has
        raise AddressRefused(_NOT_HTTP) from error
    if not is_valid or parts.username is not None or not url.isascii() or not url.isprintable() or " " in url:
        raise AddressRefused(_NOT_HTTP)
    return parts


def check_literal(url: str, *, allow_private: bool) -> None:
    """Raise AddressRefused if the host is a private IP address in any notation. Names are not resolved."""
    host = split_callback_url(url).hostname or ""
    try:
        rows = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:  # a name
        return
    _check_public(host, [str(row[4][0]) for row in rows], allow_private=allow_private)


def _check_public(host: str, addresses: Iterable[str], *, allow_private: bool) -> None:
    if not allow_private and not all(is_public(address) for address in addresses):
        raise AddressRefused(f"{host} is a private address; --allow-private-callbacks permits that")


async def resolve(url: str, *, allow_private: bool) -> Target:
    """Check an address and return where to connect.

    Raises AddressRefused, or OSError if the host can't be resolved.
    """
    parts = split_callback_url(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(row[4][0]).partition("%")[0]) for row in rows]
    if not addresses:
        raise AddressRefused(f"{host} has no address")
    _check_public(host, map(str, addresses), allow_private=allow_private)
    first = addresses[0]
    literal = f"[{first}]" if first.version == 6 else str(first)
    path = parts.path or "/"
    query = f"?{parts.query}" if parts.query else ""
    return Target(f"{parts.scheme}://{literal}:{port}{path}{query}", parts.netloc, host)
