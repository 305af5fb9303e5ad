"""Create and revoke the API's tokens, which have names and roles.

A secret begins with a prefix that clients of OpenAI expect and that `log.mask` recognises.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.config.paths import Home, replace_file
from whet.contract.errors import ConfigError, NotFound
from whet.store import api
from whet.store.database import StateDatabase
from whet.web.tokens import LoginTable, TokenTable

TokenRole: TypeAlias = Literal["owner", "chat", "guest"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class ApiTokenRow(msgspec.Struct, frozen=True):
    """A token without its secret. The role `owner` may do everything, `chat` may use the sessions that it
    created, with the owner's memory, and `guest` the same with a memory of its own."""

    id: str
    name: str
    role: TokenRole
    created: str
    revoked: str


TOKENS = TokenTable("api_tokens", "sk-whet-", ApiTokenRow, "revoked = ''")
LOGINS = LoginTable("api_logins", "expires_s")


def make(connection: apsw.Connection, name: str, role: TokenRole, clock: Clock) -> tuple[ApiTokenRow, str]:
    """Create a token. Returns its row and its secret, which can't be shown again. Raises ConfigError if the
    name is invalid or in use.

    Unless both are an owner's, it does not see the sessions of a revoked token of the same name.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:60]!r} can't be a token's name", hint="letters, digits and . _ @ -, at most 64"
        )
    if TOKENS.find(connection, TOKENS.by_name, name):
        raise ConfigError(f"there is a token {name!r} already", hint=f"whet serve token revoke {name}")
    row = ApiTokenRow(clock.new_id(), name, role, iso(clock.now()), "")
    earlier = [token for token in TOKENS.all(connection) if token.name == name]
    if earlier and not earlier[-1].role == role == "owner":
        api.detach_sessions(connection, name, earlier[-1].id)
    return row, TOKENS.add(connection, row)


def has_predecessor(connection: apsw.Connection, row: ApiTokenRow) -> bool:
    """Return whether a revoked token had the name of this one."""
    sql = "SELECT 1 FROM api_tokens WHERE name = ? AND revoked <> ''"
    return connection.execute(sql, (row.name,)).fetchone() is not None


def revoke(connection: apsw.Connection, name: str, now: str) -> ApiTokenRow:
    """Revoke the token with this id or name and end its logins. Raises NotFound."""
    row = TOKENS.find(connection, TOKENS.by_id, name) or TOKENS.find(connection, TOKENS.by_name, name)
    if row is None:
        raise NotFound(f"there is no token {name!r} in use", hint="whet serve token list")
    TOKENS.revoke(connection, row.id, now)
    connection.execute("DELETE FROM api_logins WHERE token = ?", (row.id,))
    return msgspec.structs.replace(row, revoked=now)


def first_token_path(home: Home) -> Path:
    """Return the path of the token that the first start creates."""
    return home.root / "serve" / "owner.token"


def make_first(database: StateDatabase, home: Home, clock: Clock) -> Path | None:
    """Create the owner's token if no token was ever created. Returns the path of its file (mode 0600), or
    None if there was one."""

    def work(connection: apsw.Connection) -> str:
        return "" if TOKENS.all(connection) else make(connection, "owner", "owner", clock)[1]

    if database.read_now(TOKENS.all):
        return None
    secret = database.write_now(work)
    if not secret:
        return None
    path = first_token_path(home)
    replace_file(path, secret + "\n", mode=0o600)
    return path
