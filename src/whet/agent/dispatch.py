"""The calls of one reply: gate each in order, run the allowed ones, store each start and result at once.

A tool's failure never leaves this module, it becomes a result that the model reads; a store failure does.
One of the four places that may catch everything. It does not know any tool, nor any policy.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from whet.agent.interruption import TurnClock
from whet.agent.session import Session
from whet.contract.errors import StoreError, ToolError
from whet.contract.events import Emit, EndReason, ToolFinished, ToolProgress, ToolStarted
from whet.contract.messages import Message, TextPart
from whet.contract.protocols import Decision, GateCall
from whet.contract.texts import NOT_JSON
from whet.contract.tools import Tool, ToolContext, ToolOutput, clip
from whet.store.transcript import OpenCall, TurnRecord

log: logging.Logger = logging.getLogger("whet.dispatch")
_REPEATS_ALLOWED = 3

INTERRUPTED = (
    "Interrupted: the program stopped while this call was running, so its outcome is unknown. "
    "It was not run again. Check what it did before you repeat it."
)


class RunnableCall(msgspec.Struct, frozen=True):
    """A call that the gate allowed; the tool runs with the arguments of `question`."""

    open_call: OpenCall
    question: GateCall
    decided_by: str


class AnsweredCall(msgspec.Struct, frozen=True):
    """A call whose output is known without a run. `question` is what the gate was asked or would have been;
    None for a call that names no tool or whose arguments can't be read."""

    open_call: OpenCall
    output: ToolOutput
    question: GateCall | None = None
    decided_by: str = "rule"


PlannedCall = RunnableCall | AnsweredCall


async def dispatch(session: Session, turn: TurnRecord, emit: Emit, clock: TurnClock) -> None:
    """Give every open call of the last reply exactly one stored result.

    Calls that the tool allows to overlap run together; results are handed back in the model's order.
    """
    open_calls = session.log.open_calls(turn)
    planned = [await _plan(session, turn, open_call, emit, clock) for open_call in open_calls]
    for batch in _batches(planned):
        try:
            async with asyncio.TaskGroup() as group:
                for item in batch:
                    group.create_task(_run_one(session, turn, item, emit, clock))
        except* StoreError as errors:
            raise errors.exceptions[0] from None
    session.log.live.fold_results()


