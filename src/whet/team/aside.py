"""Turns that were set aside because workers were lost with them: list them, and release them to the queue."""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.team.notices import WAITING

_LIST = """
SELECT id, session, person, left(body, 200), attempts, error, extract(epoch FROM now() - ended)::float8
FROM team_turns WHERE state = 'aside' ORDER BY number
"""
_RELEASE = """
UPDATE team_turns SET state = 'waiting', told = 0, reason = '', error = '', ended = NULL, cancelled = 0,
  passed = attempts, is_next = 1 WHERE state = 'aside' AND id = ?
"""


class AsideTurn(msgspec.Struct, frozen=True):
    """A turn that was set aside, `age_s` seconds ago. `person` is empty for the owner."""

    id: str
    session_id: str
    person: str
    text: str
    attempts: int
    error: str
    age_s: float


def list_aside(connection: apsw.Connection) -> list[AsideTurn]:
    """Return the turns that were set aside, the oldest first."""
    return [AsideTurn(*row) for row in connection.execute(_LIST).fetchall()]


def release_turn(connection: apsw.Connection, turn_id: str) -> None:
    """Return a turn to the queue; a worker continues it where its transcript ends. Raises NotFound."""
    connection.execute(_RELEASE, (turn_id,))
    if not connection.changes():
        raise NotFound(f"no turn {turn_id} is set aside", hint="list them: whet team aside")
    connection.execute("SELECT pg_notify(?, '')", (WAITING,))
