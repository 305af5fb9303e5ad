"""Logging in at a server over HTTP: OAuth 2.1, an authorization code with PKCE, as MCP lays it down.

What the server and its authorization server say of themselves is data: addresses must be https (http on this
machine only where the server itself is here), the issuer must be the one that was asked for, PKCE with S256
must be offered. The code comes back to a listener on 127.0.0.1 that answers one path once. It does not know
how a person opens an address, nor where tokens are kept.
Sources: MCP specification 2025-11-25 (authorization), RFC 9728, 8414, 7591, 7636, 8707, 9207.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

import httpx2
import msgspec

from whet.config.key_hosts import is_this_machine
from whet.contract.texts import NOT_JSON
from whet.mcp.callback import Listener, LoginFailed
from whet.mcp.login import (
    BASIC,
    NO_SECRET,
    POST,
    AuthAnswer,
    TokenAnswer,
    Tokens,
    authenticated,
    fetch,
    grown,
)
from whet.mcp.transport import is_private_way
from whet.rpc import VERSIONS
from whet.visible import visible

WAIT_S = 300.0


class Client(msgspec.Struct, frozen=True):
    """The client at the authorization server; without an id it registers itself. `auth_method`: how it shows
    its secret, where the registration said so."""

    id: str = ""
    secret: str = ""
    auth_method: str = ""


class _Server(msgspec.Struct, frozen=True):
    """What is known of where to log in."""

    resource: str
    scope: str
    metadata: Mapping[str, Any]

    def address(self, name: str) -> str:
        """Give one of its endpoints; empty where it has none."""
        return str(self.metadata.get(name) or "")

    @property
    def auth_methods(self) -> list[str]:
        """How clients may show their secret at the token endpoint; empty where it does not say."""
        listed: object = self.metadata.get("token_endpoint_auth_methods_supported")
        return [str(one) for one in cast("list[object]", listed)] if isinstance(listed, list) else []


async def log_in(
    url: str, client: Client, show: Callable[[str], None], now_ms: Callable[[], int], wait_s: float = WAIT_S
) -> Tokens | None:
    """Log in at the server at `url`: `show` gets the address that a person opens.

    None where it wants no login. Raises LoginFailed.
    """
    if not is_private_way(url):
        raise LoginFailed(f"{url} is not encrypted, so no login is sent there", hint="use its https address")
    async with httpx2.AsyncClient(
        timeout=30.0, follow_redirects=False, trust_env=not is_this_machine(url)
    ) as http:
        try:
            found = await _discover(http, url)
            if found is None:
                return None
            return await _log_in(http, url, found, client, show, now_ms, wait_s)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise LoginFailed(f"the login failed: {_first_line(error)}", hint="check the url") from error


async def _log_in(  # noqa: PLR0913 one exchange, from the listener's port to the token
    http: httpx2.AsyncClient,
    url: str,
    server: _Server,
    client: Client,
    show: Callable[[str], None],
    now_ms: Callable[[], int],
    wait_s: float,
) -> Tokens:
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    issuer = server.address("issuer")
    names_itself = server.metadata.get("authorization_response_iss_parameter_supported") is True
    async with Listener(state, issuer, names_itself=names_itself) as listener:
        if not client.id:
            client = await _register(http, url, server, listener.address)
        method = _auth_method(server, client)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": listener.address,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": server.resource,
            **({"scope": server.scope} if server.scope else {}),
        }
        place = _checked(url, server.address("authorization_endpoint"), "authorization_endpoint")
        endpoint = _checked(url, server.address("token_endpoint"), "token_endpoint")
        show(f"{place}{'&' if '?' in place else '?'}{urlencode(query)}")
        code = await listener.code(wait_s)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": listener.address,
            "code_verifier": verifier,
            "resource": server.resource,
        }
        form, headers = authenticated(form, client.id, client.secret, method)
        answer = _token(await fetch(http, endpoint, headers, form))
    bare = Tokens(
        url=url,
        access_token="",
        refresh_token="",
        expires_at_ms=0,
        token_endpoint=endpoint,
        resource=server.resource,
        client_id=client.id,
        client_secret=client.secret,
        issuer=issuer,
        auth_method=method,
    )
    return grown(bare, answer, now_ms())


def _auth_method(server: _Server, client: Client) -> str:
    """Choose how the client shows its secret: as it was registered, else as the server has it (by RFC 8414
    that is Basic where it says nothing). Raises LoginFailed."""
    if not client.secret:
        return NO_SECRET
    offered = server.auth_methods or [BASIC]
    method = client.auth_method or next((one for one in (BASIC, POST) if one in offered), offered[0])
    if method in (BASIC, POST, NO_SECRET):
        return method
    raise LoginFailed(
        f"the authorization server wants clients to show who they are by {visible(method, 80)}, which is not"
        " known here"
    )


def _token(answer: AuthAnswer) -> TokenAnswer:
    try:
        if answer.status == 200:
            found = msgspec.json.decode(answer.body, type=TokenAnswer)
            if found.token_type.lower() == "bearer" and found.access_token:
                return found
            raise LoginFailed(
                f"the authorization server gave a token of type {visible(found.token_type, 40)}"
            )
    except NOT_JSON as error:
        raise LoginFailed("the authorization server's token answer can't be read") from error
    raise LoginFailed(f"the authorization server refused the code (HTTP {answer.status}){_why(answer.body)}")


async def _discover(http: httpx2.AsyncClient, url: str) -> _Server | None:
    """Ask the server where to log in; None where it answers without."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "whet", "version": "0"},
        },
    }
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    body = msgspec.json.encode(hello)
    async with http.stream("POST", url, content=body, headers=headers) as response:
        status, challenge = response.status_code, response.headers.get("www-authenticate", "")
    if status < 300:
        return None
    if status != 401:
        raise LoginFailed(
            f"the server answered HTTP {status}, not 401, so it offers no login", hint="is its url right?"
        )
    resource, authority, scopes = await _protected(http, url, challenge)
    metadata = await _authority(http, url, authority)
    scope = _parameter(challenge, "scope") or " ".join(scopes)
    return _Server(resource, scope, metadata)


