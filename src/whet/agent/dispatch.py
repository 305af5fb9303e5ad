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

from whet.agent.session import Session
from whet.contract.errors import StoreError, ToolError
from whet.contract.events import Emit, EndReason, ToolFinished, ToolProgress, ToolStarted
from whet.contract.messages import Message, TextPart
from whet.contract.protocols import Decision, GateCall
from whet.contract.texts import NOT_JSON
from whet.contract.tools import Tool, ToolContext, ToolOutput, clip
from whet.store.transcript import OpenCall, TurnRecord

log = logging.getLogger("whet.dispatch")
_REPEATS_ALLOWED = 3

INTERRUPTED = (
    "Interrupted: the program stopped while this call was running, so its outcome is unknown. "
    "It was not run again. Check what it did before you repeat it."
)


class _Planned(msgspec.Struct):
    """A call with what will happen to it: a tool to run, or an output that is already known."""

    open_call: OpenCall
    arguments: dict[str, Any]
    tool: Tool | None
    decided_by: str
    known: ToolOutput | None = None


async def dispatch(session: Session, turn: TurnRecord, emit: Emit, deadline: asyncio.Timeout) -> None:
    """Give every open call of the last reply exactly one stored result; without open calls do nothing.

    Calls that the tool allows to overlap run together; results are handed back in the model's order.
    """
    open_calls = session.log.open_calls(turn)
    if not open_calls:
        return
    planned = [await _plan(session, turn, open_call, emit, deadline) for open_call in open_calls]
    for batch in _batches(planned):
        try:
            async with asyncio.TaskGroup() as group:
                for item in batch:
                    group.create_task(_run_one(session, turn, item, emit, deadline))
        except* StoreError as errors:
            raise errors.exceptions[0] from None
    session.log.settle(turn)


def _batches(planned: Sequence[_Planned]) -> list[list[_Planned]]:
    """Split in the model's order: neighbours that may overlap together, every other call alone."""
    batches: list[list[_Planned]] = []
    overlapping = False
    for item in planned:
        parallel = item.tool is None or item.known is not None or item.tool.parallel
        if not (batches and overlapping and parallel):
            batches.append([])
        batches[-1].append(item)
        overlapping = parallel
    return batches


async def _plan(
    session: Session, turn: TurnRecord, open_call: OpenCall, emit: Emit, deadline: asyncio.Timeout
) -> _Planned:
    call = open_call.call
    tool = session.tools.get(call.name)
    planned = _Planned(open_call, {}, tool, "rule")
    if tool is None:
        planned.known = ToolOutput(_unknown_tool(session, call.name), error_kind="unknown_tool")
        return planned
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
        if not isinstance(arguments, dict):
            raise msgspec.DecodeError("arguments must be a JSON object")
    except NOT_JSON as error:
        written = clip(call.arguments, 300)
        text = f"The arguments are not a JSON object ({error}). Nothing was run. You wrote: {written}"
        planned.known = ToolOutput(text, error_kind="bad_input")
        return planned
    planned.arguments = arguments  # pyright: ignore[reportUnknownMemberType]
    if open_call.started and not tool.repeatable:
        planned.known = ToolOutput(INTERRUPTED, error_kind="interrupted")
        return planned
    if _fails_repeatedly(session.log.messages, call.name, call.arguments):
        text = f"This exact call failed {_REPEATS_ALLOWED} times in a row and was not run again. Change it."
        planned.known = ToolOutput(text, error_kind="failed")
        return planned
    decision = await _decide(session, _question(session, turn, planned, tool), emit, deadline)
    planned.decided_by = decision.decided_by
    if decision.verdict != "allow":
        planned.known = ToolOutput(decision.reason or "Denied.", error_kind="denied")
    return planned


async def _decide(session: Session, question: GateCall, emit: Emit, deadline: asyncio.Timeout) -> Decision:
    with _Paused(deadline):
        try:
            return await session.gate.decide(question, emit)
        except Exception as error:
            log.exception("the gate failed")
            return Decision("deny", "rule", f"The approval gate failed ({error}), so nothing was run.")


def _question(session: Session, turn: TurnRecord, item: _Planned, tool: Tool) -> GateCall:
    asked = item.open_call
    key = f"{turn.number}.{asked.step}.{asked.index}"
    return GateCall(session.id, asked.call, tool, item.arguments, str(session.workspace), key)


async def _run_one(
    session: Session, turn: TurnRecord, item: _Planned, emit: Emit, deadline: asyncio.Timeout
) -> None:
    call = item.open_call.call
    if item.known is not None or item.tool is None:
        output, duration_s = item.known or ToolOutput("", error_kind="failed"), 0.0
    else:
        await session.log.call_started(turn, item.open_call, item.decided_by)
        emit(ToolStarted(call.id, call.name, call.arguments))
        began_s = session.clock.monotonic_s()
        output = await _run_tool(item.tool, item.arguments, _context(session, turn, item, emit, deadline))
        duration_s = session.clock.monotonic_s() - began_s
    text = clip(output.text, item.tool.output_cap_chars if item.tool else 2_000)
    content = (TextPart(text), *output.images) if output.images else text
    result = Message(
        role="tool",
        content=content,
        tool_call_id=call.id,
        tool_name=call.name,
        is_error=output.is_error,
    )
    await session.log.call_finished(turn, item.open_call, result, output=output, duration_s=duration_s)
    if item.tool is not None and (item.decided_by == "service" or output.error_kind == "interrupted"):
        await session.gate.report(_question(session, turn, item, item.tool), output, emit)
    # A command that failed says why at its end; everything else begins with what matters.
    preview = text[-400:] if output.error_kind == "exit" else text[:400]
    asked = "" if item.known is None else call.arguments
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


def _context(
    session: Session, turn: TurnRecord, item: _Planned, emit: Emit, deadline: asyncio.Timeout
) -> ToolContext:
    call_id = item.open_call.call.id

    async def ask(question: str, choices: Sequence[str]) -> str | None:
        with _Paused(deadline):
            return await session.person.clarify(question, choices)

    def show(text: str) -> None:
        emit(ToolProgress(call_id, text))

    return ToolContext(session.id, turn.id, call_id, session.workspace, show, ask, session.buffers)


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
    session.log.settle(turn)


class _Paused:
    """Stop the turn's time limit while a person is being asked."""

    def __init__(self, deadline: asyncio.Timeout) -> None:
        self._deadline = deadline
        self._left_s = 0.0

    def __enter__(self) -> None:
        when = self._deadline.when()
        self._left_s = -1.0 if when is None else when - asyncio.get_running_loop().time()
        if self._left_s > 0:
            self._deadline.reschedule(None)

    def __exit__(self, *_: object) -> None:
        if self._left_s > 0 and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._left_s)


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
