"""Hooks around tool calls, without the loop's knowing: a gate before the gate, and tools that tell.

The pre_tool_call hooks come before the policy, so that the gate judges the arguments that will run.
post_tool_call and transform_tool_result come after the tool and before its result is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from whet.contract.errors import ToolError
from whet.contract.events import ApprovalDecided, Emit, Notice
from whet.contract.protocols import Decision, Gate, GateCall
from whet.contract.tools import Handler, Tool, ToolContext, ToolOutput
from whet.plugins.hooks import Hooks

TakeNews = Callable[[], list[str]]


class HookedGate:
    """Lets the hooks block or change a call, then asks `gate`. `take_news` gives what went wrong."""

    def __init__(self, gate: Gate, hooks: Hooks, take_news: TakeNews) -> None:
        self._gate = gate
        self._hooks = hooks
        self._take_news = take_news

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Decide as the Gate contract says. Changed arguments replace those in `call.arguments` in place,
        since that dict is what runs."""
        if self._hooks.has("pre_tool_call"):
            verdict = await self._hooks.before_tool(
                call.tool.name,
                call.arguments,
                session_id=call.session_id,
                task_id=call.session_id,
                tool_call_id=call.call.id,
            )
            for line in self._take_news():
                emit(Notice(line))
            if verdict.blocked:
                reason = f"Nothing was run: {verdict.blocked}."
                emit(ApprovalDecided(call.call.id, "deny", "rule", reason))
                return Decision("deny", "rule", reason)
            if verdict.arguments is not call.arguments:
                changed = dict(verdict.arguments)
                call.arguments.clear()
                call.arguments.update(changed)
        return await self._gate.decide(call, emit)

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Pass the result on to the gate."""
        await self._gate.report(call, output, emit)


def hooked_tools(tools: Iterable[Tool], hooks: Hooks) -> list[Tool]:
    """Give the tools with the hooks behind each call; the same ones where no plugin has such a hook."""
    if not hooks.has("post_tool_call", "transform_tool_result"):
        return list(tools)
    return [msgspec.structs.replace(tool, run=_telling(tool, hooks)) for tool in tools]


def _telling(tool: Tool, hooks: Hooks) -> Handler:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        facts = {
            "tool_name": tool.name,
            "args": dict(arguments),
            "session_id": context.session_id,
            "task_id": context.session_id,
            "tool_call_id": context.call_id,
        }
        try:
            output = await tool.run(context, arguments)
        except ToolError as error:
            await hooks.tell("post_tool_call", **facts, result=error.message, status="error")
            raise
        status = "error" if output.is_error else "ok"
        await hooks.tell("post_tool_call", **facts, result=output.text, status=status)
        text = await hooks.transform(output.text, **facts, status=status)
        return output if text == output.text else msgspec.structs.replace(output, text=text)

    return run
