"""Count the lessons that reviews learned, refused or put aside since the last report to the person.

Reviews run unattended, for example after a one-shot or beside a gateway. The report is shown once, at the
next start of any interface.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.store import learned, ledger

WAITING: tuple[ledger.State, ...] = ("inbox", "quarantined")
"""The states of changes that wait for a person."""


class LearningNews(msgspec.Struct, frozen=True):
    """The numbers of reviews' changes that took effect, were refused, or wait for the person, up to the
    change `until`."""

    learned: int = 0
    refused: int = 0
    waiting: int = 0
    until: int = 0

    @property
    def line(self) -> str:
        """The report in one line, empty if there is nothing to report."""
        return self.line_with("whet review inbox", "whet memory log")

    def line_with(self, inbox: str, log: str) -> str:
        """Return the report in one line, naming the interface's own commands for the inbox and the log."""
        counted = (("learned", self.learned), ("refused", self.refused), ("waiting for you", self.waiting))
        parts = [f"{word} {number}" for word, number in counted if number]
        show = inbox if self.refused or self.waiting else log
        return f"since you left: {', '.join(parts)} ({show})" if parts else ""


def count_unread(connection: apsw.Connection, profile: str = "") -> LearningNews:
    """Count the changes since the last report."""
    since = learned.read_report_position(connection, profile)
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


def take_unread(connection: apsw.Connection, profile: str = "") -> LearningNews:
    """Return the changes since the last report, and mark them as reported."""
    news = count_unread(connection, profile)
    if news.until > learned.read_report_position(connection, profile):
        learned.set_report_position(connection, profile, news.until)
    return news


def mark_task_read(connection: apsw.Connection, task_id: str) -> None:
    """Record that the person has read the results of this review, unless older changes are unreported."""
    rows = ledger.list_task_rows(connection, task_id)
    if not rows:
        return
    profile, last = rows[-1].profile, rows[-1].id
    others = connection.execute(
        "SELECT 1 FROM ledger WHERE profile = ? AND id > ? AND id < ? AND write_origin = 'review'"
        " AND task_id <> ? LIMIT 1",
        (profile, learned.read_report_position(connection, profile), last, task_id),
    )
    if others.fetchone() is None and last > learned.read_report_position(connection, profile):
        learned.set_report_position(connection, profile, last)


def list_waiting(connection: apsw.Connection, profile: str = "") -> list[ledger.LedgerRow]:
    """Return the changes that wait for the person, newest first."""
    return ledger.select(connection, profile=profile, states=WAITING)


def list_refusals(connection: apsw.Connection, profile: str = "", limit: int = 50) -> list[ledger.LedgerRow]:
    """Return the changes of reviews that were refused, newest first."""
    rows = ledger.select(connection, limit, profile=profile, states=("refused",))
    return [row for row in rows if row.origin.write_origin == "review"]
