"""Call plugins' hooks around tool calls: by a gate in front of the gate, and by tools that call hooks.

The agent's loop knows nothing of hooks. pre_tool_call runs before the policy, so that the gate judges the
arguments that will run. post_tool_call and the transforms run after the tool and before its result is
stored. If a plugin is enabled but not loaded, nothing runs unless a person can be asked: the plugin may be
a guard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from whet.contract.errors import ToolError
from whet.contract.events import ApprovalAsked, ApprovalDecided, Emit, Event, Notice
from whet.contract.protocols import Decision, Gate, GateCall
from whet.contract.tools import Handler, Tool, ToolContext, ToolOutput, error_output
from whet.plugins.hooks import Hooks
from whet.plugins.middleware import add_middleware

TakeNews = Callable[[], list[str]]


class HookedGate:
    """Lets the hooks block or change a call, then asks `gate`.

    `take_news` returns new problems. `missing` is the reason why nothing may run, or "".
    """

    def __init__(self, gate: Gate, hooks: Hooks, take_news: TakeNews, *, missing: str = "") -> None:
        self._gate = gate
        self._hooks = hooks
        self._take_news = take_news
        self._missing = missing

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Decide about a call. Changes of a hook are made in `call.arguments`, because that dict runs."""
        if self._missing:
            return _deny(call, f"Nothing was run: {self._missing}.", emit)
        if self._hooks.has("pre_tool_call", "tool_request"):
            facts = _list_facts(call)
            verdict = await self._hooks.before_tool(call.tool.name, call.arguments, **facts)
            for line in self._take_news():
                emit(Notice(line, must_show=True))  # the plugin may be a guard
            if verdict.blocked:
                why = f"Nothing was run: {verdict.blocked}."
                await self._notify_block(call, facts, verdict.blocked)
                return _deny(call, why, emit)
            if verdict.arguments is not call.arguments:
                changed = dict(verdict.arguments)
                call.arguments.clear()
                call.arguments.update(changed)
            if verdict.asks:
                call = msgspec.structs.replace(call, asks=verdict.asks)
        if not self._hooks.has("pre_approval_request", "post_approval_response"):
            return await self._gate.decide(call, emit)
        watch = _ApprovalWatch(self._hooks, call, emit)
        try:
            return await self._gate.decide(call, watch.emit)
        finally:
            await watch.wait()

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Pass the result on to the gate."""
        await self._gate.report(call, output, emit)

    async def _notify_block(self, call: GateCall, facts: dict[str, str], reason: str) -> None:
        await self._hooks.call_all(
            "post_tool_call",
            tool_name=call.tool.name,
            args=dict(call.arguments),
            **facts,
            result=reason,
            status="blocked",
            duration_ms=0,
            error_type="blocked",
            error_message=reason,
        )


class _ApprovalWatch:
    """Calls the approval hooks for a request, then for its answer, while the gate continues."""

    def __init__(self, hooks: Hooks, call: GateCall, emit: Emit) -> None:
        self._hooks = hooks
        self._emit = emit
        self._facts = {
            "session_key": call.session_id,
            "session_id": call.session_id,
            "turn_id": call.turn_id,
            "tool_call_id": call.call.id,
            "tool_name": call.tool.name,
            "surface": "cli",
        }
        self._asked: dict[str, Any] = {}
        self._last_call: asyncio.Task[None] | None = None

    def emit(self, event: Event) -> None:
        """Process an event of the gate and pass it on."""
        if isinstance(event, ApprovalAsked):
            description = "; ".join(event.reasons)
            self._asked = {"command": event.subject, "description": description, "pattern_key": event.tool}
            self._asked["pattern_keys"] = [event.tool]
            self._queue_hook("pre_approval_request")
        elif isinstance(event, ApprovalDecided) and self._asked:
            choice = "once" if event.verdict == "allow" else "deny"
            self._queue_hook("post_approval_response", choice=choice, decided_by=event.decided_by)
        self._emit(event)

    async def wait(self) -> None:
        """Wait until all queued hooks were called."""
        if self._last_call is not None:
            await self._last_call

    def _queue_hook(self, name: str, **more: Any) -> None:
        previous = self._last_call

        async def call_hook() -> None:
            if previous is not None:
                await previous
            await self._hooks.call_all(name, **self._facts, **self._asked, **more)

        self._last_call = asyncio.ensure_future(call_hook())


def _deny(call: GateCall, reason: str, emit: Emit) -> Decision:
    emit(ApprovalDecided(call.call.id, "deny", "rule", reason))
    return Decision("deny", "rule", reason)


def _list_facts(call: GateCall) -> dict[str, str]:
    return {
        "session_id": call.session_id,
        "task_id": call.session_id,
        "turn_id": call.turn_id,
        "tool_call_id": call.call.id,
    }


def add_hooks(tools: Iterable[Tool], hooks: Hooks) -> list[Tool]:
    """Return the tools with hooks around and after each call, or unchanged if no plugin has such hooks."""
    if hooks.has("tool_execution"):
        tools = [add_middleware(tool, hooks) for tool in tools]
    if not hooks.has("post_tool_call", "transform_tool_result", "transform_terminal_output"):
        return list(tools)
    return [msgspec.structs.replace(tool, run=_with_result_hooks(tool, hooks)) for tool in tools]


def run_in_scope(tool: Tool, scope: Callable[[], AbstractContextManager[object]]) -> Tool:
    """Return the tool with each run inside `scope`."""

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        with scope():
            return await tool.run(context, arguments)

    return msgspec.structs.replace(tool, run=run)


def _with_result_hooks(tool: Tool, hooks: Hooks) -> Handler:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        facts: dict[str, Any] = {
            "tool_name": tool.name,
            "args": dict(arguments),
            "session_id": context.session_id,
            "task_id": context.session_id,
            "turn_id": context.turn_id,
            "tool_call_id": context.call_id,
        }
        began_s = time.monotonic()
        try:
            output, was_run = await tool.run(context, arguments), True
        except ToolError as error:
            output, was_run = error_output(error), False
        status = "error" if output.is_error else "ok"
        facts |= _end_facts(began_s, status, output.error_kind, output.text if output.is_error else "")
        text = output.text
        if was_run and "command" in tool.tags:
            shell = {"command": str(arguments.get("command", "")), "task_id": context.session_id}
            code = int(output.is_error) if output.exit_code is None else output.exit_code
            text = await hooks.replace(
                "transform_terminal_output", "output", text, **shell, returncode=code, env_type="local"
            )
        await hooks.call_all("post_tool_call", **facts, result=text)
        text = await hooks.transform(text, **facts)
        return output if text == output.text else msgspec.structs.replace(output, text=text)

    return run


def _end_facts(began_s: float, status: str, kind: str, message: str) -> dict[str, Any]:
    return {
        "status": status,
        "duration_ms": round((time.monotonic() - began_s) * 1000),
        "error_type": kind or None,
        "error_message": message or None,
    }