def _batches(planned: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """Split in the model's order: neighbours that may overlap together, every other call alone."""
    batches: list[list[PlannedCall]] = []
    overlapping = False
    for item in planned:
        parallel = isinstance(item, AnsweredCall) or item.question.tool.parallel
        if not (batches and overlapping and parallel):
            batches.append([])
        batches[-1].append(item)
        overlapping = parallel
    return batches


async def _plan(
    session: Session, turn: TurnRecord, open_call: OpenCall, emit: Emit, clock: TurnClock
) -> PlannedCall:
    call = open_call.call
    tool = session.tools.get(call.name)
    if tool is None:
        return AnsweredCall(
            open_call, ToolOutput(_unknown_tool(session, call.name), error_kind="unknown_tool")
        )
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
        if not isinstance(arguments, dict):
            raise msgspec.DecodeError("arguments must be a JSON object")
    except NOT_JSON as error:
        written = clip(call.arguments, 300)
        text = f"The arguments are not a JSON object ({error}). Nothing was run. You wrote: {written}"
        return AnsweredCall(open_call, ToolOutput(text, error_kind="bad_input"))
    key = f"{turn.number}.{open_call.step}.{open_call.index}"
    question = GateCall(session.id, call, tool, arguments, str(session.workspace), key)  # pyright: ignore[reportUnknownArgumentType]
    if open_call.started and not tool.repeatable:
        return AnsweredCall(open_call, ToolOutput(INTERRUPTED, error_kind="interrupted"), question)
    if _fails_repeatedly(session.log.messages, call.name, call.arguments):
        text = f"This exact call failed {_REPEATS_ALLOWED} times in a row and was not run again. Change it."
        return AnsweredCall(open_call, ToolOutput(text, error_kind="failed"), question)
    decision = await _decide(session, question, emit, clock)
    if decision.verdict != "allow":
        denied = ToolOutput(decision.reason or "Denied.", error_kind="denied")
        return AnsweredCall(open_call, denied, question, decision.decided_by)
    return RunnableCall(open_call, question, decision.decided_by)


async def _decide(session: Session, question: GateCall, emit: Emit, clock: TurnClock) -> Decision:
    with clock.paused():
        try:
            return await session.gate.decide(question, emit)
        except Exception as error:
            log.exception("the gate failed")
            return Decision("deny", "rule", f"The approval gate failed ({error}), so nothing was run.")


async def _run_one(
    session: Session, turn: TurnRecord, item: PlannedCall, emit: Emit, clock: TurnClock
) -> None:
    call, question = item.open_call.call, item.question
    if isinstance(item, AnsweredCall):
        output, duration_s = item.output, 0.0
    else:
        await session.log.call_started(turn, item.open_call, item.decided_by)
        emit(ToolStarted(call.id, call.name, call.arguments))
        began_s = session.clock.monotonic_s()
        context = _context(session, turn, call.id, emit, clock)
        output = await _run_tool(item.question.tool, item.question.arguments, context)
        duration_s = session.clock.monotonic_s() - began_s
    text = clip(output.text, question.tool.output_cap_chars if question else 2_000)
    content = (TextPart(text), *output.images) if output.images else text
    result = Message(
        role="tool", content=content, tool_call_id=call.id, tool_name=call.name, is_error=output.is_error
    )
    await session.log.call_finished(turn, item.open_call, result, output=output, duration_s=duration_s)
    if question is not None and (item.decided_by == "service" or output.error_kind == "interrupted"):
        await session.gate.report(question, output, emit)
    # A command that failed says why at its end; everything else begins with what matters.
    preview = text[-400:] if output.error_kind == "exit" else text[:400]
    asked = call.arguments if isinstance(item, AnsweredCall) else ""
    emit(ToolFinished(call.id, call.name, duration_s, output.error_kind, output.exit_code, preview, asked))


async def _run_tool(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    limit = asyncio.timeout(tool.timeout_s)
    try:
        async with limit:
            return await tool.run(context, arguments)
    except ToolError as error:
        text = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
        return ToolOutput(text, error_kind=error.kind)
    except TimeoutError as error:
        if not limit.expired():
            return ToolOutput(f"{tool.name} failed: {error}", error_kind="failed")
        return ToolOutput(f"{tool.name} passed its limit of {tool.timeout_s:g} s.", error_kind="timeout")
    except Exception as error:
        log.exception("the tool %s crashed", tool.name)
        return ToolOutput(f"{tool.name} crashed: {type(error).__name__}: {error}", error_kind="crashed")


def _context(session: Session, turn: TurnRecord, call_id: str, emit: Emit, clock: TurnClock) -> ToolContext:
    async def ask(question: str, choices: Sequence[str]) -> str | None:
        with clock.paused():
            return await session.person.clarify(question, choices)

    def show(text: str) -> None:
        emit(ToolProgress(call_id, text))

    return ToolContext(
        session.id, turn.id, call_id, session.workspace, show, ask, session.buffers, clock.paused
    )


async def close_open_calls(session: Session, turn: TurnRecord, reason: EndReason) -> None:
    """Give every call that still has no result one that says why, so that the transcript is whole."""
    for open_call in session.log.open_calls(turn):
        fate = "was stopped while it ran; its outcome is unknown" if open_call.started else "was not started"
        text = f"The turn ended ({reason}) before this call had a result: it {fate}."
        output = ToolOutput(text, error_kind="cancelled")
        result = Message(
            role="tool",
            content=text,
            tool_call_id=open_call.call.id,
            tool_name=open_call.call.name,
            is_error=True,
        )
        await session.log.call_finished(turn, open_call, result, output=output, duration_s=0.0)
    session.log.live.fold_results()


def _fails_repeatedly(messages: Sequence[Message], name: str, arguments: str) -> bool:
    """Whether the last calls before this reply were this same call and every one failed."""
    failures = 0
    answered: dict[str, bool] = {}
    for message in reversed(messages[:-1]):
        if message.role == "tool":
            answered[message.tool_call_id] = message.is_error
            continue
        if message.role == "user":
            return False
        for call in reversed(message.tool_calls):
            if (call.name, call.arguments) != (name, arguments) or not answered.get(call.id, False):
                return False
            failures += 1
            if failures == _REPEATS_ALLOWED:
                return True
    return False


def _unknown_tool(session: Session, name: str) -> str:
    near = difflib.get_close_matches(name, list(session.tools), 1)
    offer = f"Did you mean {near[0]}?" if near else "There are: " + ", ".join(session.tools) + "."
    return f"There is no tool named {name}. {offer}"
