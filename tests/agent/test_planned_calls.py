"""Calls that are planned as calls of another tool, after a program was asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tests.agent.rig import Rig, calls, rig
from whet.contract.errors import BadInput
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import Tool, ToolContext
from whet.tools.signature import tool
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ANSWER = ScriptedReply("Done.")


def results(r: Rig) -> list[str]:
    return [message.text for message in r.session.log.messages if message.role == "tool"]


def planning_tools(ran: list[str]) -> list[Tool]:
    """Return a tool that changes something, and one whose calls are mostly planned as calls of that."""

    @tool(toolset="file", effects={"write"})
    async def change(ctx: ToolContext, what: str) -> str:
        """Change something."""
        ran.append(what)
        return f"changed {what}"

    @tool(toolset="file", effects={"read"}, repeatable=True)
    async def ask(ctx: ToolContext, what: str) -> str:
        """Ask something."""
        return f"saw {what}"

    async def plan(ctx: ToolContext, given: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        match given["what"]:
            case "look":
                return None
            case "missing":
                return "none", {}
            case "bug":
                raise ZeroDivisionError("oops")
            case "wrong":
                raise BadInput("no such thing")
        return "change", {"what": f"{given['what']} after {ran}"}

    return [change, msgspec.structs.replace(ask, plan=plan)]


async def test_a_call_that_is_planned_as_another_is_judged_and_run_as_that_one(tmp_path: Path) -> None:
    """Planning waits for the calls before it, and its failures are results."""
    script = [
        calls(("change", '{"what": "a"}'), ("ask", '{"what": "b"}')),
        *(calls(("ask", json.dumps({"what": what}))) for what in ("look", "missing", "bug", "wrong")),
        ANSWER,
    ]
    async with rig(tmp_path, script, more_tools=planning_tools([])) as r:
        await r.turn("go")
        assert results(r) == [
            "changed a",
            "changed b after ['a']",
            "saw look",
            "this session has no none, so nothing can be changed",
            "ask crashed: ZeroDivisionError: oops",
            "no such thing",
        ]


async def test_a_planned_call_that_a_crash_cut_off_is_not_run_again(tmp_path: Path) -> None:
    ran: list[str] = []
    call = ToolCall("c1", "ask", '{"what": "b"}')
    with PracticeServer(script=[ANSWER, ANSWER]) as server:
        for words in (None, "Something else"):
            async with rig(tmp_path, server=server, more_tools=planning_tools(ran)) as r:
                log = r.session.log
                turn = await log.begin_turn(Message("user", "go"))
                reply = Message("assistant", tool_calls=(call,))
                await log.append_reply(turn, reply, Usage(), "practice")
                await log.store_call_start(turn, log.open_calls(turn)[0], "rule")
                log.close()
            tools = planning_tools(ran)
            async with rig(tmp_path, server=server, session_id=r.session.id, more_tools=tools) as r:
                await r.turn(words)
                assert "its outcome is unknown" in results(r)[0] and ran == []
