"""A turn that a worker runs, and the messages that other processes have for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from whet.app.conversations.hosted import SessionHost, TurnWrites
from whet.contract.events import show_nothing
from whet.contract.messages import Message
from whet.postgres.rows import StatementRows
from whet.store.database import StateDatabase
from whet.team import orders
from whet.team.queue import EndedTurn, TakenTurn


class RunningTurn:
    """A turn that this worker runs, and the number of the last message read for it. `is_behind`: messages may
    have arrived before it ran."""

    def __init__(self, taken_turn: TakenTurn) -> None:
        self.taken_turn = taken_turn
        self.read_to = 0
        self.is_stored: bool = bool(taken_turn.turn)
        self.is_ending = False
        self.closing: StatementRows | None = None
        self.is_told = False
        self.is_behind: bool = taken_turn.attempts > 1 or taken_turn.is_cancelled
        self.is_called_off = False
        self.is_cancelled: bool = taken_turn.is_cancelled
        self.task: asyncio.Task[None]

    def read_end(self, owner: str) -> EndedTurn | None:
        """Return the result that the turn's own last transaction stored, or None if it is not known."""
        row = None if self.closing is None else self.closing.received_row
        if row is None:
            return None
        reason, error, attempts = row
        taken = self.taken_turn
        return EndedTurn(taken.id, taken.session_id, taken.turn, reason, error, attempts, owner)


async def deliver_all_orders(
    running_turns: Sequence[RunningTurn], hosted: SessionHost, database: StateDatabase
) -> None:
    """Pass the new messages from other processes to these turns, and cancel those that were called off."""
    positions = {running.taken_turn.id: running.read_to for running in running_turns}
    turn_orders = await database.read(lambda db: orders.read_orders(db, positions)) if positions else {}
    for running in running_turns:
        if running.taken_turn.id in turn_orders:
            await _deliver_orders(running, hosted, *turn_orders[running.taken_turn.id])


async def _deliver_orders(
    running: RunningTurn, hosted: SessionHost, messages: Sequence[tuple[int, str]], is_cancelled: bool
) -> None:
    taken_turn = running.taken_turn
    running.is_cancelled = running.is_cancelled or is_cancelled
    if running.is_ending or not hosted.is_running(taken_turn.session_id):
        running.is_behind = True
        return  # the messages become a turn of their own when this one ends, or are read when it begins
    for number, text in messages:
        if number > running.read_to:
            running.read_to = number
            writes = TurnWrites(lambda db, number=number: orders.mark_read(db, number))
            # the turn's own events include the messages that it took
            await hosted.submit(taken_turn.session_id, text, emit=show_nothing, busy="steer", writes=writes)
    if running.is_cancelled and not running.is_called_off:
        running.is_called_off = hosted.cancel(taken_turn.session_id)


async def restore_messages(running: RunningTurn, hosted: SessionHost) -> None:
    """Queue the messages that arrived for a turn before it is resumed, so that it reads them before its open
    calls run."""
    taken_turn = running.taken_turn
    positions = {taken_turn.id: 0}
    turn_orders = await hosted.services.database.read(lambda db: orders.read_orders(db, positions))
    if taken_turn.id in turn_orders and turn_orders[taken_turn.id].messages:
        session = await hosted.open_session(taken_turn.session_id)
        for number, text in turn_orders[taken_turn.id].messages:
            running.read_to = number
            session.inbox.put(Message("user", text), lambda db, number=number: orders.mark_read(db, number))