async def _protected(http: httpx2.AsyncClient, url: str, challenge: str) -> tuple[str, str, list[str]]:
    """Give the resource's name, its authorization server and the scopes that it knows."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    named = _parameter(challenge, "resource_metadata")
    path = parts.path.rstrip("/")
    known = [f"{origin}/.well-known/oauth-protected-resource{path}"] if path else []
    places = [named] if named else [*known, f"{origin}/.well-known/oauth-protected-resource"]
    for place in places:
        found = await _document(http, url, place)
        if not found:
            continue
        resource = str(found.get("resource") or "")
        if not _covers(resource, url):
            raise LoginFailed(
                f"the server says that it is {visible(resource, 200)}, which is not {url}",
                hint="set the url to that address if it is right",
            )
        servers: object = found.get("authorization_servers")
        authority = str(cast("list[object]", servers)[0]) if isinstance(servers, list) and servers else origin
        scopes: object = found.get("scopes_supported")
        listed = [str(one) for one in cast("list[object]", scopes)] if isinstance(scopes, list) else []
        return resource, authority, listed
    return url, origin, []


async def _authority(http: httpx2.AsyncClient, url: str, issuer: str) -> Mapping[str, Any]:
    parts = urlsplit(_checked(url, issuer, "authorization server"))
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        *([f"{origin}{path}/.well-known/openid-configuration"] if path else []),
    ]
    for place in places:
        found = await _document(http, url, place)
        if not found:
            continue
        if str(found.get("issuer") or "").rstrip("/") != issuer.rstrip("/"):
            raise LoginFailed(f"{place} speaks for another issuer: {visible(str(found.get('issuer')), 200)}")
        methods: object = found.get("code_challenge_methods_supported")
        if not isinstance(methods, list) or "S256" not in cast("list[object]", methods):
            raise LoginFailed(f"the authorization server {issuer} does not offer PKCE with S256")
        return found
    raise LoginFailed(
        f"the authorization server {issuer} does not describe itself", hint=f"tried {places[0]}"
    )


async def _register(http: httpx2.AsyncClient, url: str, server: _Server, address: str) -> Client:
    endpoint = server.address("registration_endpoint")
    if not endpoint:
        raise LoginFailed(
            "the authorization server lets no client register itself",
            hint="register one there and give --client-id (and --client-secret-env)",
        )
    wanted = {
        "client_name": "Whet",
        "redirect_uris": [address],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": next(
            (method for method in (NO_SECRET, BASIC, POST) if method in server.auth_methods), NO_SECRET
        ),
        **({"scope": server.scope} if server.scope else {}),
    }
    place = _checked(url, endpoint, "registration_endpoint")
    answer = await fetch(http, place, {"accept": "application/json"}, json=wanted)
    found = _object(answer.body if answer.status in (200, 201) else b"{}")
    if not found.get("client_id"):
        why = _why(answer.body)
        raise LoginFailed(f"the authorization server refused the registration (HTTP {answer.status}){why}")
    said = {key: str(found.get(key) or "") for key in ("client_secret", "token_endpoint_auth_method")}
    return Client(str(found["client_id"]), said["client_secret"], said["token_endpoint_auth_method"])


async def _document(http: httpx2.AsyncClient, url: str, place: str) -> Mapping[str, Any]:
    answer = await fetch(http, _checked(url, place, "metadata address"), {"accept": "application/json"})
    return _object(answer.body) if answer.status == 200 else {}


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        read: object = msgspec.json.decode(body)
    except NOT_JSON:
        return {}
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def _checked(url: str, place: str, what: str) -> str:
    """Give an address that may be used: https, or http on this machine for a server on this machine."""
    try:
        parts = urlsplit(place)
        here = is_this_machine(place) and is_this_machine(url)
    except ValueError:
        parts, here = urlsplit(""), False
    usable = parts.scheme == "https" or (parts.scheme == "http" and here)
    if not usable or not parts.hostname or "@" in parts.netloc or re.search(r"[\s\x00-\x1f\x7f]", place):
        raise LoginFailed(f"the {what} is {visible(place, 200)!r}, which is not to be trusted (no https)")
    return place


def _covers(resource: str, url: str) -> bool:
    """Whether a resource's name is the server's address or a folder above it."""
    try:
        one, other = urlsplit(resource), urlsplit(url)
    except ValueError:
        return False
    if (one.scheme, one.netloc.lower()) != (other.scheme, other.netloc.lower()):
        return False
    above = one.path.rstrip("/")
    return other.path.rstrip("/") == above or other.path.startswith(above + "/")


def _parameter(challenge: str, name: str) -> str:
    found = re.search(rf'(?i)\b{name}\s*=\s*(?:"([^"]*)"|([^\s,"]+))', challenge)
    return (found[1] or found[2] or "") if found else ""


def _why(body: bytes) -> str:
    found = _object(body)
    words = [str(found[key]) for key in ("error", "error_description") if found.get(key)]
    return ": " + visible(": ".join(words), 300) if words else ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__
