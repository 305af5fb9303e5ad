"""Run one planned call, and have its start and result recorded.

A tool failure becomes a result that the model reads, so this module may catch everything; only store
failures and cancellations leave it. A call whose approval was bound to exact changes runs only if they are
still the same.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import msgspec

from whet.agent.interruption import TurnClock, finish_shielded
from whet.agent.plan_call import AnsweredCall, PlannedCall, RunnableCall
from whet.agent.record_call import CallRecord, note_changed_arguments
from whet.agent.session import Session
from whet.contract.changes import hash_call, hash_changes
from whet.contract.errors import ToolError
from whet.contract.events import Emit
from whet.contract.protocols import Gate, GateCall
from whet.contract.tools import Tool, ToolContext, ToolOutput, error_output
from whet.store.transcript import TurnRecord

log: logging.Logger = logging.getLogger("whet.dispatch")
_AT_ONCE_S = 0.02


async def run_call(
    session: Session, turn: TurnRecord, item: PlannedCall, emit: Emit, clock: TurnClock
) -> None:
    """Run a call unless its output is known, and record its result. If it is cancelled, report that to the
    service that allowed it."""
    record = CallRecord(session, turn, item, emit)
    if isinstance(item, AnsweredCall):
        await record.finish(item.output, 0.0)
        return
    began_s = session.clock.monotonic_s() - clock.paused_s

    def ran_s() -> float:
        return max(0.0, session.clock.monotonic_s() - clock.paused_s - began_s)

    try:
        output = await _run_recorded(item, record)
    except asyncio.CancelledError:
        record.keep_stopped(ran_s())
        if item.decided_by == "service":
            cut = ToolOutput("It was stopped while it ran.", error_kind="interrupted")
            await finish_shielded(session.gate.report(item.question, cut, emit))
        raise
    await record.finish(output, ran_s())


async def _run_recorded(item: RunnableCall, record: CallRecord) -> ToolOutput:
    """Run a call and store its start, before it runs unless it may be repeated and needed no approval.

    Such a call runs again after a crash in any case. If it ends within `_AT_ONCE_S`, its start is stored
    together with its result, in one commit.
    """
    shown = hash_changes(item.decision.changes)
    refusal = partial(refuse_further, record.gate, item.question)
    context = msgspec.structs.replace(item.context, output=record.show_progress, shown=shown, refusal=refusal)
    tool = item.question.tool
    # A tool without a time limit may ask the person, who must see the call before the question.
    may_wait = tool.timeout_s is None
    may_repeat = item.decision.only_reads or (tool.repeatable and not may_wait)
    if not may_repeat or item.decided_by != "rule" or item.open_call.started:
        await record.store_start()
        return await _run_shown(item, context)
    storing: list[asyncio.Task[None]] = []
    late = asyncio.get_running_loop().call_later(
        _AT_ONCE_S, lambda: storing.append(asyncio.create_task(record.store_start()))
    )
    try:
        output = await _run_shown(item, context)
        for start in storing:
            await start
        return output
    finally:
        late.cancel()
        for start in storing:
            start.cancel()
            start.add_done_callback(_retrieve_exception)


async def refuse_further(gate: Gate, call: GateCall, arguments: dict[str, Any], is_same: bool) -> str:
    """Return why a running call may not continue with other arguments without asking, or an empty string.

    `is_same`: they reach the same files and hosts as the allowed arguments, so only rules can refuse them.
    """
    further = msgspec.structs.replace(call, arguments=dict(arguments), unasked="rules" if is_same else "all")
    try:
        decision = await gate.decide(further, lambda _event: None)
    except ToolError as error:
        return error.message
    if further.arguments != arguments:
        return "a plugin changes these arguments"
    return "" if decision.verdict == "allow" else decision.reason or "denied"


def _retrieve_exception(start: asyncio.Task[None]) -> None:
    """Retrieve a start's exception, so that asyncio does not report it: the call's own error says more."""
    if not start.cancelled():
        start.exception()


async def _run_shown(item: RunnableCall, context: ToolContext) -> ToolOutput:
    """Run a call if its tool and file changes are still those that were judged and shown. Note in the output
    if the person changed its arguments."""
    question, decision, ran = item.question, item.decision, item.open_call.ran
    try:
        question.refuse_changed_tool()
    except ToolError as error:
        return error_output(error)
    if decision.digest:
        try:
            changes = await question.preview(question.arguments) if question.preview else ()
        except ToolError as error:
            return error_output(error)
        if hash_call(question.tool.name, question.arguments, question.workspace, changes) != decision.digest:
            return ToolOutput(
                "The file changed after the person was shown what would be written, so nothing was written."
                " Read it and call again; the person is asked again.",
                error_kind="denied",
            )
    output = await _run_tool(question.tool, question.arguments, context)
    return msgspec.structs.replace(output, text=note_changed_arguments(ran, output.text)) if ran else output


async def _run_tool(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    limit = asyncio.timeout(tool.timeout_s)
    try:
        async with limit:
            return await tool.run(context, arguments)
    except ToolError as error:
        return error_output(error)
    except TimeoutError as error:
        if not limit.expired():
            return ToolOutput(f"{tool.name} failed: {error}", error_kind="failed")
        return ToolOutput(f"{tool.name} passed its limit of {tool.timeout_s:g} s.", error_kind="timeout")
    except Exception as error:
        log.exception("the tool %s crashed", tool.name)
        return ToolOutput(f"{tool.name} crashed: {type(error).__name__}: {error}", error_kind="crashed")
