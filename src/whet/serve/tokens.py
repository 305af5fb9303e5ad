"""Bearer tokens: who is calling and what they may do. Only hashes are stored.

A token is `sk-whet-` and 43 characters (256 random bits); the beginning is what clients of OpenAI's expect
and what `log.mask` knows. Each request looks its hash up in the store, so that a token made or revoked by
any process holds from the next request on.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path

import apsw

from whet.clock import Clock, iso
from whet.config.files import replace
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.store import api
from whet.store.api import ApiTokenRow, TokenRole
from whet.store.database import StateDatabase

PREFIX = "sk-whet-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def hash_of(secret: str) -> bytes:
    """Give what is stored of a token. Looking up a hash of 256 random bits leaks nothing by its timing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def make(connection: apsw.Connection, name: str, role: TokenRole, clock: Clock) -> tuple[ApiTokenRow, str]:
    """Make a token and give it with its secret, which is shown this once. Raises ConfigError for its name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:60]!r} can't be a token's name", hint="letters, digits and . _ @ -, at most 64"
        )
    secret = PREFIX + secrets.token_urlsafe(32)
    row = ApiTokenRow(clock.new_id(), name, role, iso(clock.now()), "")
    api.add_token(connection, row, hash_of(secret))
    return row, secret


def first_token_path(home: Home) -> Path:
    """Where the token of the first start is kept."""
    return home.root / "serve" / "owner.token"


def make_first(database: StateDatabase, home: Home, clock: Clock) -> Path | None:
    """Where no token was ever made, make the owner's and give its file (0600); None where there is one."""

    def work(connection: apsw.Connection) -> str:
        return "" if api.all_tokens(connection) else make(connection, "owner", "owner", clock)[1]

    if database.read_now(api.all_tokens):
        return None
    secret = database.write_now(work)
    if not secret:
        return None
    path = first_token_path(home)
    replace(path, secret + "\n", mode=0o600)
    return path
