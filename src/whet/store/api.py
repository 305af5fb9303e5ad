"""The rows of the API: tokens, sign-ins on its page, and which session a client's conversation is.

Every function takes a connection inside a transaction. Secrets never come here, only their hashes.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import apsw
import msgspec

from whet.contract.errors import ConfigError, NotFound
from whet.store import rows, sessions
from whet.store.sessions import SessionRow

TokenRole: TypeAlias = Literal["owner", "chat", "guest"]


class ApiTokenRow(msgspec.Struct, frozen=True):
    """A token as it is listed: `owner` may do everything; `chat` converses in sessions that it began, with
    the owner's memory; `guest` does so with a memory of its own."""

    id: str
    name: str
    role: TokenRole
    created: str
    revoked: str


class LoginRow(msgspec.Struct, frozen=True):
    """Who is signed in on a browser; `token` is the id of the token. Times are Unix seconds."""

    id_hash: str
    token: str
    csrf: str
    created_s: float
    expires_s: float


class SessionOwner(msgspec.Struct, frozen=True):
    """What the API knows of a session: who began it, its client's name for it, the hash of what the client's
    own instructions were when the model was last given them."""

    token: str
    client_key: str
    instructions: str


_TOKEN = "id, name, role, created, revoked"


def add_token(connection: apsw.Connection, row: ApiTokenRow, digest: bytes) -> None:
    """Keep a new token. Raises ConfigError where its name is in use."""
    taken = connection.execute(
        "SELECT 1 FROM api_tokens WHERE name = ? AND revoked = ''", (row.name,)
    ).fetchone()
    if taken is not None:
        raise ConfigError(
            f"there is a token {row.name!r} already", hint=f"whet serve token revoke {row.name}"
        )
    connection.execute(
        "INSERT INTO api_tokens (id, hash, name, role, created) VALUES (?, ?, ?, ?, ?)",
        (row.id, digest, row.name, row.role, row.created),
    )


def token_by_hash(connection: apsw.Connection, digest: bytes) -> ApiTokenRow | None:
    """Give the token that is in use with this hash."""
    found = connection.execute(
        f"SELECT {_TOKEN} FROM api_tokens WHERE hash = ? AND revoked = ''", (digest,)
    ).fetchone()
    return ApiTokenRow(*found) if found else None


def token_by_id(connection: apsw.Connection, token_id: str) -> ApiTokenRow | None:
    """Give the token that is in use with this id."""
    found = connection.execute(
        f"SELECT {_TOKEN} FROM api_tokens WHERE id = ? AND revoked = ''", (token_id,)
    ).fetchone()
    return ApiTokenRow(*found) if found else None


def all_tokens(connection: apsw.Connection) -> list[ApiTokenRow]:
    """Give every token ever made, oldest first."""
    return [
        ApiTokenRow(*row)
        for row in connection.execute(f"SELECT {_TOKEN} FROM api_tokens ORDER BY created, id")
    ]


def revoke_token(connection: apsw.Connection, name: str, now: str) -> ApiTokenRow:
    """Take back the token with this id or name; its sign-ins end with it. Raises NotFound."""
    found = connection.execute(
        f"SELECT {_TOKEN} FROM api_tokens WHERE (id = ? OR name = ?) AND revoked = ''", (name, name)
    ).fetchone()
    if found is None:
        raise NotFound(f"there is no token {name!r} in use", hint="whet serve token list")
    connection.execute("UPDATE api_tokens SET revoked = ? WHERE id = ?", (now, found[0]))
    connection.execute("DELETE FROM api_logins WHERE token = ?", (found[0],))
    return msgspec.structs.replace(ApiTokenRow(*found), revoked=now)


def save_login(connection: apsw.Connection, row: LoginRow) -> None:
    """Keep a sign-in; those whose time is up go."""
    connection.execute("DELETE FROM api_logins WHERE expires_s < ?", (row.created_s,))
    connection.execute("INSERT INTO api_logins VALUES (?, ?, ?, ?, ?)", msgspec.structs.astuple(row))


def find_login(connection: apsw.Connection, id_hash: str) -> LoginRow | None:
    """Give a sign-in by the hash of its number."""
    found = connection.execute(
        "SELECT id_hash, token, csrf, created_s, expires_s FROM api_logins WHERE id_hash = ?", (id_hash,)
    ).fetchone()
    return LoginRow(*found) if found else None


