"""Calls that a turn's end cuts off: each gets a result that says so, and what it may have done is kept."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from whet.agent.dispatch import arguments_of, meant, told_of_edit, with_facts
from whet.agent.session import Session
from whet.contract.errors import ToolError
from whet.contract.events import EndReason
from whet.contract.messages import Message
from whet.contract.tools import ToolOutput
from whet.store.transcript import OpenCall, TurnRecord


async def close_open_calls(session: Session, turn: TurnRecord, reason: EndReason) -> None:
    """Give every call that still has no result one that says why, so that the transcript is whole."""
    await session.log.drain()  # a start or a result whose waiter was cancelled may be under way
    for open_call in session.log.open_calls(turn):
        text = f"The turn ended ({reason}) before this call had a result: it "
        if open_call.started:
            output = _cut_off(session, open_call, text + "was stopped while it ran; its outcome is unknown.")
        else:
            output = ToolOutput(text + "was not started.", error_kind="cancelled")
        result = Message(
            role="tool",
            content=output.text,
            tool_call_id=open_call.call.id,
            tool_name=open_call.call.name,
            is_error=True,
        )
        await session.log.call_finished(turn, open_call, result, output=output, duration_s=0.0)
    session.log.live.fold_results()


def _cut_off(session: Session, open_call: OpenCall, text: str) -> ToolOutput:
    """Give the result of a call that was stopped while it ran, with what it may have done all the same."""
    call, ran = open_call.call, open_call.ran
    output = ToolOutput(told_of_edit(ran, text) if ran else text, error_kind="interrupted")
    if (tool := session.tools.get(call.name)) is not None:
        with suppress(ToolError):
            tool, asked = meant(session, tool, arguments_of(call))
            output = with_facts(session, (tool, msgspec.json.decode(ran) if ran else asked), output)
    return output
