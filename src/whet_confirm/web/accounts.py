"""The service's tokens as accounts of the page, and the page's sessions as rows of the service's database."""

from __future__ import annotations

import hashlib
import hmac
import math

import msgspec

from whet.web.sessions import Account, LoginSession, TooManyAttempts, Visit
from whet.web.throttle import Throttle
from whet.web.tokens import LoginTable
from whet_confirm import people
from whet_confirm.keys import base64url
from whet_confirm.people import PREFIX
from whet_confirm.records import Caller
from whet_confirm.service import ConfirmService
from whet_confirm.tokens import TOKENS, as_principal

OPEN = Caller("anonymous", "admin", is_open=True)
_OPEN_KEY = "open"
_LOGINS = LoginTable("web_sessions", "expires_at")
_MAX_FAILURES = 10


class TokenAccounts:
    """Log in with an access token. In open mode there is nothing to check."""

    def __init__(self, service: ConfirmService, *, is_open: bool) -> None:
        self._service = service
        self._is_open = is_open
        self._throttle = Throttle(_MAX_FAILURES)

    async def sign_in(self, token: str, client: str) -> Account | None:
        """Return the account of a token that may approve, audit or administer. Raises TooManyAttempts."""
        if self._is_open:
            return Account(_OPEN_KEY, OPEN.name, frozenset((OPEN.role,)))
        caller = self._service.authenticate(token.strip())
        if caller is None:
            now_s = self._service.timeline.now_s()
            if wait_s := self._throttle.record_failure(client, now_s):
                raise TooManyAttempts(math.ceil(wait_s))
            # at the first and the last, to limit the events
            if self._throttle.count_recent(client, now_s) in (1, _MAX_FAILURES):
                await self._service.record("login_failed", data={"client": client, "where": "page"})
            return None
        if not caller.may("approve", "audit"):
            return Account("", caller.name, frozenset((caller.role,)))
        await self._service.record(
            "login", principal=caller.name, data={"client": client, "token": caller.token_id}
        )
        return Account(caller.token_id, caller.name, frozenset((caller.role,)))

    async def find(self, key: str) -> Account | None:
        """Return the account again, or None if its token was revoked or has expired."""
        caller = self.find_caller(key)
        return Account(key, caller.name, frozenset((caller.role,))) if caller else None

    def find_caller(self, key: str) -> Caller | None:
        """Return the service's caller for an account, or None."""
        if self._is_open:
            return OPEN if key == _OPEN_KEY else None
        if key.startswith(PREFIX):
            now_s = self._service.timeline.now_s()
            return self._service.database.read_now(
                lambda db: people.find(db, key.removeprefix(PREFIX), now_s)
            )
        row = self._service.database.read_one(TOKENS.by_id, (key,))
        caller = as_principal(row, self._service.timeline.now_s())
        return None if caller is None or caller.role == "submit" else caller

    def caller_of(self, visit: Visit) -> Caller:
        """Return the caller for a visitor. A visitor whose account no longer exists may only read."""
        return self.find_caller(visit.account.key) or Caller(visit.account.name, "audit")


class SessionRows:
    """Sessions in the table `web_sessions`; the next login deletes expired ones.

    Each row is signed with a key derived from the service's signing key, so a row written directly into
    the database does not work: a row with an invalid signature is ignored.
    """

    def __init__(self, service: ConfirmService) -> None:
        self._service = service
        self._key = hashlib.sha256(service.key.sign(b"whet-sessions/1")).digest()

    async def save(self, row: LoginSession) -> None:
        """Store a new session; durable on return."""
        signed = msgspec.structs.replace(row, account_key=f"{row.account_key} {self._mac(row)}")
        await self._service.change(lambda tx: _LOGINS.save(tx.connection, signed))

    async def find(self, id_hash: str) -> LoginSession | None:
        """Return a session by the hash of its id, or None."""
        row = self._service.database.read_one(_LOGINS.by_hash, (id_hash,))
        if row is None:
            return None
        signed = LoginSession(*row)  # type: ignore[arg-type]
        key, _, mac = signed.account_key.rpartition(" ")
        session = msgspec.structs.replace(signed, account_key=key)
        return session if hmac.compare_digest(self._mac(session).encode(), mac.encode()) else None

    async def drop(self, id_hash: str) -> None:
        """Delete a session; durable on return."""
        await self._service.change(lambda tx: _LOGINS.drop(tx.connection, id_hash))

    def _mac(self, row: LoginSession) -> str:
        text = "\n".join((row.id_hash, row.account_key, row.csrf, repr(row.created_s), repr(row.expires_s)))
        return base64url(hmac.digest(self._key, text.encode(), hashlib.sha256))
