"""Tokens of the API as accounts of the dashboard: only an owner's opens it; sign-ins are rows."""

from __future__ import annotations

from whet.serve.door import ApiAuth
from whet.serve.wire import ApiError
from whet.store import api
from whet.store.api import LoginRow
from whet.store.database import StateDatabase
from whet.web.sessions import Account, LoginSession, TooManyAttempts

_WAIT_S = 60


class OwnerAccounts:
    """Signing in with an owner's token; revoking it ends its sign-ins at once."""

    def __init__(self, door: ApiAuth, database: StateDatabase) -> None:
        self._door = door
        self._database = database

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
        row = self._database.read_now(lambda db: api.token_by_id(db, key))
        if row is None or row.role != "owner":
            return None
        return Account(row.id, row.name, frozenset((row.role,)))


class Logins:
    """Sign-ins in the store."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    async def save(self, row: LoginSession) -> None:
        """Keep a sign-in; durable on return."""
        login = LoginRow(row.id_hash, row.account_key, row.csrf, row.created_s, row.expires_s)
        await self._database.append(lambda db: api.save_login(db, login))

    async def find(self, id_hash: str) -> LoginSession | None:
        """Give a sign-in by the hash of its number."""
        row = self._database.read_now(lambda db: api.find_login(db, id_hash))
        return LoginSession(row.id_hash, row.token, row.csrf, row.created_s, row.expires_s) if row else None

    async def drop(self, id_hash: str) -> None:
        """Forget a sign-in; durable on return."""
        await self._database.append(lambda db: api.drop_login(db, id_hash))
