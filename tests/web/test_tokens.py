"""Tokens and sign-ins in tables of a real database."""

from __future__ import annotations

import hashlib

import apsw
import msgspec
import pytest

from whet.web.sessions import LoginSession
from whet.web.tokens import LoginTable, TokenTable, hash_secret


class Row(msgspec.Struct, frozen=True):
    id: str
    name: str
    role: str
    created: float
    revoked: str


@pytest.fixture
def db() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE TABLE t (id TEXT PRIMARY KEY, hash BLOB UNIQUE, name TEXT, role TEXT, created REAL,"
        " revoked TEXT);"
        "CREATE TABLE logins (id_hash TEXT PRIMARY KEY, account TEXT, csrf TEXT, made REAL, ends REAL)"
    )
    return connection


TOKENS = TokenTable("t", "tok-", Row, "revoked = ''")
LOGINS = LoginTable("logins", "ends")


def test_a_token_is_found_by_its_secret_until_it_is_revoked(db: apsw.Connection) -> None:
    row = Row("1", "ada", "owner", 1.0, "")
    secret, other = TOKENS.add(db, row), TOKENS.add(db, Row("2", "bob", "chat", 1.0, ""))
    assert secret.startswith("tok-") and len(secret) == 47 and secret != other
    assert hash_secret(secret) == hashlib.sha256(secret.encode()).digest()
    assert TOKENS.find(db, TOKENS.by_hash, hash_secret(secret)) == row
    assert TOKENS.find(db, TOKENS.by_id, "1") == TOKENS.find(db, TOKENS.by_name, "ada") == row
    assert TOKENS.find(db, TOKENS.by_hash, hash_secret("tok-wrong")) is None
    assert TOKENS.revoke(db, "1", "today") and not TOKENS.revoke(db, "1", "tomorrow")
    assert not TOKENS.revoke(db, "none", "today")
    for by, value in ((TOKENS.by_hash, hash_secret(secret)), (TOKENS.by_id, "1"), (TOKENS.by_name, "ada")):
        assert TOKENS.find(db, by, value) is None
    assert [one.revoked for one in TOKENS.all(db)] == ["today", ""]
    stored = db.execute("SELECT * FROM t").fetchall()
    assert not any(secret in str(cell) for cells in stored for cell in cells)


def test_tokens_are_listed_oldest_first(db: apsw.Connection) -> None:
    for token_id, made in (("b", 2.0), ("c", 1.0), ("a", 2.0)):
        TOKENS.add(db, Row(token_id, token_id, "chat", made, ""))
    assert [row.id for row in TOKENS.all(db)] == ["c", "a", "b"]


def test_a_sign_in_is_kept_until_its_time_is_up_or_it_is_dropped(db: apsw.Connection) -> None:
    first, second = LoginSession("h1", "1", "csrf", 0.0, 10.0), LoginSession("h2", "1", "csrf", 10.0, 20.0)
    LOGINS.save(db, first)
    LOGINS.save(db, second)
    assert LOGINS.find(db, "h1") == first and LOGINS.find(db, "h3") is None
    LOGINS.save(db, LoginSession("h3", "1", "csrf", 10.5, 20.0))
    assert LOGINS.find(db, "h1") is None and LOGINS.find(db, "h2") == second
    LOGINS.drop(db, "h2")
    assert LOGINS.find(db, "h2") is None
