"""What a turn's end cut off may have happened all the same: its receipt says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.rig import ListGate, Rig, calls, rig
from tests.support import let_pass
from whet.agent.facts import derive_facts
from whet.agent.loop import run_turn
from whet.agent.session import TurnLimits
from whet.contract.events import Emit, Event, ToolFinished, ToolProgress, TurnEnd
from whet.contract.messages import Message
from whet.contract.protocols import Decision, GateCall
from whet.contract.tools import Effect, Tool, ToolContext, ToolOutput
from whet.store import facts
from whet.tools.signature import tool
from whet_lab.practice.script import ScriptedReply

ANSWER = ScriptedReply("All done.")


def endless(effect: Effect, *tags: str) -> Tool:
    """A tool that says that it runs, and never ends."""

    @tool(toolset="x", effects={effect}, tags=set(tags), timeout_s=None)
    async def act(ctx: ToolContext, command: str) -> str:
        """Act."""
        ctx.output("running")
        await asyncio.Event().wait()
        return ""

    return act


async def _out_of_time(r: Rig) -> TurnEnd:
    def emit(event: Event) -> None:
        r.events.append(event)
        if isinstance(event, ToolProgress):
            let_pass(60)

    return await run_turn(r.session, Message("user", "go"), emit)


@pytest.mark.parametrize(
    ("effect", "tags", "line", "row"),
    [
        ("execute", ("command",), "did: 1 command, 1 failed", "$ make world  [interrupted]"),
        ("send", (), "did: sent 0, 1 not known", "act: make world  [interrupted: it may have been sent]"),
        ("read", (), None, None),
    ],
)
async def test_what_ran_when_the_time_was_up_is_in_the_receipt(
    tmp_path: Path, effect: Effect, tags: tuple[str, ...], line: str | None, row: str | None
) -> None:
    limits = TurnLimits(steps=9, turn_s=60)
    script = [calls(("act", '{"command": "make world"}'), ("put", '{"what": "x"}')), ANSWER]
    async with rig(tmp_path, script, limits=limits, more_tools=[endless(effect, *tags)]) as r:
        end = await _out_of_time(r)
        assert (end.reason, end.error) == ("budget", "the turn reached its limit of 60 s")
        kinds = r.database.read_now(lambda db: db.execute("SELECT error_kind FROM tool_calls").fetchall())
        assert kinds == [("interrupted",), ("cancelled",)]
        receipt = r.database.read_now(lambda db: facts.build_receipt(db, r.session.log.live.key, 1))
        assert (receipt and receipt.line) == line
        assert (receipt and receipt.rows) == (row and (row,))


class Editing(ListGate):
    """A person who writes another command and allows that."""

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        return Decision("allow", "person", arguments={"command": "make test"})


async def test_the_command_that_the_person_wrote_is_what_was_cut_off(tmp_path: Path) -> None:
    limits = TurnLimits(steps=9, turn_s=60)
    script = [calls(("act", '{"command": "make world"}'))]
    async with rig(tmp_path, script, limits=limits, more_tools=[endless("execute", "command")]) as r:
        r.session = msgspec.structs.replace(r.session, gate=Editing())
        await _out_of_time(r)
        receipt = r.database.read_now(lambda db: facts.build_receipt(db, r.session.log.live.key, 1))
        assert receipt is not None and receipt.rows == ("$ make test  [interrupted]",)
        text = r.session.log.messages[-1].text
        assert 'These arguments ran: {"command":"make test"}]\nThe turn ended (budget)' in text


def test_what_was_sent_is_named_in_brief(tmp_path: Path) -> None:
    text = derive_facts(endless("send"), {"command": "x" * 500}, ToolOutput("done"), (), tmp_path)
    assert f'"sent":"{"x" * 200}"' in text
    assert (
        derive_facts(endless("send"), {"command": "x"}, ToolOutput("", error_kind="denied"), (), tmp_path)
        == ""
    )


@pytest.mark.parametrize("more", [{"runs_on": "p1"}, {"over": "p1"}])
def test_a_process_that_runs_on_or_is_over_is_named(tmp_path: Path, more: Any) -> None:
    ((name, value),) = more.items()
    text = derive_facts(endless("read"), {}, ToolOutput("x", **more), (), tmp_path)
    assert f'"{name}":"{value}"' in text


async def test_what_a_stopped_call_had_printed_and_its_time_are_kept(tmp_path: Path) -> None:
    limits = TurnLimits(steps=9, turn_s=60)
    script = [calls(("act", '{"command": "make world"}')), ANSWER]
    tools = [endless("execute", "command")]
    async with rig(tmp_path, script, limits=limits, more_tools=tools) as r:
        await _out_of_time(r)
        result = r.session.log.messages[-1].text
        assert result.endswith("Until then it had printed:\nrunning\n[cut off here: it was stopped]")
        ((spent_s,),) = r.database.read_now(
            lambda db: db.execute("SELECT duration_s FROM tool_calls").fetchall()
        )
        assert spent_s > 0
        assert not r.session.stopped
        (shown,) = r.seen(ToolFinished)
        assert shown.error_kind == "interrupted"
        assert shown.preview == result, "a chat, a program or an editor sees it as well"
