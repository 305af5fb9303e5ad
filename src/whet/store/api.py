"""Record which API client owns a session, and which response each turn of it produced.

Every function takes a connection inside a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.store import rows, sessions

_SHARED = -1
"""Stored as the turn of a tip that several sessions have, so that it is never a session's newest turn."""


class SessionOwner(msgspec.Struct, frozen=True):
    """A session's API data.

    `token` names the token that began it, `client_key` is the client's name for the session, and
    `instructions` is the hash of the client's instructions that the model received last.
    """

    token: str
    client_key: str
    instructions: str


def set_owner(connection: apsw.Connection, session_id: str, token: str, client_key: str = "") -> None:
    """Record the owner of a session and the client's name for it. Another session of that name loses it."""
    key = sessions.key_of(connection, session_id)
    _release_client_key(connection, token, client_key)
    connection.execute(
        "INSERT OR IGNORE INTO api_sessions (session, token, client_key) VALUES (?, ?, ?)",
        (key, token, client_key),
    )


def find_token_name(connection: apsw.Connection, session_id: str) -> str | None:
    """Return the name of the token that began a session, or None if it was not begun through the API."""
    sql = "SELECT a.token FROM sessions s JOIN api_sessions a ON a.session = s.key WHERE s.id = ?"
    return rows.read_value(connection, sql, session_id)


_LIMITING_TOKEN = (
    "WITH RECURSIVE above (id) AS (SELECT id FROM sessions WHERE id = ? UNION"
    " SELECT s.parent_session_id FROM sessions s JOIN above ON s.id = above.id"
    " WHERE s.parent_session_id <> '')"
    " SELECT a.token FROM above JOIN sessions s ON s.id = above.id JOIN api_sessions a ON a.session = s.key"
    " WHERE NOT EXISTS (SELECT 1 FROM api_tokens t WHERE t.name = a.token AND t.role = 'owner'"
    " AND t.revoked = '') LIMIT 1"
)


def find_limiting_token(connection: apsw.Connection, session_id: str) -> str:
    """Return the name of the API token that began a session or its parent, if that token may see only its own
    sessions; else an empty string."""
    sql = _LIMITING_TOKEN
    return rows.read_value(connection, sql, session_id) or ""


def find_person(connection: apsw.Connection, session_id: str) -> tuple[str, str]:
    """Return whose session it is: the profile whose memory it uses, and the API token that it is limited to.
    Raises NotFound."""
    return sessions.profile_of(connection, session_id), find_limiting_token(connection, session_id)


def list_sessions_of_person(
    connection: apsw.Connection, session_id: str, candidates: Iterable[str]
) -> frozenset[str]:
    """Return those of the candidates that belong to the same person as a session. Ids without a stored
    session belong to nobody."""

    def person_of(candidate: str) -> tuple[str, str] | None:
        try:
            return find_person(connection, candidate)
        except NotFound:
            return None

    person = person_of(session_id)
    return frozenset(id for id in candidates if person is not None and person_of(id) == person)


def detach_sessions(connection: apsw.Connection, token: str, token_id: str) -> None:
    """Leave the sessions of a revoked token to its id: another token of its name does not see them."""
    # No token can have this name.
    connection.execute("UPDATE api_sessions SET token = ? WHERE token = ?", (f"revoked:{token_id}", token))


def _release_client_key(connection: apsw.Connection, token: str, client_key: str) -> None:
    connection.execute(
        "UPDATE api_sessions SET client_key = '' WHERE token = ? AND client_key = ? AND client_key <> ''",
        (token, client_key),
    )


def mark_as_helper(connection: apsw.Connection, session_id: str) -> None:
    """Treat a session as a helper's: it is not listed among conversations, not continued and not reviewed.

    Its cost still counts.
    """
    key = sessions.key_of(connection, session_id)
    connection.execute("UPDATE sessions SET kind = 'child' WHERE key = ?", (key,))


