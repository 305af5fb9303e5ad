"""The state of a turn that a worker runs, and the delivery of other processes' orders to it."""

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
    """The state of a turn that this worker runs.

    - `read_to`: the number of the last message that was delivered to it
    - `is_stored`: its message is stored; `is_ending`: its end is being stored
    - `closing`: the rows of the statement that ends it
    - `is_told`: its end event was emitted
    - `is_behind`: messages may have arrived before it ran
    - `is_cancelled`: it was cancelled; `is_called_off`: it was told to stop
    """

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
        """Return the result that the turn's own last transaction stored, or None if it is unknown."""
        row = None if self.closing is None else self.closing.received_row
        if row is None:
            return None
        reason, error, attempts = row
        taken = self.taken_turn
        return EndedTurn(taken.id, taken.session_id, taken.turn, reason, error, attempts, owner)


async def deliver_all_orders(
    running_turns: Sequence[RunningTurn], host: SessionHost, database: StateDatabase
) -> None:
    """Deliver the new messages from other processes to these turns, and stop those that were cancelled."""
    positions = {running.taken_turn.id: running.read_to for running in running_turns}
    orders_by_turn = await database.read(lambda db: orders.read_orders(db, positions)) if positions else {}
    for running in running_turns:
        if running.taken_turn.id in orders_by_turn:
            await _deliver_orders(running, host, *orders_by_turn[running.taken_turn.id])


async def _deliver_orders(
    running: RunningTurn, host: SessionHost, messages: Sequence[tuple[int, str]], is_cancelled: bool
) -> None:
    taken_turn = running.taken_turn
    running.is_cancelled = running.is_cancelled or is_cancelled
    if running.is_ending or not host.is_running(taken_turn.session_id):
        running.is_behind = True
        return  # the messages are read when the turn begins, or become a turn of their own when it ends
    for number, text in messages:
        if number > running.read_to:
            running.read_to = number
            writes = TurnWrites(lambda db, number=number: orders.mark_read(db, number))
            # the turn's own events already report the messages that it took
            await host.submit(taken_turn.session_id, text, emit=show_nothing, busy="steer", writes=writes)
    if running.is_cancelled and not running.is_called_off:
        running.is_called_off = host.cancel(taken_turn.session_id)


async def restore_messages(running: RunningTurn, host: SessionHost) -> None:
    """Put the messages for a turn into its session's inbox before the turn is resumed, so that it reads them
    before its open calls run."""
    taken_turn = running.taken_turn
    positions = {taken_turn.id: 0}
    orders_by_turn = await host.services.database.read(lambda db: orders.read_orders(db, positions))
    if taken_turn.id in orders_by_turn and orders_by_turn[taken_turn.id].messages:
        session = await host.open_session(taken_turn.session_id)
        for number, text in orders_by_turn[taken_turn.id].messages:
            running.read_to = number
            session.inbox.put(Message("user", text), lambda db, number=number: orders.mark_read(db, number))
