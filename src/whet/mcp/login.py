"""Store and renew the tokens of a person's login at a server over HTTP.

They are in mcp/NAME.login.json, mode 0600, belong to one URL, and are masked in all output and logs. A
refresh token can be used only once, so processes that share a home renew one after another. `oauth.py`
performs the login itself.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote_plus

import httpx2
import msgspec

from whet import log as masking
from whet.config import paths
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_foreign_json, from_json
from whet.mcp.challenge import Challenge, store_challenge
from whet.mcp.kept import challenge_path, servers_folder
from whet.mcp.remote import RemoteParts
from whet.mcp.transport import LoginNeeded, ServerFailed, is_private_address
from whet.visible import visible

BASIC, POST, NO_SECRET = "client_secret_basic", "client_secret_post", "none"
_EARLY_MS = 60_000
_WHOLE_S = 30.0
_LONGEST_S = 1e9
_LARGEST_BYTES = 200_000
_TURN_S = 0.05


class Tokens(msgspec.Struct, frozen=True):
    """The result of a login, and the data for renewing it.

    `expires_at_ms` 0: unknown. `auth_method`: how the client sends its secret to the token endpoint, in
    OAuth's terms. `asked`: the requested scopes; `scope`: the granted scopes.
    """

    url: str
    access_token: str
    refresh_token: str
    expires_at_ms: int
    token_endpoint: str
    resource: str
    client_id: str
    client_secret: str = ""
    scope: str = ""
    issuer: str = ""
    auth_method: str = ""
    asked: str = ""

    @property
    def rights(self) -> tuple[str, ...]:
        """The scopes that were requested or granted."""
        return tuple(dict.fromkeys((*self.asked.split(), *self.scope.split())))


class TokenAnswer(msgspec.Struct, frozen=True):
    """A token endpoint's answer."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: float | None = None
    refresh_token: str = ""
    scope: str = ""


class AuthAnswer(msgspec.Struct, frozen=True):
    """An authorization server's answer. An oversized body is cut."""

    status: int
    body: bytes


async def fetch(
    http: httpx2.AsyncClient,
    address: str,
    headers: Mapping[str, str],
    form: Mapping[str, str] | None = None,
    json: Mapping[str, object] | None = None,
) -> AuthAnswer:
    """Get a document, or post a form or JSON. Takes at most 30 s. Raises httpx2.HTTPError, OSError."""
    method = "GET" if form is None and json is None else "POST"
    body = bytearray()
    try:
        async with (
            asyncio.timeout(_WHOLE_S),
            http.stream(method, address, data=form, json=json, headers=headers) as response,
        ):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _LARGEST_BYTES:
                    break
            return AuthAnswer(response.status_code, bytes(body[:_LARGEST_BYTES]))
    except TimeoutError as error:
        raise httpx2.ReadTimeout(f"no whole answer within {_WHOLE_S:g} s") from error


