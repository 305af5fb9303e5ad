"""Find out how to log in at a server over HTTP, and check the metadata of its authorization server.

Addresses must be https (http only if both the address and the server are on this machine), the issuer must be
the requested one, and PKCE with S256 must be offered. A server of the specification 2025-03-26, which had no
resource metadata, is its own authorization server, with metadata at its origin or the default paths.

Sources: MCP specifications 2025-03-26 and 2025-11-25 (authorization), RFC 9728, 8414.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import msgspec

from whet.config.key_hosts import is_loopback
from whet.contract.texts import NOT_JSON, from_foreign_json
from whet.mcp.callback import LoginFailed
from whet.mcp.challenge import Challenge
from whet.mcp.login import fetch
from whet.mcp.transport import VERSION_HEADER
from whet.rpc import VERSIONS
from whet.visible import visible

_SESSION = "mcp-session-id"


class LoginServer(msgspec.Struct, frozen=True):
    """The login of a server: the resource's name, the scopes to request, and the authorization server's
    metadata."""

    resource: str
    scope: str
    metadata: Mapping[str, Any]

    def endpoint(self, name: str) -> str:
        """Return one of its endpoints, or an empty string."""
        return str(self.metadata.get(name) or "")

    @property
    def auth_methods(self) -> list[str]:
        """The ways in which clients may send their secret to the token endpoint; empty if unspecified."""
        return _texts(self.metadata.get("token_endpoint_auth_methods_supported"))

    @property
    def takes_documents(self) -> bool:
        """Whether a client may identify itself by the address of a document about it."""
        return self.metadata.get("client_id_metadata_document_supported") is True


class _Resource(msgspec.Struct, frozen=True):
    """A server's resource metadata. `is_described` False: the server has none, and defaults are used."""

    name: str
    authority: str
    scopes: list[str]
    is_described: bool = True


async def discover(
    http: httpx2.AsyncClient, url: str, stored: Challenge, rights: tuple[str, ...]
) -> LoginServer | None:
    """Ask the server how to log in. Returns None if it needs no login.

    `stored` is its stored challenge, `rights` are those of the previous login. Raises LoginFailed and
    httpx2's errors.
    """
    challenge = await _find_challenge(http, url, stored)
    if challenge is None:
        return None
    resource = await _find_resource(http, url, challenge)
    metadata = await _find_authority(http, url, resource)
    scopes = challenge.scopes
    if stored.wants_more:
        scopes = tuple(dict.fromkeys((*rights, *scopes, *stored.scopes)))
    return LoginServer(resource.name, " ".join(scopes or resource.scopes), metadata)


async def _find_challenge(http: httpx2.AsyncClient, url: str, stored: Challenge) -> Challenge | None:
    """Return the challenge with which the server refuses the handshake or its list of tools, else the stored
    one, or None if there is neither."""
    hello = {
        "protocolVersion": VERSIONS[0],
        "capabilities": {},
        "clientInfo": {"name": "whet", "version": "0"},
    }
    status, headers = await _send_request(http, url, "initialize", hello, {})
    if status < 300:
        session = {_SESSION: headers[_SESSION]} if _SESSION in headers else {}
        extra_headers = {**session, VERSION_HEADER: VERSIONS[0]}
        list_status, list_headers = await _send_request(http, url, "tools/list", {}, extra_headers)
        if session:
            await http.delete(url, headers=extra_headers)
        if list_status == 401:
            status, headers = list_status, list_headers
    if status == 401:
        return Challenge(url, headers.get("www-authenticate", ""))
    if stored.header or status < 300:
        return stored if stored.header else None
    raise LoginFailed(
        f"the server answered HTTP {status}, not 401, so it offers no login", hint="is its url right?"
    )


async def _send_request(
    http: httpx2.AsyncClient, url: str, method: str, params: dict[str, Any], extra_headers: Mapping[str, str]
) -> tuple[int, httpx2.Headers]:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        **extra_headers,
    }
    async with http.stream("POST", url, content=body, headers=headers) as response:
        return response.status_code, response.headers