def find_owner(connection: apsw.Connection, session_id: str) -> SessionOwner | None:
    """Return a session's API data, or None if it was not begun through the API. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    row = connection.execute(
        "SELECT token, client_key, instructions FROM api_sessions WHERE session = ?", (key,)
    ).fetchone()
    return SessionOwner(*row) if row else None


def find_session(connection: apsw.Connection, token: str, client_key: str) -> str:
    """Return the id of the session that a client has given this name, or an empty string."""
    sql = (
        "SELECT s.id FROM api_sessions a JOIN sessions s ON s.key = a.session"
        " WHERE a.token = ? AND a.client_key = ? AND a.client_key <> ''"
    )
    return rows.read_value(connection, sql, token, client_key) or ""


def last_step(connection: apsw.Connection, session_id: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the (turn id, call id) of each call in the newest step with calls, and whether that step ended
    the session's messages.

    Undone turns and turns that a client sent as history do not count.
    """
    key = sessions.key_of(connection, session_id)
    records = connection.execute(
        "SELECT t.id, c.call_id, c.seq FROM tool_calls c"
        " JOIN turns t ON t.session = c.session AND t.number = c.turn"
        " WHERE c.session = ?1 AND (c.turn, c.step) = (SELECT c.turn, c.step FROM tool_calls c"
        " JOIN turns t ON t.session = c.session AND t.number = c.turn"
        " WHERE c.session = ?1 AND t.undone = '' AND t.id NOT LIKE 'import-%' ORDER BY c.seq DESC LIMIT 1)",
        (key,),
    ).fetchall()
    newest = rows.number(
        connection, "SELECT coalesce(max(id), 0) FROM messages WHERE id > ? AND id < ?", *rows.ids_of(key)
    )
    last = max((seq for _, _, seq in records), default=0)
    calls = tuple((turn_id, call_id) for turn_id, call_id, _ in records)
    return calls, bool(calls) and newest <= rows.row_id(key, last)


def list_call_ids(connection: apsw.Connection, session_id: str) -> list[tuple[str, str]]:
    """Return the (turn id, call id) of each call of a session, newest first, without undone turns."""
    calls = connection.execute(
        "SELECT t.id, c.call_id FROM tool_calls c JOIN turns t ON t.session = c.session AND t.number = c.turn"
        " WHERE c.session = ? AND t.undone = '' ORDER BY c.seq DESC",
        (sessions.key_of(connection, session_id),),
    )
    return [(str(turn_id), str(call_id)) for turn_id, call_id in calls]


def keep_tips(connection: apsw.Connection, session_id: str, turn_id: str, tips: Sequence[str]) -> None:
    """Store hashes of the conversation's end after a turn ("tips"), by which the client's next request finds
    the session. A tip that two sessions have finds neither."""
    key = sessions.key_of(connection, session_id)
    connection.execute(
        "DELETE FROM api_responses WHERE session = ? AND id LIKE 'tip:%' AND turn <> ?", (key, _SHARED)
    )
    for tip in tips:
        connection.execute(
            "INSERT INTO api_responses (id, session, turn) SELECT ?1, session, number FROM turns"
            " WHERE session = ?2 AND id = ?3 ON CONFLICT (id) DO UPDATE SET turn = ?4",
            (tip, key, turn_id, _SHARED),
        )


def set_instructions(connection: apsw.Connection, session_id: str, digest: str) -> None:
    """Record the hash of the client's instructions that the model has received."""
    key = sessions.key_of(connection, session_id)
    connection.execute("UPDATE api_sessions SET instructions = ? WHERE session = ?", (digest, key))


def list_user_texts(connection: apsw.Connection, session_id: str) -> list[str]:
    """Return the texts of the person's messages in order, without undone turns."""
    key = sessions.key_of(connection, session_id)
    records = connection.execute(
        "SELECT role, content, extra FROM messages m WHERE id > ? AND id < ? AND role = ? AND NOT EXISTS"
        " (SELECT 1 FROM turns t WHERE t.session = ? AND t.number = m.turn AND t.undone <> '') ORDER BY id",
        (*rows.ids_of(key), rows.USER, key),
    )
    return [rows.unpack(*row).text for row in records]


def store_response(connection: apsw.Connection, response_id: str, session_id: str) -> None:
    """Record that a session's last turn produced a response. Of a response's several turns the newest is
    kept."""
    key = sessions.key_of(connection, session_id)
    connection.execute(
        "INSERT INTO api_responses (id, session, turn) VALUES (?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET session = excluded.session, turn = excluded.turn",
        (response_id, key, _last_turn(connection, key)),
    )


def find_response(connection: apsw.Connection, response_id: str) -> tuple[str, bool] | None:
    """Return the session of a response or a tip, and whether it is the newest there; None if unknown."""
    row = connection.execute(
        "SELECT s.id, r.turn, s.key FROM api_responses r JOIN sessions s ON s.key = r.session WHERE r.id = ?",
        (response_id,),
    ).fetchone()
    return (row[0], row[1] == _last_turn(connection, row[2])) if row else None


def read_response_turn(connection: apsw.Connection, response_id: str) -> int:
    """Return the turn of a response in its session, or 0 if it is unknown."""
    row = connection.execute("SELECT turn FROM api_responses WHERE id = ?", (response_id,)).fetchone()
    return int(row[0]) if row else 0


def _last_turn(connection: apsw.Connection, key: int) -> int:
    last = "SELECT coalesce(max(number), 0) FROM turns WHERE session = ? AND undone = ''"
    return rows.number(connection, last, key)
