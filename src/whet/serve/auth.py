"""Authenticate requests by bearer token.

Every request needs a token, which is looked up each time, and again while a stream runs. Wrong tokens are
counted per address; a valid token is never throttled.
"""

from __future__ import annotations

import apsw
import msgspec
from starlette.requests import Request

from whet.clock import Clock
from whet.serve.tokens import TOKENS, ApiTokenRow, TokenRole, has_predecessor
from whet.serve.wire import ApiError
from whet.store.database import StateDatabase
from whet.web.throttle import Throttle
from whet.web.tokens import hash_secret

_FAILURES = 20


class ApiCaller(msgspec.Struct, frozen=True):
    """The caller of a request: the id and name of its token, its role, and the profile whose memory its
    sessions use, which is empty for the owner's."""

    token_id: str
    name: str
    role: TokenRole
    profile: str = ""

    @property
    def is_owner(self) -> bool:
        """Whether the caller may use all sessions, approvals and the dashboard."""
        return self.role == "owner"


class ApiAuth:
    """Checks the tokens of requests."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._throttle = Throttle(_FAILURES)

    def authenticate(self, request: Request) -> ApiCaller:
        """Return the caller of a request. Raises ApiError: 401 without a valid token, 429 after many wrong
        ones."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if not secret.strip() and (key := request.headers.get("x-api-key", "")):
            scheme, secret = "bearer", key
        if scheme.lower() != "bearer" or not secret.strip():
            raise ApiError(
                401, "a token is needed: Authorization: Bearer ... (or x-api-key)", code="missing_api_key"
            )
        caller = self.find_caller(secret)
        if caller is not None:
            return caller
        self.throttle(request.client.host if request.client else "")
        raise ApiError(401, "this token is not valid, or was revoked", code="invalid_api_key")

    def find_caller(self, secret: str) -> ApiCaller | None:
        """Return the caller with this token, or None if the token is wrong or revoked."""
        digest = hash_secret(secret.strip())
        # One lookup in a unique index. Running it in a thread would cost more than the lookup.
        return self._database.read_now(lambda db: _find_caller(db, digest))

    def is_valid(self, caller: ApiCaller) -> bool:
        """Return whether a caller's token is still valid."""
        return self.find_token(caller.token_id) is not None

    def find_token(self, token_id: str) -> ApiTokenRow | None:
        """Return the valid token with this id, or None."""
        return self._database.read_now(lambda db: TOKENS.find(db, TOKENS.by_id, token_id))

    def throttle(self, address: str) -> None:
        """Count a wrong secret. Raises ApiError (429) after too many within a minute."""
        if self._throttle.record_failure(address, self._clock.monotonic_s()):
            raise ApiError(429, "too many wrong tokens; wait a minute", code="too_many_failures")


def _find_caller(connection: apsw.Connection, digest: bytes) -> ApiCaller | None:
    """Return the caller whose token has this hash. A guest has a memory of its own, also if a revoked token
    had its name."""
    row = TOKENS.find(connection, TOKENS.by_hash, digest)
    if row is None:
        return None
    profile = ""
    if row.role == "guest":
        profile = f"api-{row.name}-{row.id}" if has_predecessor(connection, row) else f"api-{row.name}"
    return ApiCaller(row.id, row.name, row.role, profile)


def require_owner(caller: ApiCaller) -> None:
    """Raise ApiError (403) if the caller is not an owner."""
    if not caller.is_owner:
        raise ApiError(403, "this needs a token of role owner; yours may only converse", code="wrong_role")
