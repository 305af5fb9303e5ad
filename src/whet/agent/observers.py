"""Who takes part in a session's turns besides the loop: an ordered list of observers, each with three hooks.

A hook gets the session that the turn is of, so an observer need not keep it, and one can serve all sessions
of a process. The order of a session's observers is decided where the session is made (`app/observers.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw

from whet.contract.events import EndReason, TurnEnd
from whet.contract.messages import Message
from whet.store.jobs import AtEnd, Queued, nothing
from whet.store.transcript import Turn

if TYPE_CHECKING:
    from whet.agent.session import Session


class TurnObserver:
    """Takes part in turns; every hook does nothing unless it is overridden. No hook raises."""

    async def before(self, session: Session, message: Message) -> Message:
        """Give the message that begins a turn as it is to be stored: the same one, or one with more in it."""
        return message

    def at_end(self, session: Session, turn: Turn, reason: EndReason) -> AtEnd:
        """Give what the transaction that ends the turn does besides; it can store rows and queue jobs."""
        return nothing

    async def ended(self, session: Session, end: TurnEnd) -> None:
        """See a turn's end; it is stored by now, and not shown yet."""


def at_end_of(session: Session, turn: Turn, reason: EndReason) -> AtEnd:
    """Give what all observers of a session do in the transaction that ends its turn, in their order."""
    works = [observer.at_end(session, turn, reason) for observer in session.observers]

    def work(connection: apsw.Connection) -> Sequence[Queued]:
        return [job for one in works for job in one(connection)]

    return work
