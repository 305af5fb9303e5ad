"""Hooks before the gate and after the tools, as the loop meets them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.tools.running import context
from whet.contract.errors import BadInput
from whet.contract.events import Event, Notice
from whet.contract.messages import ToolCall
from whet.contract.protocols import Decision, GateCall
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec
from whet.plugins.hooks import Hooks
from whet.plugins.parts import Hook, Problem
from whet.plugins.tool_hooks import HookedGate, add_hooks


async def run_it(_context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
    if "wrong" in arguments:
        raise BadInput("wrong")
    return ToolOutput(f"ran with {arguments}")


TOOL = Tool(ToolSpec("probe", "", {}), "t", frozenset({"read"}), run_it)


class Allow:
    """A gate that allows all and remembers what it judged."""

    def __init__(self) -> None:
        self.judged: list[dict[str, object]] = []

    async def decide(self, call: GateCall, emit: Any) -> Decision:
        self.judged.append(dict(call.arguments))
        return Decision("allow", "rule")

    async def report(self, call: GateCall, output: ToolOutput, emit: Any) -> None:
        self.judged.append({"reported": output.text})


def decide(function: Any, arguments: dict[str, object]) -> tuple[Decision, Allow, list[Event]]:
    problems: list[Problem] = []
    inner, events = Allow(), list[Event]()
    gate = HookedGate(
        inner,
        Hooks([Hook("p", "pre_tool_call", function)], problems),
        lambda: [problem.line for problem in problems],
    )
    call = GateCall("s", ToolCall("c", "probe", "{}"), TOOL, arguments, str(Path.cwd()))
    return asyncio.run(gate.decide(call, events.append)), inner, events


def test_the_gate_judges_the_changed_arguments_and_those_are_what_runs() -> None:
    arguments: dict[str, object] = {"a": 1}
    decision, inner, _ = decide(lambda args: {"action": "modify", "args": {"b": args["a"]}}, arguments)
    assert decision.verdict == "allow" and inner.judged == [{"a": 1, "b": 1}]
    assert arguments == {"a": 1, "b": 1}


def test_a_block_is_a_denial_that_nobody_is_asked_about() -> None:
    decision, inner, events = decide(lambda: {"action": "block", "message": "no"}, {})
    assert decision.verdict == "deny" and "blocked by the plugin p: no" in decision.reason
    assert not inner.judged and len(events) == 1


def test_a_hook_that_fails_denies_and_shows_a_notice() -> None:
    decision, inner, events = decide(lambda: 1 / 0, {})
    assert decision.verdict == "deny" and not inner.judged
    assert isinstance(events[0], Notice) and "plugin p: its hook pre_tool_call failed" in events[0].text


def test_tools_tell_what_happened_and_results_are_changed() -> None:
    told: list[tuple[str, str]] = []
    hooks = Hooks(
        [
            Hook("p", "post_tool_call", lambda result, status: told.append((result, status))),
            Hook("p", "transform_tool_result", lambda result: result.upper()),
        ]
    )
    (tool,) = add_hooks([TOOL], hooks)
    assert asyncio.run(tool.run(context(), {})).text == "RAN WITH {}"
    failed = asyncio.run(tool.run(context(), {"wrong": 1}))
    assert (failed.text, failed.error_kind) == ("WRONG", "bad_input")
    assert told == [("ran with {}", "ok"), ("wrong", "error")]


def test_without_such_hooks_tools_stay_the_same_objects() -> None:
    assert add_hooks([TOOL], Hooks()) == [TOOL] and add_hooks([TOOL], Hooks())[0] is TOOL
