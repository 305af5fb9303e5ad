"""Browser sessions: a cookie with a random number, and a row that contains only its hash.

The row names the account (an access token) that logged in. The account is looked up again at every request,
so that a revoked token ends its sessions at once. A number that was issued to a user of this machine is valid
only for that user.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import sys
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from whet.clock import Clock
from whet.web.guard import SiteAddress

LIFETIME_S = 7 * 24 * 3600
_COOKIE_CHARS = 43  # 32 bytes, URL-safe
_TABLES = {4: Path("/proc/self/net/tcp"), 6: Path("/proc/self/net/tcp6")}
_USER_COLUMN = 7


class Account(msgspec.Struct, frozen=True):
    """A logged-in account: its key for finding it again, the name to show, and its roles."""

    key: str
    name: str
    roles: frozenset[str] = frozenset()


class LoginSession(msgspec.Struct, frozen=True):
    """A stored session. Times are Unix seconds; `id_hash` is hex, `csrf` URL-safe text."""

    id_hash: str
    account_key: str
    csrf: str
    created_s: float
    expires_s: float


class Visit(msgspec.Struct, frozen=True):
    """One request of a logged-in person."""

    account: Account
    session: LoginSession


class TooManyAttempts(Exception):
    """Raised if too many wrong tokens came from an address. It may try again after `retry_after_s`."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class Accounts(Protocol):
    """The product's own accounts."""

    async def sign_in(self, token: str, client: str) -> Account | None:
        """Return the account of this secret, or None if it is wrong. Raises TooManyAttempts."""
        ...

    async def find(self, key: str) -> Account | None:
        """Return the account again, or None if it was revoked or has expired."""
        ...


class SessionStore(Protocol):
    """The storage of sessions."""

    async def save(self, row: LoginSession) -> None:
        """Store a new session; durable on return."""
        ...

    async def find(self, id_hash: str) -> LoginSession | None:
        """Return a session by the hash of its id, or None."""
        ...

    async def drop(self, id_hash: str) -> None:
        """Delete a session; durable on return."""
        ...


class Sessions:
    """Starts, finds and ends browser sessions. `cookie` is the name of the cookie."""

    def __init__(
        self, accounts: Accounts, store: SessionStore, clock: Clock, site: SiteAddress, cookie: str
    ) -> None:
        self._accounts = accounts
        self._store = store
        self._clock = clock
        self._is_secure = site.is_secure
        # Cookies ignore ports: the caller puts the port into the name, so that two sites don't overwrite each
        # other's. The prefix makes browsers refuse it from other hosts and without TLS.
        self._cookie = f"__Host-{cookie}" if site.is_secure else cookie

    async def sign_in(self, request: Request, token: str, response: Response) -> Account | None:
        """Check a token and, if it is right, start a session in `response`. Returns the account, or None if
        the token is wrong. Raises TooManyAttempts."""
        client = request.client.host if request.client else ""
        account = await self._accounts.sign_in(token, client)
        if account is not None:
            await self.start_session(request, account, response)
        return account

    @property
    def is_secure(self) -> bool:
        """Whether cookies are sent over https only."""
        return self._is_secure

    async def start_session(self, request: Request, account: Account, response: Response) -> None:
        """Start a session of `account`, and set its cookie in `response`. The browser's old session ends."""
        await self.sign_out(request)
        number = secrets.token_urlsafe(32)
        now_s = self._clock.now().timestamp()
        id_hash = _hash(number, find_client_user(request.scope))
        row = LoginSession(id_hash, account.key, secrets.token_urlsafe(32), now_s, now_s + LIFETIME_S)
        await self._store.save(row)
        response.set_cookie(
            self._cookie,
            number,
            max_age=LIFETIME_S,
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
            path="/",
        )

    async def find_visit(self, request: Request) -> Visit | None:
        """Return the visit of a request, or None if nobody is logged in, the session has expired, or the
        token was revoked."""
        number = self._number(request)
        if number is None:
            return None
        row = await self._store.find(_hash(number, find_client_user(request.scope)))
        if row is None or self._clock.now().timestamp() >= row.expires_s:
            return None
        account = await self._accounts.find(row.account_key)
        return Visit(account, row) if account else None

    async def sign_out(self, request: Request, response: Response | None = None) -> None:
        """End this browser's session; durable on return."""
        number = self._number(request)
        if number is not None:
            await self._store.drop(_hash(number, find_client_user(request.scope)))
        if response is not None:
            response.delete_cookie(
                self._cookie, path="/", httponly=True, samesite="strict", secure=self._is_secure
            )

    def _number(self, request: Request) -> str | None:
        number = request.cookies.get(self._cookie, "")
        return number if len(number) == _COOKIE_CHARS and number.isascii() else None


def is_own_form(visit: Visit, token: str) -> bool:
    """Return whether `token` is this session's CSRF token. Compares in constant time."""
    return hmac.compare_digest(visit.session.csrf.encode(), token.encode("utf-8", "replace"))


def _hash(number: str, owner: str) -> str:
    """Return the hash of a session's number and the client's user on this machine."""
    return hashlib.sha256(f"{number}{owner and '@'}{owner}".encode()).hexdigest()


def find_client_user(scope: Scope) -> str:
    """Return the id of the client's user on this machine. Returns an empty string for a client on another
    machine, on a Unix socket, or of an unknown user."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return ""
    try:
        client_ip, server_ip = ipaddress.ip_address(client[0]), ipaddress.ip_address(server[0])
        if not client_ip.is_loopback or client_ip.version != server_ip.version:
            return ""
        table = _TABLES[client_ip.version].read_bytes()
    except (ValueError, OSError):
        return ""
    endpoints = (
        f" {_format_endpoint(client_ip, client[1])} {_format_endpoint(server_ip, server[1])} ".encode()
    )
    position = table.find(endpoints)
    if position < 0:
        return ""
    line = table[table.rfind(b"\n", 0, position) + 1 : table.find(b"\n", position)]
    return line.split()[_USER_COLUMN].decode()


def _format_endpoint(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Format an address and port as in the kernel's table: four-byte words in the machine's byte order."""
    raw = address.packed
    words = (int.from_bytes(raw[offset : offset + 4], sys.byteorder) for offset in range(0, len(raw), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
