"""Hold answers until the end of a chat's quiet hours, when a job sends them together.

Every function takes a connection inside a transaction.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.clock import Clock
from whet.store import jobs

KIND = "digest"


class HeldAnswer(msgspec.Struct, frozen=True):
    """The answer of a schedule's run that ended during quiet hours."""

    name: str
    result: str
    note: str
    text: str


def hold_answer(connection: apsw.Connection, job_id: str, target: str, until: str, clock: Clock) -> None:
    """Hold a finished run's answer for `target` until a time (ISO)."""
    connection.execute("UPDATE schedule_runs SET held = ? WHERE job = ?", (target, job_id))
    if jobs.find_waiting(connection, KIND, target) is None:
        jobs.enqueue(connection, jobs.NewJob(KIND, "{}", until, target), clock)


def take_answers(connection: apsw.Connection, target: str) -> list[HeldAnswer]:
    """Return the held answers for a chat, oldest first, and mark them as no longer held."""
    records = connection.execute(
        "SELECT coalesce(s.name, ''), r.result, r.note, r.text FROM schedule_runs AS r"
        " LEFT JOIN schedules AS s ON s.id = r.schedule WHERE r.held = ? ORDER BY r.finished, r.job",
        (target,),
    ).fetchall()
    connection.execute("UPDATE schedule_runs SET held = '' WHERE held = ?", (target,))
    return [HeldAnswer(*row) for row in records]
