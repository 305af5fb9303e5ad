"""A person's login at a server over HTTP: the tokens in the home, and their renewal.

Tokens live in mcp/NAME.login.json, mode 0600, belong to one URL, and are masked in everything that is shown
or logged. How a person logs in is `oauth.py`'s business.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import msgspec

from whet import log as masking
from whet.config import files
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.mcp.kept import folder
from whet.mcp.remote import Reach

_EARLY_MS = 60_000


class Tokens(msgspec.Struct, frozen=True):
    """What a login gave, and what renewing it takes. `expires_at_ms` 0: not said."""

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


class TokenAnswer(msgspec.Struct, frozen=True):
    """What a token endpoint answers."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: float | None = None
    refresh_token: str = ""
    scope: str = ""


def tokens_path(home: Home, name: str) -> Path:
    """Give where a server's login is kept."""
    return folder(home) / f"{name}.login.json"


def read_tokens(home: Home, name: str, url: str) -> Tokens | None:
    """Give the login at this URL, masked from now on; None where there is none that can be read."""
    try:
        text = files.read_small(tokens_path(home, name))
        tokens = msgspec.json.decode(text, type=Tokens) if text else None
    except (WhetError, msgspec.DecodeError):
        return None
    if tokens is None or tokens.url != url:
        return None
    masking.protect((tokens.access_token, tokens.refresh_token, tokens.client_secret))
    return tokens


def write_tokens(home: Home, name: str, tokens: Tokens) -> None:
    """Keep a login, mode 0600; on return it is on disk. Raises ConfigError."""
    masking.protect((tokens.access_token, tokens.refresh_token, tokens.client_secret))
    home.ensure()
    files.replace(tokens_path(home, name), msgspec.json.encode(tokens).decode(), mode=0o600)


class Login:
    """The login that one transport uses; renewed when it runs out or is refused."""

    def __init__(self, name: str, url: str, reach: Reach, http: httpx2.AsyncClient) -> None:
        self._name = name
        self._url = url
        self._reach = reach
        self._http = http
        self._lock = asyncio.Lock()
        self._tokens = read_tokens(reach.home, name, url)

    async def token(self) -> str:
        """Give the access token, renewed where it is about to run out; empty where there is no login."""
        tokens = self._tokens
        if tokens is None:
            return ""
        left_ms = tokens.expires_at_ms - self._reach.clock.unix_ms()
        if tokens.expires_at_ms and left_ms < _EARLY_MS:
            await self.renewed()
        return self._tokens.access_token if self._tokens else ""

    async def renewed(self) -> bool:
        """Get a new access token; False where that is not possible and a person must log in again.

        Another process may have done it already, or a person logged in since; those tokens are then taken.
        """
        used = self._tokens
        async with self._lock:
            if self._tokens is not used:
                return self._tokens is not None
            stored = read_tokens(self._reach.home, self._name, self._url)
            if stored is not None and (used is None or stored.access_token != used.access_token):
                self._tokens = stored
                return True
            if used is None or not used.refresh_token:
                return False
            fresh = await self._refresh(used)
            if fresh is None:
                return False
            write_tokens(self._reach.home, self._name, fresh)
            self._tokens = fresh
            return True

    async def _refresh(self, used: Tokens) -> Tokens | None:
        form = {
            "grant_type": "refresh_token",
            "refresh_token": used.refresh_token,
            "client_id": used.client_id,
            "resource": used.resource,
        }
        if used.client_secret:
            form["client_secret"] = used.client_secret
        try:
            response = await self._http.post(used.token_endpoint, data=form)
            answer = msgspec.json.decode(response.content, type=TokenAnswer)
        except (httpx2.HTTPError, msgspec.DecodeError, OSError):
            return None
        return grown(used, answer, self._reach.clock.unix_ms()) if response.status_code == 200 else None


def grown(tokens: Tokens, answer: TokenAnswer, now_ms: int) -> Tokens:
    """Give `tokens` with what a token endpoint answered; without a new refresh token the old one stays."""
    expires = now_ms + int(answer.expires_in * 1000) if answer.expires_in else 0
    return msgspec.structs.replace(
        tokens,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token or tokens.refresh_token,
        expires_at_ms=expires,
        scope=answer.scope or tokens.scope,
    )