def drop_login(connection: apsw.Connection, id_hash: str) -> None:
    """Forget a sign-in."""
    connection.execute("DELETE FROM api_logins WHERE id_hash = ?", (id_hash,))


def adopt(connection: apsw.Connection, session_id: str, token: str, client_key: str = "") -> None:
    """Note who began a session, and the client's name for it."""
    key = sessions.key_of(connection, session_id)
    connection.execute(
        "INSERT OR IGNORE INTO api_sessions (session, token, client_key) VALUES (?, ?, ?)",
        (key, token, client_key),
    )


def set_aside(connection: apsw.Connection, session_id: str) -> None:
    """Have a session count as a helper's: not listed among conversations, not gone on with, not reviewed.

    What it cost still counts.
    """
    key = sessions.key_of(connection, session_id)
    connection.execute("UPDATE sessions SET kind = 'child' WHERE key = ?", (key,))


def belonging(connection: apsw.Connection, session_id: str) -> SessionOwner | None:
    """Give what is known of a session; None where it was not begun here. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    found = connection.execute(
        "SELECT token, client_key, instructions FROM api_sessions WHERE session = ?", (key,)
    ).fetchone()
    return SessionOwner(*found) if found else None


def session_of(connection: apsw.Connection, token: str, client_key: str) -> str:
    """Give the session that a client calls so; empty without one."""
    found = connection.execute(
        "SELECT s.id FROM api_sessions a JOIN sessions s ON s.key = a.session"
        " WHERE a.token = ? AND a.client_key = ? AND a.client_key <> ''",  # in the words of the index
        (token, client_key),
    ).fetchone()
    return found[0] if found else ""


def set_instructions(connection: apsw.Connection, session_id: str, digest: str) -> None:
    """Note which of the client's instructions the model has been given."""
    key = sessions.key_of(connection, session_id)
    connection.execute("UPDATE api_sessions SET instructions = ? WHERE session = ?", (digest, key))


def begun_with(connection: apsw.Connection, token: str, limit: int, before: str = "") -> list[SessionRow]:
    """Give the sessions that a token began, the last active first; `before`: a `last_active` to start at."""
    found = connection.execute(
        "SELECT s.id FROM api_sessions a JOIN sessions s ON s.key = a.session"
        " WHERE a.token = ? AND s.kind = 'chat' AND (? = '' OR s.last_active < ?)"
        " ORDER BY s.last_active DESC, s.key DESC LIMIT ?",
        (token, before, before, limit),
    ).fetchall()
    return [sessions.get(connection, row[0]) for row in found]


def said_by_user(connection: apsw.Connection, session_id: str) -> list[str]:
    """Give the texts of the person's messages, in order; those of undone turns are left out."""
    key = sessions.key_of(connection, session_id)
    found = connection.execute(
        "SELECT role, content, extra FROM messages m WHERE id > ? AND id < ? AND role = ? AND NOT EXISTS"
        " (SELECT 1 FROM turns t WHERE t.session = ? AND t.number = m.turn AND t.undone <> '') ORDER BY id",
        (key << rows.SEQ_BITS, (key + 1) << rows.SEQ_BITS, rows.USER, key),
    )
    return [rows.unpack(*row).text for row in found]


def keep_response(connection: apsw.Connection, response_id: str, session_id: str) -> None:
    """Remember that a response is the last turn of a session."""
    key = sessions.key_of(connection, session_id)
    connection.execute(
        "INSERT INTO api_responses (id, session, turn) VALUES (?, ?, ?)",
        (response_id, key, _last_turn(connection, key)),
    )


def response_of(connection: apsw.Connection, response_id: str) -> tuple[str, bool] | None:
    """Give a response's session and whether nothing was said there since; None for an unknown one."""
    found = connection.execute(
        "SELECT s.id, r.turn, s.key FROM api_responses r JOIN sessions s ON s.key = r.session WHERE r.id = ?",
        (response_id,),
    ).fetchone()
    return (found[0], found[1] == _last_turn(connection, found[2])) if found else None


def _last_turn(connection: apsw.Connection, key: int) -> int:
    found = connection.execute(
        "SELECT max(number) FROM turns WHERE session = ? AND undone = ''", (key,)
    ).fetchone()
    return (found[0] or 0) if found else 0
