"""Log in at a server over HTTP: OAuth 2.1, an authorization code with PKCE, as MCP specifies it.

`discovery.py` finds out where. The client was registered by the person, is described by a document that they
host, or registers itself. The browser brings the code to a listener on 127.0.0.1 (`callback.py`). The caller
opens the address and stores the tokens.

Sources: MCP specification 2025-11-25 (authorization), RFC 7591, 7636, 8707, 9207.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from urllib.parse import urlencode

import httpx2
import msgspec

from whet.config.key_hosts import is_loopback
from whet.contract.texts import NOT_JSON, from_foreign_json
from whet.mcp.callback import CallbackListener, LoginFailed
from whet.mcp.challenge import Challenge
from whet.mcp.discovery import LoginServer, as_object, discover, require_safe_address
from whet.mcp.login import (
    BASIC,
    NO_SECRET,
    POST,
    AuthAnswer,
    TokenAnswer,
    Tokens,
    add_credentials,
    fetch,
    update_tokens,
)
from whet.mcp.transport import is_private_address
from whet.trust import create_trusted_context
from whet.visible import visible

WAIT_S = 300.0


class Client(msgspec.Struct, frozen=True):
    """Whet as a client of the authorization server.

    Without an `id`, it identifies itself by the address `document` if the server accepts that, or else
    registers itself. `auth_method`: how it sends its secret, if the registration specified that.
    """

    id: str = ""
    secret: str = ""
    auth_method: str = ""
    document: str = ""


class Earlier(msgspec.Struct, frozen=True):
    """The server's last challenge, and the rights of the existing login."""

    wanted: Challenge = Challenge()
    rights: tuple[str, ...] = ()


async def log_in(
    url: str,
    client: Client,
    show: Callable[[str], None],
    now_ms: Callable[[], int],
    wait_s: float = WAIT_S,
    earlier: Earlier = Earlier(),  # noqa: B008 frozen
) -> Tokens | None:
    """Log in at the server at `url` and return the tokens. `show` is called with the address that the person
    must open.

    Returns None if the server needs no login. Raises LoginFailed.
    """
    if not is_private_address(url):
        raise LoginFailed(f"{url} is not encrypted, so no login is sent there", hint="use its https address")
    async with httpx2.AsyncClient(
        timeout=30.0, follow_redirects=False, verify=create_trusted_context(), trust_env=not is_loopback(url)
    ) as http:
        try:
            server = await discover(http, url, earlier.wanted, earlier.rights)
            if server is None:
                return None
            return await _log_in(http, url, server, client, show, now_ms, wait_s)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise LoginFailed(f"the login failed: {_first_line(error)}", hint="check the url") from error


async def _log_in(  # noqa: PLR0913 one exchange, from the listener's port to the token
    http: httpx2.AsyncClient,
    url: str,
    server: LoginServer,
    client: Client,
    show: Callable[[str], None],
    now_ms: Callable[[], int],
    wait_s: float,
) -> Tokens:
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    issuer = server.endpoint("issuer")
    needs_issuer = server.metadata.get("authorization_response_iss_parameter_supported") is True
    async with CallbackListener(state, issuer, needs_issuer=needs_issuer) as listener:
        if not client.id and client.document.startswith("https://") and server.takes_documents:
            client = Client(client.document, auth_method=NO_SECRET)
        elif not client.id:
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
        authorization_address = require_safe_address(
            url, server.endpoint("authorization_endpoint"), "authorization_endpoint"
        )
        endpoint = require_safe_address(url, server.endpoint("token_endpoint"), "token_endpoint")
        show(f"{authorization_address}{'&' if '?' in authorization_address else '?'}{urlencode(query)}")
        code = await listener.wait_for_code(wait_s)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": listener.address,
            "code_verifier": verifier,
            "resource": server.resource,
        }
        form, headers = add_credentials(form, client.id, client.secret, method)
        answer = _read_token_answer(await fetch(http, endpoint, headers, form))
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
        asked=server.scope,
    )
    return update_tokens(bare, answer, now_ms())


def _auth_method(server: LoginServer, client: Client) -> str:
    """Return how the client sends its secret: as registered, else as the server offers (Basic by default, RFC
    8414). Raises LoginFailed."""
    if not client.secret:
        return NO_SECRET
    offered = server.auth_methods or [BASIC]
    preferred = [method for method in (BASIC, POST) if method in offered]
    method = client.auth_method or [*preferred, *offered][0]
    if method in (BASIC, POST, NO_SECRET):
        return method
    raise LoginFailed(
        f"the authorization server wants clients to show who they are by {visible(method, 80)}, which is not"
        " known here"
    )


def _read_token_answer(answer: AuthAnswer) -> TokenAnswer:
    try:
        if answer.status == 200:
            token_answer = from_foreign_json(answer.body, TokenAnswer)
            if token_answer.token_type.lower() == "bearer" and token_answer.access_token:
                return token_answer
            raise LoginFailed(
                f"the authorization server gave a token of type {visible(token_answer.token_type, 40)}"
            )
    except NOT_JSON as error:
        raise LoginFailed("the authorization server's token answer can't be read") from error
    raise LoginFailed(
        f"the authorization server refused the code (HTTP {answer.status}){_error_reason(answer.body)}"
    )


async def _register(http: httpx2.AsyncClient, url: str, server: LoginServer, address: str) -> Client:
    endpoint = server.endpoint("registration_endpoint")
    if not endpoint:
        raise LoginFailed(
            "the authorization server lets no client register itself",
            hint="register one there and give --client-id (and --client-secret-env)",
        )
    registration = {
        "client_name": "Whet",
        "redirect_uris": [address],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": next(
            (method for method in (NO_SECRET, BASIC, POST) if method in server.auth_methods), NO_SECRET
        ),
        **({"scope": server.scope} if server.scope else {}),
    }
    registration_address = require_safe_address(url, endpoint, "registration_endpoint")
    answer = await fetch(http, registration_address, {"accept": "application/json"}, json=registration)
    document = as_object(answer.body if answer.status in (200, 201) else b"{}")
    if not document.get("client_id"):
        why = _error_reason(answer.body)
        raise LoginFailed(f"the authorization server refused the registration (HTTP {answer.status}){why}")
    credentials = {
        key: str(document.get(key) or "") for key in ("client_secret", "token_endpoint_auth_method")
    }
    return Client(
        str(document["client_id"]), credentials["client_secret"], credentials["token_endpoint_auth_method"]
    )


def _error_reason(body: bytes) -> str:
    document = as_object(body)
    words = [str(document[key]) for key in ("error", "error_description") if document.get(key)]
    return ": " + visible(": ".join(words), 300) if words else ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__
