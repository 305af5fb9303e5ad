"""Plan the calls of one reply and run them, in the model's order.

Calls whose tools may overlap run together. Only store failures and Rambled leave this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from whet.agent.interruption import TurnClock, finish_shielded
from whet.agent.plan_call import AnsweredCall, PlannedCall, RunnableCall, plan_call
from whet.agent.repeated_calls import stop_repetition
from whet.agent.run_call import run_call
from whet.agent.session import CallRound, Session, TurnObserver
from whet.contract.errors import StoreError
from whet.contract.events import Emit
from whet.store.transcript import TurnRecord


async def dispatch(session: Session, turn: TurnRecord, emit: Emit, clock: TurnClock) -> None:
    """Store exactly one result for every open call of the last reply. Calls whose tools may overlap run
    together; results are stored in the model's order. Raises Rambled if the calls only repeat."""
    open_calls = session.log.open_calls(turn)
    tools = [tool for call in open_calls if (tool := session.tools.get(call.call.name)) is not None]
    for observer in session.observers:
        observer.expect_calls(session, tools)
    planned: list[PlannedCall] = []
    for open_call in open_calls:
        tool = session.tools.get(open_call.call.name)
        if tool is not None and (
            tool.tags & {"edits"}
            or tool.plan is not None
            or ("command" in tool.tags and _runs_commands(planned))
        ):
            # The person is shown this call's changes and its folder, which depend on the calls before it.
            await _run_all(session, turn, planned, emit, clock)
            planned = []
        planned.append(await plan_call(session, turn, open_call, emit, clock))
    await _run_all(session, turn, planned, emit, clock)
    session.log.live.fold_results()
    stop_repetition(session.log.messages)


def _runs_commands(planned: Sequence[PlannedCall]) -> bool:
    return any(isinstance(item, RunnableCall) and "command" in item.question.tool.tags for item in planned)


async def _run_all(
    session: Session, turn: TurnRecord, planned: Sequence[PlannedCall], emit: Emit, clock: TurnClock
) -> None:
    observations = await _notify_observers(session, turn, planned, emit)
    try:
        for batch in _batches(planned):
            if len(batch) == 1:  # a task costs more than most calls that it would run
                await run_call(session, turn, batch[0], emit, clock)
                continue
            try:
                async with asyncio.TaskGroup() as group:
                    for item in batch:
                        group.create_task(run_call(session, turn, item, emit, clock))
            except* StoreError as errors:
                raise errors.exceptions[0] from None
    finally:
        for observer, token in reversed(observations):
            if token is not None:
                await finish_shielded(observer.after_calls(session, token, emit))


async def _notify_observers(
    session: Session, turn: TurnRecord, planned: Sequence[PlannedCall], emit: Emit
) -> list[tuple[TurnObserver, object]]:
    """Notify the observers before the calls run, and return each observer with its token for
    `after_calls`."""
    running = [item for item in planned if isinstance(item, RunnableCall)]
    if not running:
        for observer in session.observers:
            observer.expect_calls(session, ())
        return []
    tools = [item.question.tool for item in running]
    only_reads = all(item.decision.only_reads for item in running)
    calls = CallRound(turn.number, running[0].open_call.step, tools, only_reads)
    return [(observer, await observer.before_calls(session, calls, emit)) for observer in session.observers]


def _batches(planned: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """Split the calls into batches, in the model's order: neighbours that may overlap share one, every other
    call is alone."""
    batches: list[list[PlannedCall]] = []
    overlapping = False
    for item in planned:
        parallel = isinstance(item, AnsweredCall) or item.question.tool.parallel
        if overlapping and parallel:
            batches[-1].append(item)
        else:
            batches.append([item])
        overlapping = parallel
    return batches
