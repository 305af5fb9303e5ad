"""Which proxy is set for a host: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, or the system's own settings.

One answer for everything that talks HTTP. Makes no connection.
"""

from __future__ import annotations

import ipaddress
import os
import sys

_HAS_SYSTEM_SETTINGS = sys.platform in ("darwin", "win32")


def proxy_for(scheme: str, host: str) -> str:
    """Give the URL of the proxy for a request of this scheme to this host; empty for the direct way."""
    if not _HAS_SYSTEM_SETTINGS and not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - 15 ms of CPU, and few have a proxy

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(host) or _is_in_network(host, proxies.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_in_network(host: str, no_proxy: str) -> bool:
    """Whether NO_PROXY names a network, such as 192.168.0.0/16, that the address `host` lies in."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    for name in no_proxy.split(","):
        try:
            if "/" in name and address in ipaddress.ip_network(name.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
