"""An engine's host where the window is too small, time runs out or the engine's own code fails."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import calls, rig
from tests.context.engines import Puppet, RecordingEngine
from tests.context.test_host import LONG, compactions, host_of, last_two, notices, stored_roles
from tests.support import cancel_task, let_pass
from whet.context.engine_runner import Deadlines
from whet.contract.context_engine import ChatRows
from whet_lab.practice.script import Fault, ScriptedReply


class Idle(RecordingEngine):
    """Finds nothing to make smaller, and answers with data."""

    def compress(self, messages: ChatRows, *_: object, **given: object) -> ChatRows:
        self.trace.append(f"compress at {given['current_tokens']}")
        return messages

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> Any:
        return {"found": [1, None], "in": Path("/a")}


def overflow(limit: int) -> ScriptedReply:
    message = f"This model's maximum context length is {limit} tokens. You requested 99999."
    return ScriptedReply(fault=Fault(status=400, message=message, code="context_length_exceeded"))


async def test_an_overflow_compacts_once_with_the_limit_that_the_error_named(tmp_path: Path) -> None:
    """Failure 14: the second overflow is the end of the turn, not a wedged session."""
    trace: list[str] = []
    engine = RecordingEngine(trace)
    replies = [ScriptedReply(LONG), overflow(8192), ScriptedReply("Fits."), overflow(8192), overflow(8192)]
    async with rig(tmp_path, [*replies, ScriptedReply("Alive.")], engine=engine) as one:
        await one.turn(LONG)
        end = await one.turn("go on")
        assert (end.reason, end.text) == ("answered", "Fits.")
        assert engine.context_length == 8192
        assert len(compactions(one)) == 1
        assert any("8,192" in text for text in notices(one))
        assert (await one.turn(LONG)).reason == "failed"
        assert (await one.turn("again")).text == "Alive."


@pytest.mark.parametrize(("limit", "size"), [(8192, 8_193), (0, 128_001)])
async def test_where_the_engine_finds_nothing_in_an_overflow_the_built_in_one_does(
    tmp_path: Path, limit: int, size: int
) -> None:
    engine, spare = Idle([]), Puppet(last_two, "spare")
    replies = [ScriptedReply(LONG), overflow(limit), ScriptedReply("Fits.")]
    async with rig(tmp_path, replies, engine=engine, spare=spare) as one:
        await one.turn(LONG)
        assert (await one.turn("go on")).text == "Fits."
        assert [event.engine for event in compactions(one)] == ["spare"]
        assert f"compress at {size}" in engine.trace


async def test_a_tools_answer_that_is_no_text_is_given_as_json(tmp_path: Path) -> None:
    replies = [calls(("rec_find", "{}")), ScriptedReply("One.")]
    async with rig(tmp_path, replies, engine=Idle([])) as one:
        assert (await one.turn("find")).text == "One."
        assert one.session.log.messages[2].text == '{"found":[1,null],"in":"/a"}'


async def test_an_overflow_that_nothing_can_shrink_is_reported_as_it_came(tmp_path: Path) -> None:
    async with rig(tmp_path, [overflow(0), ScriptedReply("never")]) as one:
        end = await one.turn("hello")
        assert end.reason == "failed" and "context" in end.error
        assert one.server.count == 1


async def test_past_its_deadline_the_turn_goes_on_and_the_lane_stays_closed(tmp_path: Path) -> None:
    """Failures 12, 13: a hanging engine costs its deadline once; it comes back when its thread does."""
    release, spare = threading.Event(), Puppet(last_two, "spare")
    loop = asyncio.get_running_loop()

    def hang(rows: ChatRows) -> ChatRows:
        loop.call_soon_threadsafe(let_pass, 30)
        release.wait(60)
        return rows[:1]

    engine = Puppet(lambda rows: rows, "slow")
    deadlines = Deadlines(compress_s=30, hook_s=30)
    replies = [ScriptedReply(LONG), ScriptedReply("On."), ScriptedReply("And on."), ScriptedReply("Back.")]
    async with rig(tmp_path, replies, engine=engine, spare=spare, deadlines=deadlines) as one:
        host = host_of(one)
        await one.turn(LONG)
        host.breaker.get().reset()
        engine.act = hang
        assert (await one.turn("go on")).text == "On."
        assert [event.engine for event in compactions(one)] == ["spare"]
        assert any("slow did not answer compress in 30 s" in text for text in notices(one))
        assert host.runner.lane.stuck
        live = list(one.session.log.messages)
        assert (await one.turn("go on")).text == "And on."
        release.set()
        await asyncio.to_thread(lambda: [None for _ in iter(lambda: host.runner.lane.stuck, False)])
        assert one.session.log.messages[: len(live)] == live or len(compactions(one)) == 2
        engine.act = lambda rows: rows
        assert (await one.turn("back?")).text == "Back."
        assert len([text for text in notices(one) if "slow answers again" in text]) == 1


async def test_a_cancel_during_a_compaction_changes_nothing(tmp_path: Path) -> None:
    """Failure 12: the next turn compacts again and goes on."""
    entered, release = threading.Event(), threading.Event()

    def wait(rows: ChatRows) -> ChatRows:
        entered.set()
        release.wait(20)
        return last_two(rows)

    engine = Puppet(lambda rows: rows)
    async with rig(tmp_path, [ScriptedReply(LONG), ScriptedReply("Done.")], engine=engine) as one:
        await one.turn(LONG)
        engine.act = wait
        task = asyncio.ensure_future(one.turn("go on"))
        await asyncio.to_thread(entered.wait, 10)
        await cancel_task(task)
        release.set()
        assert await stored_roles(one) == "uau"
        host_of(one).breaker.get().reset()
        assert (await one.turn("again")).text == "Done."
        assert len(compactions(one)) == 1


class Broken(RecordingEngine):
    """Every hook raises."""

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        raise ValueError("start")

    def on_session_end(self, session_id: str, messages: ChatRows) -> None:
        raise ValueError("end")

    def update_model(self, **given: Any) -> None:
        raise ValueError("model")

    def update_from_response(self, usage: dict[str, Any]) -> None:
        raise ValueError("usage")

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        raise SystemExit(7)

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        raise KeyError("x")

    def shutdown(self) -> None:
        raise ValueError("shutdown")


async def test_every_hook_may_fail_and_each_failure_is_shown_once(tmp_path: Path) -> None:
    """Failures 31, 36."""

    replies = [calls(("rec_find", "{}")), ScriptedReply("One."), ScriptedReply("Two.")]
    async with rig(tmp_path, replies, engine=Broken([])) as one:
        assert (await one.turn("find")).text == "One."
        assert (await one.turn("go on")).text == "Two."
        result = one.session.log.messages[2]
        assert result.is_error and '{"error": "KeyError' in result.text
        shown = notices(one)
        assert len(shown) == len(set(shown))
        for hook in ("on_session_start", "update_model", "update_from_response", "should_compress"):
            assert len([text for text in shown if f"failed in {hook}" in text]) == 1


class BadTools(RecordingEngine):
    def get_tool_schemas(self) -> Any:
        good = {"name": "good", "description": "d", "parameters": {"type": "object", "properties": {}}}
        return [
            {"type": "function", "function": good},
            {**good, "name": "bare"},
            {"description": "nameless"},
            {**good, "name": ""},
            {"name": "plain"},
            {**good, "name": "look"},
            {**good, "name": "no good name!"},
            {**good, "name": "listy", "parameters": []},
            {**good, "name": "wrong", "parameters": {"type": "string"}},
            {**good, "name": "unsendable", "parameters": {"type": "object", "x": {1, 2}}},
            {**good, "name": "nothing", "parameters": {"type": "object", "x": float("nan")}},
            "not a schema",
            {**good, "name": "bare"},
        ]


async def test_bad_tool_schemas_are_left_out_visibly(tmp_path: Path) -> None:
    """Failure 5: one bad schema must not kill every tool."""

    async with rig(tmp_path, [ScriptedReply("Hi.")], engine=BadTools([])) as one:
        assert [tool.name for tool in host_of(one).runner.tools or []] == ["good", "bare", "plain", "listy"]
        plain = (host_of(one).runner.tools or [])[2].spec
        assert (plain.description, plain.parameters) == ("plain", {"type": "object", "properties": {}})
        assert (await one.turn("hello")).reason == "answered"
        assert len([text for text in notices(one) if "is left out" in text]) == 5
        assert all(tool.repeatable for tool in host_of(one).runner.tools or []), "after a crash too"
