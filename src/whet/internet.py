"""Decide whether an IP address belongs to the public internet, or at least to another machine.

The address blocks are those of IANA's special-purpose registries, 2026.
"""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from contextlib import suppress

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
# Addresses at which clouds hand a machine its own credentials. The blocks around them are private or local.
_METADATA = tuple(
    ipaddress.ip_network(block)
    for block in ("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::/32")
)


def is_other_machine(address: str) -> bool:
    """Return whether an IP address can be another machine's, also in a private network.

    Returns False for loopback, link-local, multicast, unspecified and cloud metadata addresses, and for text
    that is not an address. Addresses of this machine's own interfaces are not recognised.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and not parsed.ipv4_mapped and parsed in _NAT64:
        parsed = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return False
    if parsed in ipaddress.ip_network("0.0.0.0/8") or parsed in ipaddress.ip_network("240.0.0.0/4"):
        return False
    return not any(parsed in block for block in _METADATA)


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet. An IPv6 form of an IPv4 address counts as
    that address."""
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


def canonical_host(host: str) -> str:
    """Return the one spelling of a host that all its spellings connect to.

    `127.1` and `2130706433` are spellings of 127.0.0.1, letters and dots may be full-width, and the
    unspecified address (`0`, `::`) connects to this machine.
    """
    host = _plain_host(host)
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _plain_host(host: str) -> str:
    name = unicodedata.normalize("NFKC", host).replace("\u3002", ".").rstrip(".").lower()
    with suppress(UnicodeError):
        name = name.encode("idna").decode("ascii") if not name.isascii() else name
    with suppress(OSError, ValueError):
        if ":" in name:
            address = ipaddress.IPv6Address(name)
            return str(address.ipv4_mapped or address)
        return socket.inet_ntoa(socket.inet_aton(name)) if name[:1].isdigit() else name
    return name
