"""Who may call: the bearer token of a request, looked up at each one, and again while a stream runs.

There is no way in without a token. Wrong ones are counted by address; a right one is never throttled.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from whet.clock import Clock
from whet.serve.tokens import TOKENS, ApiTokenRow, TokenRole
from whet.serve.wire import ApiError
from whet.store.database import StateDatabase
from whet.web.throttle import Throttle
from whet.web.tokens import hash_of

_FAILURES = 20


class ApiCaller(msgspec.Struct, frozen=True):
    """Who makes a request: its token's id and name, and what it may do."""

    token_id: str
    name: str
    role: TokenRole

    @property
    def is_owner(self) -> bool:
        """Whether everything is allowed: every session, approvals, the dashboard."""
        return self.role == "owner"

    @property
    def profile(self) -> str:
        """Whose memory its sessions read and write: the owner's, or a guest's own."""
        return f"api-{self.name}" if self.role == "guest" else ""


class ApiAuth:
    """Lets requests in, or refuses them."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._throttle = Throttle(_FAILURES)

    def caller(self, request: Request) -> ApiCaller:
        """Give who is calling. Raises ApiError: 401 without a valid token, 429 after many wrong ones."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if not secret.strip() and (key := request.headers.get("x-api-key", "")):
            scheme, secret = "bearer", key
        if scheme.lower() != "bearer" or not secret.strip():
            raise ApiError(
                401, "a token is needed: Authorization: Bearer ... (or x-api-key)", code="missing_api_key"
            )
        found = self.open(secret)
        if found is not None:
            return found
        self.throttle(request.client.host if request.client else "")
        raise ApiError(401, "this token is not valid, or was revoked", code="invalid_api_key")

    def open(self, secret: str) -> ApiCaller | None:
        """Give who a secret belongs to; None for a wrong or revoked one."""
        digest = hash_of(secret.strip())
        # One look at a unique index: a thread's way there and back would cost more than the look.
        row = self._database.read_now(lambda db: TOKENS.find(db, TOKENS.by_hash, digest))
        return ApiCaller(row.id, row.name, row.role) if row else None

    def is_valid(self, caller: ApiCaller) -> bool:
        """Whether a caller's token is still in use."""
        return self.token(caller.token_id) is not None

    def token(self, token_id: str) -> ApiTokenRow | None:
        """Give the token in use with this id."""
        return self._database.read_now(lambda db: TOKENS.find(db, TOKENS.by_id, token_id))

    def throttle(self, address: str) -> None:
        """Count a wrong secret. Raises ApiError (429) after too many within a minute."""
        if self._throttle.failed(address, self._clock.monotonic_s()):
            raise ApiError(429, "too many wrong tokens; wait a minute", code="too_many_failures")


def need_owner(caller: ApiCaller) -> None:
    """Refuse (403) a caller that may only converse."""
    if not caller.is_owner:
        raise ApiError(403, "this needs a token of role owner; yours may only converse", code="wrong_role")
