"""What was learned, refused and put aside since a person was last told, in numbers and in a line.

Reviews work when nobody looks: after a one-shot, beside a gateway. It is told at the next start, once, in
whichever interface that is.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.store import learned, ledger

WAITING: tuple[ledger.State, ...] = ("inbox", "quarantined")
"""The states of what waits for a person."""


class LearningNews(msgspec.Struct, frozen=True):
    """How many changes of reviews came into force, were refused, and wait for the person; `until` is the last
    change that is counted."""

    learned: int = 0
    refused: int = 0
    waiting: int = 0
    until: int = 0

    @property
    def line(self) -> str:
        """Say it in a line; empty where there is nothing to say."""
        return self.line_with("whet review inbox", "whet memory log")

    def line_with(self, inbox: str, log: str) -> str:
        """Say it in a line that names the interface's own ways to what was refused and to what was kept."""
        counted = (("learned", self.learned), ("refused", self.refused), ("waiting for you", self.waiting))
        parts = [f"{word} {number}" for word, number in counted if number]
        show = inbox if self.refused or self.waiting else log
        return f"since you left: {', '.join(parts)} ({show})" if parts else ""


def read(connection: apsw.Connection, profile: str = "") -> LearningNews:
    """Count what came since the person was last told."""
    since = learned.told_until(connection, profile)
    counts = {"active": 0, "refused": 0, "quarantined": 0, "inbox": 0}
    until = since
    for row_id, state in connection.execute(
        "SELECT id, state FROM ledger WHERE profile = ? AND id > ? AND write_origin = 'review'",
        (profile, since),
    ):
        until = max(until, row_id)
        if state in counts:
            counts[state] += 1
    return LearningNews(counts["active"], counts["refused"], counts["quarantined"] + counts["inbox"], until)


def tell(connection: apsw.Connection, profile: str = "") -> LearningNews:
    """Give what came since the person was last told, and keep that they were told now."""
    found = read(connection, profile)
    if found.until > learned.told_until(connection, profile):
        learned.set_told(connection, profile, found.until)
    return found


def seen(connection: apsw.Connection, task_id: str) -> None:
    """Keep that a person has just read what this review came to, unless something older is untold."""
    rows = ledger.of_task(connection, task_id)
    if not rows:
        return
    profile, last = rows[-1].profile, rows[-1].id
    others = connection.execute(
        "SELECT 1 FROM ledger WHERE profile = ? AND id > ? AND id < ? AND write_origin = 'review'"
        " AND task_id <> ? LIMIT 1",
        (profile, learned.told_until(connection, profile), last, task_id),
    )
    if others.fetchone() is None and last > learned.told_until(connection, profile):
        learned.set_told(connection, profile, last)


def waiting(connection: apsw.Connection, profile: str = "") -> list[ledger.LedgerRow]:
    """Give what waits for the person, the newest first."""
    return ledger.select(connection, profile=profile, states=WAITING)


def refusals(connection: apsw.Connection, profile: str = "", limit: int = 50) -> list[ledger.LedgerRow]:
    """Give what reviews were refused, the newest first."""
    rows = ledger.select(connection, limit, profile=profile, states=("refused",))
    return [row for row in rows if row.origin.write_origin == "review"]
