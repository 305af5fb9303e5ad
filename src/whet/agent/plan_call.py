"""Plan one call of a reply: its tool, its arguments, and whether the gate lets it run.

A call that can't run gets its output here. Errors of the gate deny the call, so this module may catch
everything. It knows no tool by name and no policy.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import cast

import msgspec

from whet.agent.interruption import TurnClock
from whet.agent.session import Session, shell_folder
from whet.contract.errors import BadInput, ToolError
from whet.contract.events import Emit, ToolProgress
from whet.contract.messages import Message, ToolCall
from whet.contract.protocols import Decision, GateCall
from whet.contract.receipts import CallEffects
from whet.contract.texts import NOT_JSON
from whet.contract.tools import Tool, ToolContext, ToolOutput, clip, error_output
from whet.store.transcript import OpenCall, TurnRecord

log: logging.Logger = logging.getLogger("whet.dispatch")
_REPEATS_ALLOWED = 3

INTERRUPTED = (
    "Interrupted: the program stopped while this call was running, so its outcome is unknown. "
    "It was not run again. Check what it did before you repeat it."
)
_GONE = ToolOutput(
    "Nothing was run: the folder that the last command ended in is gone. The next begins in the workspace.",
    error_kind="failed",
    facts=msgspec.json.encode(CallEffects(folder="")).decode(),
)


class RunnableCall(msgspec.Struct, frozen=True):
    """A call that the gate allowed. The tool runs with the arguments of `question`, because the person may
    have changed those of the model."""

    open_call: OpenCall
    question: GateCall
    decision: Decision
    context: ToolContext

    @property
    def decided_by(self) -> str:
        """Who allowed the call."""
        return self.decision.decided_by


class AnsweredCall(msgspec.Struct, frozen=True):
    """A call whose output is known without running it. `question` is the gate's question, or None if the
    call names no tool or its arguments can't be read. `notice` is the text that a person reads instead
    of the output."""

    open_call: OpenCall
    output: ToolOutput
    question: GateCall | None = None
    decided_by: str = "rule"
    notice: str = ""


PlannedCall = RunnableCall | AnsweredCall


async def plan_call(
    session: Session, turn: TurnRecord, open_call: OpenCall, emit: Emit, clock: TurnClock
) -> PlannedCall:
    """Return the call ready to run, or with its output if it may not run. The gate may ask a person."""
    call = open_call.call
    tool = session.tools.get(call.name)
    if tool is None:
        return AnsweredCall(
            open_call, ToolOutput(_unknown_tool(session, call.name), error_kind="unknown_tool")
        )
    context = _build_context(session, turn, open_call, emit, clock)
    try:
        tool, arguments = resolve_tool(session, tool, require_arguments(call))
        if tool.plan is not None and not open_call.started:
            tool, arguments = await _plan_as_other(session, tool, arguments, context)
    except ToolError as error:
        return AnsweredCall(open_call, error_output(error))
    call_in_folder = _add_shell_folder(session, open_call, tool, arguments)
    if call_in_folder is None:
        return AnsweredCall(open_call, _GONE)
    written, (open_call, arguments) = call.arguments, call_in_folder
    call = open_call.call
    question = GateCall(
        session.id,
        call,
        tool,
        arguments,
        str(session.workspace),
        context.key,
        partial(tool.preview_changes, context),
        context.turn_id,
        content=tool.content() if tool.content is not None else "",
    )
    if open_call.started and not tool.may_run_again:
        return AnsweredCall(open_call, ToolOutput(INTERRUPTED, error_kind="interrupted"), question)
    if _fails_repeatedly(session.log.messages, call.name, written):
        text = f"This exact call failed {_REPEATS_ALLOWED} times in a row and was not run again. Change it."
        return AnsweredCall(open_call, ToolOutput(text, error_kind="failed"), question)
    try:
        decision = await _decide(session, question, emit, clock)
    except ToolError as error:
        return AnsweredCall(open_call, error_output(error), question)
    if decision.verdict != "allow":
        denied = ToolOutput(decision.reason or "Denied.", error_kind="denied")
        return AnsweredCall(open_call, denied, question, decision.decided_by, decision.notice)
    if decision.arguments is not None:
        question = msgspec.structs.replace(question, arguments=decision.arguments)
        changed_arguments = msgspec.json.encode(decision.arguments).decode()
        open_call = msgspec.structs.replace(open_call, ran=changed_arguments)
    return RunnableCall(open_call, question, decision, context)


def call_key(turn: TurnRecord, open_call: OpenCall) -> str:
    """Return a key for the call that is unique in its session and the same after a restart."""
    return f"{turn.number}.{open_call.step}.{open_call.index}"


def require_arguments(call: ToolCall) -> dict[str, object]:
    """Return a call's arguments. Raises BadInput if they are not a JSON object."""
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
        if not isinstance(arguments, dict):
            raise msgspec.DecodeError("arguments must be a JSON object")
        return cast("dict[str, object]", arguments)
    except NOT_JSON as error:
        raise BadInput(
            f"The arguments are not a JSON object ({error}). Nothing was run."
            f" You wrote: {clip(call.arguments, 300)}"
        ) from None


