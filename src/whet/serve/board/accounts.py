"""Tokens of the API as accounts of the dashboard: only an owner's opens it; sign-ins are rows."""

from __future__ import annotations

from whet.serve.door import ApiAuth
from whet.serve.tokens import LOGINS
from whet.serve.wire import ApiError
from whet.store.database import StateDatabase
from whet.web.sessions import Account, LoginSession, TooManyAttempts

_WAIT_S = 60


class OwnerAccounts:
    """Signing in with an owner's token; revoking it ends its sign-ins at once."""

    def __init__(self, door: ApiAuth) -> None:
        self._door = door

    async def sign_in(self, token: str, client: str) -> Account | None:
        """Give the account of a token; one without a key where it only converses. Raises TooManyAttempts."""
        caller = self._door.open(token)
        if caller is None:
            try:
                self._door.throttle(client)
            except ApiError as error:
                raise TooManyAttempts(_WAIT_S) from error
            return None
        return Account(caller.token_id if caller.is_owner else "", caller.name, frozenset((caller.role,)))

    async def find(self, key: str) -> Account | None:
        """Give the account again; None once its token was revoked."""
        row = self._door.token(key)
        if row is None or row.role != "owner":
            return None
        return Account(row.id, row.name, frozenset((row.role,)))


class Logins:
    """Sign-ins in the store."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    async def save(self, row: LoginSession) -> None:
        """Keep a sign-in; durable on return."""
        await self._database.append(lambda db: LOGINS.save(db, row))

    async def find(self, id_hash: str) -> LoginSession | None:
        """Give a sign-in by the hash of its number."""
        return self._database.read_now(lambda db: LOGINS.find(db, id_hash))

    async def drop(self, id_hash: str) -> None:
        """Forget a sign-in; durable on return."""
        await self._database.append(lambda db: LOGINS.drop(db, id_hash))
