"""Which addresses are of the public internet (address blocks: IANA special-purpose registries, 2026)."""

from __future__ import annotations

import ipaddress

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
