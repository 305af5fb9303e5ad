"""Store results for calls that have none: after a turn was interrupted, and when a new message follows a
crash.

Each result says what happened, and names the effects that the call may have had.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from whet.agent.plan_call import call_key, require_arguments, resolve_tool
from whet.agent.record_call import add_facts, note_changed_arguments
from whet.agent.session import Session, StoppedCall
from whet.clock import iso
from whet.contract.errors import ToolError
from whet.contract.events import Emit, EndReason, ToolFinished
from whet.contract.messages import Message
from whet.contract.tools import ToolOutput, clip
from whet.store.transcript import OpenCall, TurnRecord

_NOT_STOPPED = StoppedCall("", 0.0)
_SHOWN_CHARS = 600
NOT_RUN = (
    "Not run: the program had stopped before this call began, and a new message arrived first. "
    "Answer the new message."
)
_UNKNOWN = (
    "Interrupted: the program stopped while this call was running, so its outcome is unknown. "
    "It was not run again, because a new message arrived first. Answer the new message."
)


async def close_open_calls(session: Session, turn: TurnRecord, reason: EndReason, emit: Emit) -> None:
    """Store and show a result for every call without one, at the end of a turn. It says whether the call was
    stopped while it ran or never started."""
    await session.log.drain()  # a cancelled task may have a start or a result that is still being written
    for open_call in session.log.open_calls(turn):
        text = f"The turn ended ({reason}) before this call had a result:"
        stopped = session.stopped.get(open_call.call.id, _NOT_STOPPED)
        if open_call.started:
            text += " it was stopped while it ran; its outcome is unknown."
            output = interrupted_output(session, open_call, text + _printed_text(session, open_call, stopped))
        else:
            output = ToolOutput(text + " it was not started.", error_kind="cancelled")
        await _store_result(session, turn, open_call, output, emit, stopped)
    session.stopped.clear()
    session.log.live.fold_results()


def _printed_text(session: Session, open_call: OpenCall, stopped: StoppedCall) -> str:
    """Return the end of a stopped call's result: its output so far. Empty if it printed nothing."""
    printed = stopped.printed.strip("\n")
    if not printed:
        return ""
    tool = session.tools.get(open_call.call.name)
    shown = clip(printed, tool.output_cap_chars if tool else 2_000)
    return f" Until then it had printed:\n{shown}\n[cut off here: it was stopped]"


async def close_old_calls(session: Session, turn: TurnRecord, emit: Emit) -> None:
    """Close the calls that a crash left open instead of resuming them, because a new message has arrived.

    A call that had started is closed only if its tool may be repeated: any other one is left to `dispatch`,
    which reports it as interrupted.
    """
    for open_call in session.log.open_calls(turn):
        if open_call.started and not _may_run_again(session, open_call):
            continue
        if open_call.started:
            text = "\n".join(filter(None, (_UNKNOWN, await _close_helper(session, turn, open_call))))
            output = interrupted_output(session, open_call, text)
        else:
            output = ToolOutput(NOT_RUN, error_kind="cancelled")
        await _store_result(session, turn, open_call, output, emit)
    session.log.live.fold_results()


async def _close_helper(session: Session, turn: TurnRecord, open_call: OpenCall) -> str:
    """End the helper that a call waited for. Returns the helper's work so far, or "" if there is none."""
    from whet.store.helper_account import close_helper  # noqa: PLC0415 - only after a crash

    key, now = call_key(turn, open_call), iso(session.clock.now())
    return await session.log.writer.db.append(lambda db: close_helper(db, session.id, key, now))


async def _store_result(
    session: Session,
    turn: TurnRecord,
    open_call: OpenCall,
    output: ToolOutput,
    emit: Emit,
    stopped: StoppedCall = _NOT_STOPPED,
) -> None:
    call = open_call.call
    result = Message("tool", output.text, tool_call_id=call.id, tool_name=call.name, is_error=True)
    await session.log.store_call_result(turn, open_call, result, output=output, duration_s=stopped.duration_s)
    shown = clip(output.text, _SHOWN_CHARS)
    emit(
        ToolFinished(
            call.id, call.name, stopped.duration_s, output.error_kind, preview=shown, arguments=call.arguments
        )
    )


def _may_run_again(session: Session, open_call: OpenCall) -> bool:
    tool = session.tools.get(open_call.call.name)
    if tool is None:
        return False
    with suppress(ToolError):
        tool = resolve_tool(session, tool, require_arguments(open_call.call))[0]
    return tool.may_run_again


def interrupted_output(session: Session, open_call: OpenCall, text: str) -> ToolOutput:
    """Return the result of a call that was stopped while it ran, with the effects that it may have had."""
    call = open_call.call
    edited = open_call.ran  # the arguments as the person changed them, or ""
    output = ToolOutput(note_changed_arguments(edited, text) if edited else text, error_kind="interrupted")
    if (tool := session.tools.get(call.name)) is not None:
        with suppress(ToolError):
            tool, arguments = resolve_tool(session, tool, require_arguments(call))
            output = add_facts(session, (tool, msgspec.json.decode(edited) if edited else arguments), output)
    return output
