"""Find addresses that no command may reach without a question: metadata services of clouds, which hand out
keys, and Whet's own servers on this machine.

Recognises every notation of an address that resolvers accept.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import socket
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from whet.approval.risk import RiskScope
from whet.internet import canonical_host
from whet.late import late_pattern

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NETWORKS = "169.254.0.0/16 100.100.100.200/32 192.0.0.192/32 168.63.129.16/32 fd00:ec2::/32 fe80::/10"
_METADATA = tuple(map(ipaddress.ip_network, _NETWORKS.split()))
_NAMES = late_pattern(
    r"(^|\.)(metadata(\.\w+)*|instance-data(\.\w+)*|metadata\.google\.internal)$", re.IGNORECASE
)
_LOOPBACK = late_pattern(
    r"(.*\.)?(localhost|localhost\.localdomain|ip6-localhost|localtest\.me|lvh\.me)$", re.IGNORECASE
)
# Names that contain their address: 169.254.169.254.nip.io, 169-254-169-254.sslip.io, a9fea9fe.nip.io
_EMBEDDED_ADDRESS = late_pattern(
    r"(\d+[.-]\d+[.-]\d+[.-]\d+)\.|(?<![\w-])([0-9a-f]{8})\.(?=[a-z])", re.IGNORECASE
)
_HOSTS = late_pattern(
    r"(?:[a-z][\w+.-]*://)?(?:[^\s/@'\"]*@)?(\[[0-9a-f:.%]+\]|[\w.-]+)(?::(\d+))?(?=[/?#:,'\"\s)\]]|$)",
    re.IGNORECASE,
)
_NAT = ipaddress.ip_network("64:ff9b::/96")


def find_forbidden_address(texts: Iterable[str], scope: RiskScope) -> str:
    """Return the reason why an address in `texts` must not be reached, or an empty string."""
    for text in texts:
        # Normalise as clients do: circled digits are digits, and an ideographic full stop is a dot.
        plain = unicodedata.normalize("NFKC", text[:10_000]).replace("\u3002", ".")
        for match in _HOSTS.finditer(plain):
            host, port = match[1].strip("[]").rstrip("."), match[2]
            if is_metadata(host):
                return f"reaches a cloud's metadata service, which gives out keys: {host}"
            if scope.own_ports and port and int(port) in scope.own_ports and is_this_machine(host):
                return f"reaches a port that Whet's own servers use: {host}:{port}"
    return ""


def url_spellings(url: str) -> tuple[str, ...]:
    """Return other addresses and hosts that mean the same as `url`, for deny and ask rules: without percent
    signs and `..` in its path, with the host that is connected to, with a scheme. Raises ValueError."""
    parts = urlsplit(url if ":" in url.split("/", 1)[0] else f"https://{url}")
    if not parts.hostname:
        return ()
    hosts = [canonical_host(parts.hostname)]
    hosts += ["127.0.0.1"] if f".{hosts[0]}".endswith((".localhost", ".ip6-localhost")) else []
    hosts += ["localhost"] if hosts[0] in ("127.0.0.1", "::1") else []
    paths = dict.fromkeys((parts.path or "/", plain_path(parts.path)))
    queries = dict.fromkeys(f"?{query}" if query else "" for query in (parts.query, unquote(parts.query)))
    port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    servers = [f"[{host}]{port}" if ":" in host else f"{host}{port}" for host in hosts]
    urls = [f"{parts.scheme}://{s}{path}{query}" for s in servers for path in paths for query in queries]
    return (*hosts, *urls)


def plain_path(path: str) -> str:
    """Return the path that a server reads: `/%70rivate` and `/a/../private` are `/private`."""
    decoded = unquote(path)
    plain = "/" + posixpath.normpath(f"/{decoded}").lstrip("/")
    return f"{plain}/" if decoded.endswith("/") and plain != "/" else plain


def is_metadata(host: str) -> bool:
    """Return whether this host, a name or an address in any notation, is a cloud's metadata service."""
    if _NAMES.search(host):
        return True
    return any(address in network for address in _addresses(host) for network in _METADATA)


def is_this_machine(host: str) -> bool:
    """Return whether this host, a name or an address in any notation, is this machine."""
    return _LOOPBACK.match(host) is not None or any(
        address.is_loopback or address.is_unspecified for address in _addresses(host)
    )


def _addresses(host: str) -> list[_Address]:
    """Return the addresses that a host's text denotes: the address, and the IPv4 address embedded in it."""
    host = host.split("%")[0]
    if spelled := _EMBEDDED_ADDRESS.search(host + "."):
        host = spelled[1].replace("-", ".") if spelled[1] else f"0x{spelled[2]}"
    try:
        if ":" not in host:
            # As the C library parses it: 2852039166, 0xA9FEA9FE, 0251.0376.0251.0376, 127.1.
            return [ipaddress.IPv4Address(socket.inet_aton(host))] if re.match(r"\d", host) else []
        address = ipaddress.IPv6Address(host)
    except (ValueError, OSError):
        return []
    inner: _Address | None = address.ipv4_mapped or address.sixtofour
    if inner is None and (address in _NAT or int(address) >> 32 == 0):
        inner = ipaddress.IPv4Address(address.packed[-4:])
    return [address, inner] if inner is not None else [address]
