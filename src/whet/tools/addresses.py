"""Refuse URLs that contain a private address, in any notation."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from whet.contract.errors import ToolDenied
from whet.internet import is_public


def refuse_private(url: str) -> None:
    """Raise ToolDenied if a URL contains a private address itself, in any notation.

    A host name's address is checked when it is connected to: resolving it here would reveal the name to
    others.
    """
    text = url.strip()
    try:
        host = (urlsplit(text if "://" in text else f"https://{text}").hostname or "").rstrip(".")
    except ValueError:
        return  # not a URL: the call will report that
    address = host if ":" in host else "127.0.0.1" if f".{host}".endswith(".localhost") else _plain(host)
    if address and not is_public(address):
        raise private_address_error(host, address)


def _plain(host: str) -> str:
    """Return an IPv4 address in its usual notation, read as the system does (0x7f.1, 2130706433), or an empty
    string for a name."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return ""


def private_address_error(host: str, address: str) -> ToolDenied:
    """Return the error for a host with a private address."""
    return ToolDenied(f"{host} is at the private or reserved address {address}; not fetched")
