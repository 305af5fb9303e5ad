"""Set aside the turns during which too many workers stopped, list them, and release them to the queue."""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.postgres.commits import FORGET_OLD_LANES
from whet.team.events import write_end, write_lost_ends
from whet.team.notices import ENDED, WAITING
from whet.team.queue import CLOSE
from whet.team.taking import IS_OWNED, LOST, MARK_MISSED, MAX_LOST

_LOST_TURNS = f"""
SELECT t.id, t.session, t.attempts - t.passed FROM team_turns t
WHERE t.state = 'running' AND t.lease_until < now() AND {LOST} >= {MAX_LOST} AND NOT {IS_OWNED}
FOR UPDATE OF t SKIP LOCKED
"""
_LIST = """
SELECT id, session, person, left(body, 200), attempts, error, extract(epoch FROM now() - ended)::float8
FROM team_turns WHERE state = 'aside' ORDER BY number
"""
_RELEASE = """
UPDATE team_turns SET state = 'waiting', told = 0, reason = '', error = '', ended = NULL, cancelled = 0,
  passed = attempts, is_next = 1 WHERE state = 'aside' AND id = ?
"""


class AsideTurn(msgspec.Struct, frozen=True):
    """A turn that was set aside `age_s` seconds ago. `person` is empty for the owner."""

    id: str
    session_id: str
    person: str
    text: str
    attempts: int
    error: str
    age_s: float


def set_lost_aside(connection: apsw.Connection) -> None:
    """Set aside turns during which too many workers stopped, write the missing end events of other turns, and
    delete lanes that have committed nothing for a day. Called regularly."""
    for turn_id, session_id, lost_count in connection.execute(_LOST_TURNS).fetchall():
        error = f"set aside, because {lost_count} workers stopped while they ran this turn"
        connection.execute(CLOSE, (turn_id, "aside", "failed", error, ENDED))
        connection.execute("UPDATE team_turns SET told = 1 WHERE id = ?", (turn_id,))
        hint = f"whoever runs the team may release it: whet team release {turn_id}"
        write_end(connection, (turn_id, session_id), "failed", "", error, hint)
    connection.execute(MARK_MISSED)
    write_lost_ends(connection)
    connection.execute(FORGET_OLD_LANES)


def list_aside(connection: apsw.Connection) -> list[AsideTurn]:
    """Return the turns that were set aside, the oldest first."""
    return [AsideTurn(*row) for row in connection.execute(_LIST).fetchall()]


def release_turn(connection: apsw.Connection, turn_id: str) -> None:
    """Return a turn to the queue. A worker continues it at the end of its transcript. Raises NotFound."""
    connection.execute(_RELEASE, (turn_id,))
    if not connection.changes():
        raise NotFound(f"no turn {turn_id} is set aside", hint="list them: whet team aside")
    connection.execute("SELECT pg_notify(?, '')", (WAITING,))
