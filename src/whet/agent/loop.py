"""The turn: store the message, ask the model, run its tools, until it answers (docs/decisions/0001).

A resumed turn runs its open calls first, unless a new message came. All is durable before it is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext

from whet.agent.dispatch import dispatch
from whet.agent.interruption import Pause, TurnClock, finish_or_undo, finish_shielded, write_uncancelled
from whet.agent.model_call import ask_model, keep_reply
from whet.agent.session import InboxEntry, Session, add_stored_effects, notify_observers
from whet.contract.errors import (
    BudgetReached,
    ConfigError,
    ContextOverflow,
    ModelRefused,
    ProviderError,
    StoreError,
    WhetError,
)
from whet.contract.events import Emit, EndReason, ReviewQueued, TurnEnd
from whet.contract.messages import Message
from whet.store.jobs import QueuedJob, TransactionWork, queue_nothing
from whet.store.transcript import TurnRecord


async def run_turn(
    session: Session,
    incoming: Message | None,
    emit: Emit,
    *,
    on_stored: TransactionWork = queue_nothing,
    around: Pause = nullcontext,
    is_fresh: bool = False,
) -> TurnEnd:
    """Run one turn to its end and return its end marker, which is stored.

    If `incoming` is None, an unfinished turn is resumed; raises NotFound if there is none. A message joins an
    unfinished turn, whose calls that had not begun are not run. `on_stored` runs in the transaction that
    stores it. `around` pauses the parent turn's clock. `is_fresh`: the session was read just now.
    """
    started_s = session.clock.monotonic_s()
    async with session.inbox.first_entry(incoming, on_stored, session.log, is_fresh=is_fresh) as first:
        turn = await _begin(session, first, emit)
    reason: EndReason = "crashed"  # the reason if a bug ends the turn
    error: WhetError | None = None
    queued: Sequence[QueuedJob] = ()
    clock = TurnClock(session.limits.turn_s, around, session.clock.monotonic_s)
    try:
        async with clock:
            reason = await _steps(session, turn, emit, clock)
    except asyncio.CancelledError:
        reason = "cancelled"
        raise
    except TimeoutError:
        reason = "budget"
        limit_text = f"the turn reached its limit of {session.limits.turn_s:.0f} s"
        error = WhetError(limit_text, hint="agent.turn_timeout_s")
    except ModelRefused as refused:
        reason, error = "refused", refused
    except (BudgetReached, ConfigError, ProviderError, StoreError) as failed:
        reason, error = "failed", failed
    finally:
        queued = await finish_shielded(_finish(session, turn, emit, reason, error))
    if reason == "budget" and error is None:
        error = WhetError(f"the turn reached its limit of {session.limits.steps} steps", hint="say: go on")
    end = TurnEnd(
        session_id=session.id,
        turn_id=turn.id,
        reason=reason,
        text=session.last_answer,
        steps=turn.steps,
        usage=turn.usage,
        duration_s=session.clock.monotonic_s() - started_s - clock.paused_s,
        error=error.message if error else "",
        hint=error.hint if error else "",
        is_overflow=isinstance(error, ContextOverflow),
    )
    await notify_observers(session, end, emit)
    end = await add_stored_effects(session, turn, end)
    for job in queued:
        emit(ReviewQueued(job.job_id, job.kinds))
    emit(end)
    return end


async def _begin(session: Session, incoming: InboxEntry | None, emit: Emit) -> TurnRecord:
    async def end(turn: TurnRecord | None) -> None:  # also after a cancel: no one else continues this turn
        if turn is not None:
            await _finish(session, turn, emit, "cancelled", None)

    unfinished = session.log.live.open_turn and await finish_or_undo(session.log.claim_unfinished_turn(), end)
    if unfinished:
        if incoming is None or not session.log.messages[-1].is_final:
            if incoming is not None:
                session.inbox.put_first(incoming)
            return unfinished
        await session.log.end_turn(unfinished, "answered", "", await session.at_end(unfinished, "answered"))
    if incoming is None:
        raise session.log.live.resume_error()
    message = incoming.message
    for observer in session.observers:
        message = await observer.before(session, message)
    begun: list[TurnRecord] = []

    async def finish() -> None:
        await session.log.drain()
        for turn in begun:
            await end(turn)

    return await write_uncancelled(session.log.begin_turn(message, incoming.on_stored, begun.append), finish)


async def _steps(session: Session, turn: TurnRecord, emit: Emit, clock: TurnClock) -> EndReason:
    budget = turn.steps + session.limits.steps
    if turn.steps and session.inbox.has_typed_message:
        from whet.agent.cut_calls import close_old_calls  # noqa: PLC0415 - only after a crash

        await close_old_calls(session, turn, emit)
    while True:
        if session.log.open_calls(turn):  # also after a crash: this resumes the turn
            await dispatch(session, turn, emit, clock)
        await _read_inbox(session, turn, emit)
        if session.log.messages[-1].is_final:
            return "answered"
        if turn.steps >= budget:
            return "budget"
        reply = await ask_model(session, turn, emit)
        await keep_reply(session, turn, reply, emit)


async def _read_inbox(session: Session, turn: TurnRecord, emit: Emit) -> None:
    while session.inbox:
        entry = session.inbox.take()  # before the write, which a cancel does not undo
        await session.log.append_user(turn, entry.message, entry.on_stored)
        emit(entry.event)


async def _finish(
    session: Session, turn: TurnRecord, emit: Emit, reason: EndReason, error: WhetError | None
) -> Sequence[QueuedJob]:
    from whet.agent.cut_calls import close_open_calls  # noqa: PLC0415 - no request waits for it

    await close_open_calls(session, turn, reason, emit)
    turn.error = error.message if error else ""
    return await session.log.end_turn(turn, reason, turn.error, await session.at_end(turn, reason))