def resolve_tool(
    session: Session, tool: Tool, arguments: dict[str, object]
) -> tuple[Tool, dict[str, object]]:
    """Return the tool and arguments that a call stands for: those that the gate, the hooks and the person
    see. Raises ToolError if the session does not have that tool."""
    if tool.stands_for is None:
        return tool, arguments
    name, arguments_given = tool.stands_for(arguments)
    target = session.tools.get(name)
    if target is None or target.stands_for is not None:
        raise BadInput(f"{name} can't be called in this session")
    return target, arguments_given


async def _plan_as_other(
    session: Session, tool: Tool, arguments: dict[str, object], context: ToolContext
) -> tuple[Tool, dict[str, object]]:
    """Let the tool replace its call by a call of another tool; return the tool and arguments to run. Raises
    ToolError."""
    assert tool.plan is not None
    try:
        planned = await tool.plan(context, arguments)
    except ToolError:
        raise
    except Exception as error:
        log.exception("planning a call of %s failed", tool.name)
        raise ToolError(f"{tool.name} crashed: {type(error).__name__}: {error}") from error
    if planned is None:
        return tool, arguments
    name, planned_arguments = planned
    if (target := session.tools.get(name)) is None:
        raise BadInput(f"this session has no {name}, so nothing can be changed")
    return target, planned_arguments


def _add_shell_folder(
    session: Session, open_call: OpenCall, tool: Tool, arguments: dict[str, object]
) -> tuple[OpenCall, dict[str, object]] | None:
    """Add the shell's current folder to a command that names no folder, so that the command which is judged,
    shown and hashed is the one that runs. Returns None if that folder no longer exists."""
    if "command" not in tool.tags or arguments.get("workdir") or not (folder := shell_folder(session.log)):
        return open_call, arguments
    if not open_call.started and not (session.workspace / folder).is_dir():
        return None
    arguments = {**arguments, "workdir": folder}
    if tool.name == open_call.call.name:  # a call through another tool has it in its own arguments
        written = msgspec.json.encode(arguments).decode()
        call = msgspec.structs.replace(open_call.call, arguments=written)
        open_call = msgspec.structs.replace(open_call, call=call)
    return open_call, arguments


async def _decide(session: Session, question: GateCall, emit: Emit, clock: TurnClock) -> Decision:
    with clock.paused():
        try:
            return await session.gate.decide(question, emit)
        except ToolError:
            raise  # the call itself is invalid: the model reads why, and no one was asked
        except Exception as error:
            log.exception("the gate failed")
            return Decision("deny", "rule", f"The approval gate failed ({error}), so nothing was run.")


def _build_context(
    session: Session, turn: TurnRecord, open_call: OpenCall, emit: Emit, clock: TurnClock
) -> ToolContext:
    """Return the environment of a call, before it runs."""

    async def ask(question: str, choices: Sequence[str]) -> str | None:
        with clock.paused():
            return await session.person.clarify(question, choices)

    def show(text: str) -> None:
        emit(ToolProgress(open_call.call.id, text))

    return ToolContext(
        session.id,
        turn.id,
        open_call.call.id,
        session.workspace,
        show,
        ask,
        session.buffers,
        clock.paused,
        key=call_key(turn, open_call),
    )


def _fails_repeatedly(messages: Sequence[Message], name: str, arguments: str) -> bool:
    """Return whether the last calls before this reply were this same call and all of them failed."""
    failures = 0
    answered: dict[str, bool] = {}
    for message in islice(reversed(messages), 1, None):
        if message.role == "tool":
            answered[message.tool_call_id] = message.is_error
            continue
        if message.role == "user":
            break
        for call in reversed(message.tool_calls):
            if (call.name, call.arguments) != (name, arguments) or not answered.get(call.id, False):
                return False
            failures += 1
            if failures == _REPEATS_ALLOWED:
                return True
    return False


def _unknown_tool(session: Session, name: str) -> str:
    import difflib  # noqa: PLC0415 - .5 ms that only a wrong name needs

    near = difflib.get_close_matches(name, list(session.tools), 1)
    offer = f"Did you mean {near[0]}?" if near else "There are: " + ", ".join(session.tools) + "."
    return f"There is no tool named {name}. {offer}"
