"""ASGI middleware that protects a server which browsers can reach.

It refuses requests whose Host is not ours (DNS rebinding) and requests made by another site's page (Origin,
Sec-Fetch-Site), and adds security headers to every answer. It knows nothing about logins.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.contract.errors import ConfigError

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types whet",
    )
)
# Not `no-referrer`: a browser would then send `Origin: null` with our own form, which we could not recognise.
HEADERS: tuple[tuple[bytes, bytes], ...] = tuple(
    (name.encode(), value.encode())
    for name, value in (
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    )
)
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@\\?#\s]+))(?::\d{1,5})?")
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class SiteAddress(msgspec.Struct, frozen=True):
    """The addresses of a site: its host names in lower case without port, and its public URL, if any."""

    names: frozenset[str] = LOCAL_NAMES
    public_url: str = ""

    @property
    def is_secure(self) -> bool:
        """Whether people reach it by https, so that cookies may be marked secure."""
        return self.public_url.startswith("https://")


def make_site_address(bind_host: str, public_url: str = "", extra_names: Iterable[str] = ()) -> SiteAddress:
    """Return a site's address. Its names are loopback, the bind address, the public host and `extra_names`.

    Raises ConfigError for a public address that is not an http(s) URL or has a path.
    """
    names = {*LOCAL_NAMES, *(name.lower() for name in extra_names)}
    if bind_host not in ("", "0.0.0.0", "::"):
        names.add(bind_host.lower())
    public_url = public_url.rstrip("/")
    if public_url:
        try:
            parts = urlsplit(public_url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.path
        except ValueError:
            parts, is_usable = None, False
        if parts is None or not is_usable or parts.query or parts.fragment or parts.username:
            raise ConfigError(
                f"public URL {public_url!r} is not usable", hint="for example https://confirm.example.org"
            )
        names.add((parts.hostname or "").lower())
    return SiteAddress(frozenset(names), public_url)


def plain_error(status: int, reason: str) -> object:
    """Return the body of a refusal as a JSON object."""
    return {"error": reason}


class SiteGuard:
    """An ASGI app around another that refuses requests not meant for this site.

    A wrong Host is answered with 421, another site's request with 403; `as_error` builds the JSON body.
    Requests without an Origin pass, because programs send none. A form's handler must check that there is one
    (`has_origin`).
    """

    def __init__(
        self, app: ASGIApp, site: SiteAddress, as_error: Callable[[int, str], object] = plain_error
    ) -> None:
        self._app = app
        self._site = site
        self._as_error = as_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the app, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        refusal = self._refusal(scope, headers)
        if refusal:
            status, reason = refusal
            await _refuse(send, status, msgspec.json.encode(self._as_error(status, reason)))
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                pairs = list(message.get("headers", ()))
                names = {name.lower() for name, _ in pairs}
                pairs += [pair for pair in HEADERS if pair[0] not in names]
                message = {**message, "headers": pairs}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host, scope):
            return 421, "this server does not answer under that host name"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and not self._is_own_origin(origin, host):
            return 403, "requests from other sites are refused"
        site = headers.get(b"sec-fetch-site", b"")
        if site in (b"cross-site", b"same-site") and scope["method"] not in _SAFE:
            return 403, "requests from other sites are refused"
        return None

    def _is_ours(self, host: str, scope: Scope) -> bool:
        name = host_name(host)
        if name in self._site.names:
            return True
        # An IP address in the Host header can't be rebound, but it must be the one that was called.
        server = scope.get("server")
        try:
            return bool(server) and ipaddress.ip_address(name) == ipaddress.ip_address(server[0])
        except ValueError:
            return False

    def _is_own_origin(self, origin: str, host: str) -> bool:
        return origin in (f"http://{host}", f"https://{host}", self._site.public_url)


def has_origin(headers: Mapping[str, str]) -> bool:
    """Return whether a request has an Origin header. `SiteGuard` has already compared its value."""
    return bool(headers.get("origin"))


def host_name(host: str) -> str:
    """Return the name of a Host header in lower case without port and brackets, or an empty string if it is
    invalid."""
    match = HOST.fullmatch(host)
    return (match[1] or match[2]).lower().rstrip(".") if match else ""


def _headers(scope: Scope) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        # With two Host or Origin headers, a proxy may read either, so neither is trusted.
        headers[name] = b"\0" if name in headers and name in (b"host", b"origin") else value
    return headers


async def _refuse(send: Send, status: int, body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"cache-control", b"no-store"),
                *HEADERS,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
