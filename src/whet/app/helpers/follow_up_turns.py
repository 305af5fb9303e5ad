"""Run the turns that follow a turn automatically: one for each result of a background helper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.contract.events import Emit, Notice, TurnEnd
from whet.contract.messages import Message
from whet.store.jobs import TransactionWork, queue_nothing

if TYPE_CHECKING:
    from whet.app.helpers.runs import HelperRuns
    from whet.late import LatePart


async def run_with_followups(
    helpers: LatePart[HelperRuns],
    session: Session,
    message: Message | None,
    emit: Emit,
    on_stored: TransactionWork = queue_nothing,
) -> TurnEnd:
    """Run a turn and the turns that follow it, for programs that exit with the answer. Returns the last
    turn's end."""
    end = await run_turn(session, message, emit, on_stored=on_stored)
    return await run_followups(helpers, session, emit, end) or end


async def run_followups(
    helpers: LatePart[HelperRuns], session: Session, emit: Emit, end: TurnEnd | None
) -> TurnEnd | None:
    """Run a turn for each helper result, until no helper of the session runs any more, or a turn ends without
    an answer. Returns the last turn's end, or `end` if there was no turn."""
    while (end is None or end.reason == "answered") and helpers.created is not None:
        entry = await helpers.created.wait_for_result(session.id)
        if entry is None:
            break
        end = await run_turn(session, entry.message, emit, on_stored=entry.on_stored)
    return end


async def report_unmerged(helpers: LatePart[HelperRuns], session: Session, emit: Emit) -> None:
    """Emit a notice for each helper whose edits are still only in its own working tree."""
    for line in await list_unmerged(helpers, session):
        emit(Notice(line, must_show=True))


async def list_unmerged(helpers: LatePart[HelperRuns], session: Session) -> list[str]:
    """Return a line for each helper whose edits are still only in its own working tree: where they are, and
    how to merge them."""
    if helpers.created is None:
        return []
    lines: list[str] = []
    for row in await helpers.created.helpers_of(session.id):
        if row.tree is None or row.merge is not None or not Path(row.tree.place).exists():
            continue
        line = f"{row.name}'s edits are not merged, but in {row.tree.place}"
        if row.can_merge:
            line += f'. To merge them: whet chat --resume {session.id} -q "process wait {row.name}"'
        lines.append(line)
    return lines
