"""Which addresses are of the public internet (address blocks: IANA special-purpose registries, 2026)."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from whet.contract.errors import ToolDenied

_CLOSED_V4 = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        "168.63.129.16/32",  # Azure's host channel, inside public space
    )
)
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    ipaddress.IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


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


def is_public(address: str) -> bool:
    """Whether an IP address is of the public internet; an IPv6 form that holds an IPv4 one counts as that."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped
        if inner is None and parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is None:
            return parsed in _OPEN_V6 and not any(parsed in block for block in _CLOSED_V6)
        parsed = inner
    return not any(parsed in block for block in _CLOSED_V4)