async def _find_resource(http: httpx2.AsyncClient, url: str, challenge: Challenge) -> _Resource:
    """Return the server's resource metadata, or defaults if it has none."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    named_address = challenge.parameter("resource_metadata")
    path = parts.path.rstrip("/")
    path_addresses = [f"{origin}/.well-known/oauth-protected-resource{path}"] if path else []
    addresses = (
        [named_address]
        if named_address
        else [*path_addresses, f"{origin}/.well-known/oauth-protected-resource"]
    )
    for address in addresses:
        document = await _fetch_document(http, url, address)
        if not document:
            continue
        name = str(document.get("resource") or "")
        if not _covers(name, url):
            raise LoginFailed(
                f"the server says that it is {visible(name, 200)}, which is not {url}",
                hint="set the url to that address if it is right",
            )
        servers = _texts(document.get("authorization_servers"))
        return _Resource(name, servers[0] if servers else origin, _texts(document.get("scopes_supported")))
    return _Resource(url, origin, [], is_described=bool(named_address))


async def _find_authority(http: httpx2.AsyncClient, url: str, resource: _Resource) -> Mapping[str, Any]:
    issuer = resource.authority
    parts = urlsplit(require_safe_address(url, issuer, "authorization server"))
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    addresses = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        *([f"{origin}{path}/.well-known/openid-configuration"] if path else []),
    ]
    for address in addresses:
        document = await _fetch_document(http, url, address)
        if not document:
            continue
        issuer_name = str(document.get("issuer") or "")
        is_requested = issuer_name.rstrip("/") == issuer.rstrip("/")
        if not is_requested and (resource.is_described or not _same_origin(issuer_name, issuer)):
            raise LoginFailed(f"{address} speaks for another issuer: {visible(issuer_name, 200)}")
        if "S256" not in _texts(document.get("code_challenge_methods_supported")):
            raise LoginFailed(f"the authorization server {issuer} does not offer PKCE with S256")
        return document
    if not resource.is_described:
        usual = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
        usual["registration_endpoint"] = "register"
        return {"issuer": origin, **{name: f"{origin}/{path_name}" for name, path_name in usual.items()}}
    raise LoginFailed(
        f"the authorization server {issuer} does not describe itself", hint=f"tried {addresses[0]}"
    )


async def _fetch_document(http: httpx2.AsyncClient, url: str, address: str) -> Mapping[str, Any]:
    answer = await fetch(
        http, require_safe_address(url, address, "metadata address"), {"accept": "application/json"}
    )
    return as_object(answer.body) if answer.status == 200 else {}


def as_object(body: bytes) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    try:
        value: object = from_foreign_json(body, object)
    except NOT_JSON:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def require_safe_address(url: str, address: str, description: str) -> str:
    """Return `address`. Raises LoginFailed unless it is https, or http with both it and the server `url` on
    this machine."""
    try:
        parts = urlsplit(address)
        is_local = is_loopback(address) and is_loopback(url)
    except ValueError:
        parts, is_local = urlsplit(""), False
    is_usable = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    if not is_usable or not parts.hostname or "@" in parts.netloc or re.search(r"[\s\x00-\x1f\x7f]", address):
        raise LoginFailed(
            f"the {description} is {visible(address, 200)!r}, which is not to be trusted (no https)"
        )
    return address


def _texts(listed: object) -> list[str]:
    return [str(item) for item in cast("list[object]", listed)] if isinstance(listed, list) else []


def _same_origin(first_url: str, second_url: str) -> bool:
    try:
        first, second = urlsplit(first_url), urlsplit(second_url)
    except ValueError:
        return False
    return (first.scheme, first.netloc.lower()) == (second.scheme, second.netloc.lower())


def _covers(resource: str, url: str) -> bool:
    """Return whether a resource's name is the server's address or a parent path of it."""
    if not _same_origin(resource, url):
        return False
    above, below = urlsplit(resource).path.rstrip("/"), urlsplit(url).path.rstrip("/")
    return below == above or below.startswith(above + "/")
