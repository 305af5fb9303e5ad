"""Refuses URLs that name an address of no public network, in whatever notation."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from whet.contract.errors import ToolDenied
from whet.internet import is_public


def refuse_private(url: str) -> None:
    """Raise ToolDenied for a URL that names a private address itself, in whatever notation. What a name
    leads to is seen when it is connected to: asking for it here would tell it to others."""
    text = url.strip()
    try:
        host = (urlsplit(text if "://" in text else f"https://{text}").hostname or "").rstrip(".")
    except ValueError:
        return  # it is no URL: the call says so
    address = host if ":" in host else "127.0.0.1" if f".{host}".endswith(".localhost") else _plain(host)
    if address and not is_public(address):
        raise closed(host, address)


def _plain(host: str) -> str:
    """Give an IPv4 address in its usual notation, as the system reads 0x7f.1 or 2130706433; "" for a name."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return ""


def closed(host: str, address: str) -> ToolDenied:
    """Give the error for a host that is inside."""
    return ToolDenied(f"{host} is at the private or reserved address {address}; not fetched")
