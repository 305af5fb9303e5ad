"""Logging in at a server over HTTP: OAuth 2.1, an authorization code with PKCE, as MCP lays it down.

What the server and its authorization server say of themselves is data: addresses must be https (http on this
machine only where the server itself is here), the issuer must be the one that was asked for, PKCE with S256
must be offered. The code comes back to a listener on 127.0.0.1 that answers one path once. It does not know
how a person opens an address, nor where tokens are kept.
Sources: MCP specification 2025-11-25 (authorization), RFC 9728, 8414, 7591, 7636, 8707, 9207.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import msgspec

from whet.contract.errors import WhetError
from whet.mcp.login import TokenAnswer, Tokens, grown
from whet.rpc import VERSIONS
from whet.visible import visible

WAIT_S = 300.0
_LARGEST_BYTES = 200_000
_HOSTS_HERE = ("127.0.0.1", "localhost", "::1")
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>Whet</title>"
    "<p style='font:16px sans-serif;margin:3em'>{text} You may close this window.</p>"
)


class LoginFailed(WhetError):
    """The login came to nothing; nothing was stored."""


class Client(msgspec.Struct, frozen=True):
    """The client at the authorization server; without an id it registers itself."""

    id: str = ""
    secret: str = ""


class _Server(msgspec.Struct, frozen=True):
    """What is known of where to log in."""

    resource: str
    scope: str
    metadata: Mapping[str, Any]

    def address(self, name: str) -> str:
        """Give one of its endpoints; empty where it has none."""
        return str(self.metadata.get(name) or "")


async def log_in(
    url: str, client: Client, show: Callable[[str], None], now_ms: Callable[[], int], wait_s: float = WAIT_S
) -> Tokens | None:
    """Log in at the server at `url`: `show` gets the address that a person opens.

    None where it wants no login. Raises LoginFailed.
    """
    local = urlsplit(url).hostname in _HOSTS_HERE
    async with httpx2.AsyncClient(timeout=30.0, follow_redirects=False, trust_env=not local) as http:
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
    async with _Listener(state, issuer) as listener:
        if not client.id:
            client = await _register(http, url, server, listener.address)
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
            "client_id": client.id,
            "code_verifier": verifier,
            "resource": server.resource,
            **({"client_secret": client.secret} if client.secret else {}),
        }
        answer = _token(await http.post(endpoint, data=form))
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
    )
    return grown(bare, answer, now_ms())


def _token(response: httpx2.Response) -> TokenAnswer:
    try:
        if response.status_code == 200:
            answer = msgspec.json.decode(response.content[:_LARGEST_BYTES], type=TokenAnswer)
            if answer.token_type.lower() == "bearer" and answer.access_token:
                return answer
            raise LoginFailed(
                f"the authorization server gave a token of type {visible(answer.token_type, 40)}"
            )
    except msgspec.DecodeError as error:
        raise LoginFailed("the authorization server's token answer can't be read") from error
    raise LoginFailed(
        f"the authorization server refused the code (HTTP {response.status_code}){_why(response)}"
    )


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
        "token_endpoint_auth_method": "none",
        **({"scope": server.scope} if server.scope else {}),
    }
    response = await http.post(_checked(url, endpoint, "registration_endpoint"), json=wanted)
    found = _object(response.content if response.status_code in (200, 201) else b"{}")
    if not found.get("client_id"):
        why = _why(response)
        raise LoginFailed(
            f"the authorization server refused the registration (HTTP {response.status_code}){why}"
        )
    return Client(str(found["client_id"]), str(found.get("client_secret") or ""))


async def _document(http: httpx2.AsyncClient, url: str, place: str) -> Mapping[str, Any]:
    response = await http.get(
        _checked(url, place, "metadata address"), headers={"accept": "application/json"}
    )
    return _object(response.content) if response.status_code == 200 else {}


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        read: object = msgspec.json.decode(body[:_LARGEST_BYTES])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def _checked(url: str, place: str, what: str) -> str:
    """Give an address that may be used: https, or http on this machine for a server on this machine."""
    try:
        parts = urlsplit(place)
        here = parts.hostname in _HOSTS_HERE and urlsplit(url).hostname in _HOSTS_HERE
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


def _why(response: httpx2.Response) -> str:
    found = _object(response.content)
    words = [str(found[key]) for key in ("error", "error_description") if found.get(key)]
    return ": " + visible(": ".join(words), 300) if words else ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


class _Listener:
    """Waits on a port of 127.0.0.1 for the one request that brings the code."""

    def __init__(self, state: str, issuer: str) -> None:
        self.address = ""
        self._state = state
        self._issuer = issuer
        self._came: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> _Listener:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=32_768)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._came.done() and not self._came.cancelled():
            self._came.exception()

    async def code(self, wait_s: float) -> str:
        """Give the code. Raises LoginFailed when none comes in time or the person said no."""
        limit = asyncio.timeout(wait_s)
        try:
            async with limit:
                return await self._came
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise LoginFailed(
                f"nobody logged in within {wait_s:g} s", hint="run the command again"
            ) from error

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10.0):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                status, text = self._take(line.decode("latin-1"))
                page = _PAGE.format(text=text).encode()
                head = (
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8"
                    f"\r\nContent-Length: {len(page)}\r\nCache-Control: no-store"
                    "\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + page)
                await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass
        finally:
            writer.close()

    def _take(self, line: str) -> tuple[str, str]:
        words = line.split(" ")
        target = urlsplit(words[1] if len(words) > 2 and words[0] == "GET" else "")
        if target.path != "/callback":
            return "404 Not Found", "Nothing is here."
        given = {name: values[0] for name, values in parse_qs(target.query).items()}
        if not secrets.compare_digest(given.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", "This answer belongs to no login that is under way."
        if self._came.done():
            return "400 Bad Request", "This login is over."
        if "iss" in given and given["iss"].rstrip("/") != self._issuer.rstrip("/"):
            self._came.set_exception(LoginFailed("the answer came from another issuer; nothing was stored"))
            return "400 Bad Request", "The answer came from another issuer."
        if "error" in given or not given.get("code"):
            why = visible(
                f"{given.get('error', 'no code')} {given.get('error_description', '')}".strip(), 300
            )
            self._came.set_exception(LoginFailed(f"the login was refused: {why}"))
            return "200 OK", "The login was refused."
        self._came.set_result(given["code"])
        return "200 OK", "Whet is logged in."
