"""Find the host of the addresses in a call's details, and compare two calls to it.

Only texts that are plain http addresses are read as such. Programs read many other spellings as addresses
(`//host`, `host:port`, `user@host:path`), so two calls count as alike only if everything else is equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast
from urllib.parse import unquote, urlsplit

_MAX_DECODINGS = 3


def shared_host(details: object) -> str:
    """Return the host, like https://example.org, that all addresses in the details share.

    Returns "" if there is no address, if hosts differ, or if an address is part of a longer text.
    """
    hosts = {_url_host(text) for text in _texts(details) if "://" in text}
    return hosts.pop() if len(hosts) == 1 else ""


def has_same_host(approved: object, details: object, host: str) -> bool:
    """Return whether details equal the approved ones, except for what stands behind `host` in an address."""
    if type(approved) is not type(details):
        return False
    if isinstance(approved, dict) and isinstance(details, dict):
        fields, others = cast("dict[str, object]", approved), cast("dict[str, object]", details)
        return fields.keys() == others.keys() and all(
            has_same_host(fields[name], others[name], host) for name in fields
        )
    if isinstance(approved, list) and isinstance(details, list):
        items, others = cast("list[object]", approved), cast("list[object]", details)
        return len(items) == len(others) and all(
            has_same_host(item, other, host) for item, other in zip(items, others, strict=True)
        )
    if approved == details:
        return True
    if isinstance(approved, str) and isinstance(details, str):
        return _url_host(approved) == _url_host(details) == host
    return False


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, object]", value).items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _texts(inner)


def _url_host(text: str) -> str:
    """Return scheme, host and port of a plain http address, or "" if the text may be read in another way."""
    if not text.isascii() or not text.isprintable() or any(sign in text for sign in " \\;|`'\"<>"):
        return ""
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and text[len(parts.scheme) :].startswith("://")
        is_valid = is_valid and parts.username is None
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if not is_valid or not host or _holds_address(f"{parts.path}?{parts.query}#{parts.fragment}"):
        return ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port}" if port else f"{parts.scheme}://{host}"


def _holds_address(text: str) -> bool:
    """Return whether the part behind a host holds another address, also in percent-encoding."""
    for _ in range(_MAX_DECODINGS):
        if "//" in text or "\\" in text:
            return True
        text = unquote(text)
    return "%" in text