def add_credentials(
    form: Mapping[str, str], client_id: str, secret: str, method: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return a token request's form and headers with the client's credentials, according to `method` (RFC
    6749, 2.3)."""
    fields, headers = {**form, "client_id": client_id}, {"accept": "application/json"}
    if secret and method == BASIC:
        pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif secret and method != NO_SECRET:
        fields["client_secret"] = secret
    return fields, headers


def tokens_path(home: paths.Home, name: str) -> Path:
    """Return the path of a server's login."""
    return servers_folder(home) / f"{name}.login.json"


def read_tokens(home: paths.Home, name: str, url: str) -> Tokens | None:
    """Return the login at this URL, or None if it is missing or invalid. Its secrets are masked from now
    on."""
    try:
        text = paths.read_small(tokens_path(home, name))
        tokens = from_json(text, Tokens) if text else None
    except (WhetError, *NOT_JSON):
        return None
    if tokens is None or tokens.url != url:
        return None
    masking.protect((tokens.access_token, tokens.refresh_token, tokens.client_secret))
    return tokens


def write_tokens(home: paths.Home, name: str, tokens: Tokens) -> None:
    """Store a login, mode 0600. It is on disk on return. Raises ConfigError."""
    masking.protect((tokens.access_token, tokens.refresh_token, tokens.client_secret))
    home.ensure()
    paths.replace_file(tokens_path(home, name), msgspec.json.encode(tokens).decode(), mode=0o600)
    challenge_path(home, name).unlink(missing_ok=True)


class Login:
    """The login used by one transport. It is renewed when it expires or is refused."""

    def __init__(self, name: str, url: str, parts: RemoteParts, http: httpx2.AsyncClient) -> None:
        self._name = name
        self._url = url
        self._parts = parts
        self._http = http
        self._lock = asyncio.Lock()
        self._tokens = read_tokens(parts.home, name, url) if is_private_address(url) else None

    async def get_token(self) -> str:
        """Return the access token, renewed if it is about to expire, or an empty string without a login."""
        tokens = self._tokens
        if tokens is None:
            return ""
        left_ms = tokens.expires_at_ms - self._parts.clock.unix_ms()
        if tokens.expires_at_ms and left_ms < _EARLY_MS:
            await self.renew()
        return self._tokens.access_token if self._tokens else ""

    def report_refusal(self, header: str) -> LoginNeeded:
        """Store the server's challenge and return the error that a login is needed."""
        server = f"the MCP server {self._name}"
        store_challenge(self._parts.home, self._name, Challenge(self._url, header))
        return LoginNeeded(
            f"{server} wants a login", hint=f"whet mcp login {self._name}, or a header with a key"
        )

    def explain_missing_rights(self, header: str) -> ServerFailed | None:
        """Return the error if the login lacks a right, or None if the refusal has another cause.

        The challenge is stored, unless the login has already requested these rights.
        """
        challenge = Challenge(self._url, header)
        if not challenge.wants_more or self._tokens is None:
            return None
        scopes_text = masking.mask(visible(" ".join(challenge.scopes), 200)) or "none named"
        server = f"the MCP server {self._name}"
        if set(challenge.scopes) <= set(self._tokens.rights):
            return ServerFailed(
                f"{server} refuses this although the login asked for the right to it ({scopes_text})",
                hint="another login would get no more; ask those who run the server",
            )
        store_challenge(self._parts.home, self._name, challenge)
        return LoginNeeded(
            f"{server} wants more rights for this than the login has ({scopes_text})",
            hint=f"whet mcp login {self._name} asks for them",
        )

    async def renew(self) -> bool:
        """Get a new access token. Returns False if that is impossible and a person must log in again.

        If another process has renewed it, or a person has logged in since, those tokens are used.
        """
        current = self._tokens
        if not is_private_address(self._url):
            return False
        async with self._lock:
            if self._tokens is not current:
                return self._tokens is not None
            async with _renewal_lock(servers_folder(self._parts.home) / f"{self._name}.lock"):
                return await self._renew_locked(current)

    def adopt_newer_login(self) -> bool:
        """Switch to a login that a person has made since, which may have more rights. Returns False if there
        is none."""
        stored = read_tokens(self._parts.home, self._name, self._url)
        current = self._tokens
        if stored is None or (current is not None and stored.access_token == current.access_token):
            return False
        self._tokens = stored
        return True

    async def _renew_locked(self, used: Tokens | None) -> bool:
        if self.adopt_newer_login():
            return True
        is_gone = read_tokens(self._parts.home, self._name, self._url) is None
        if used is None or is_gone or not used.refresh_token:
            return False
        fresh = await self._refresh(used)
        if fresh is None:
            return False
        write_tokens(self._parts.home, self._name, fresh)
        self._tokens = fresh
        return True

    async def _refresh(self, used: Tokens) -> Tokens | None:
        form = {"grant_type": "refresh_token", "refresh_token": used.refresh_token, "resource": used.resource}
        form, headers = add_credentials(form, used.client_id, used.client_secret, used.auth_method)
        try:
            answer = await fetch(self._http, used.token_endpoint, headers, form)
            if answer.status == 429 or answer.status >= 500:
                raise ServerFailed(_renewal_problem(self._name, f"HTTP {answer.status}"))
            token_answer = from_foreign_json(answer.body, TokenAnswer)
        except (httpx2.HTTPError, OSError) as error:
            why = masking.mask(str(error).partition("\n")[0])[:160] or type(error).__name__
            raise ServerFailed(_renewal_problem(self._name, why)) from error
        except NOT_JSON:
            return None
        return (
            update_tokens(used, token_answer, self._parts.clock.unix_ms()) if answer.status == 200 else None
        )


def _renewal_problem(name: str, why: str) -> str:
    return f"the login at the MCP server {name} can't be renewed now ({why})"


@asynccontextmanager
async def _renewal_lock(path: Path) -> AsyncGenerator[None]:
    """Hold the lock of this login's renewal. Goes on without it if it can't be created, or after 30 s."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        for _ in range(int(_WHOLE_S / _TURN_S)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                await asyncio.sleep(_TURN_S)
        yield
    finally:
        os.close(handle)


def update_tokens(tokens: Tokens, answer: TokenAnswer, now_ms: int) -> Tokens:
    """Return `tokens` with the values of a token endpoint's answer. Keeps the old refresh token if there is
    no new one."""
    expires = now_ms + int(min(answer.expires_in, _LONGEST_S) * 1000) if answer.expires_in else 0
    return msgspec.structs.replace(
        tokens,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token or tokens.refresh_token,
        expires_at_ms=expires,
        scope=answer.scope or tokens.scope,
    )
