"""Turns that follow a turn by themselves: the results of helpers that worked on in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.contract.events import Emit, TurnEnd
from whet.contract.messages import Message
from whet.store.jobs import AtEnd, nothing

if TYPE_CHECKING:
    from whet.app.build import App


async def run_to_rest(
    app: App, session: Session, message: Message | None, emit: Emit, receipt: AtEnd = nothing
) -> TurnEnd:
    """Run a turn, and what follows it, for programs that end with the answer; gives the last turn's end."""
    end = await run_turn(session, message, emit, receipt=receipt)
    return await follow(app, session, emit, end) or end


async def follow(app: App, session: Session, emit: Emit, end: TurnEnd | None) -> TurnEnd | None:
    """Run a turn for each result that comes, until no helper of the session works any more or a turn is not
    answered; gives the last one's end, or `end`."""
    while (end is None or end.reason == "answered") and "helpers" in vars(app):
        entry = await app.helpers.next_arrival(session.id)
        if entry is None:
            break
        end = await run_turn(session, entry.message, emit, receipt=entry.receipt)
    return end
