"""The turn on real parts: what is asked, what is stored, how it ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.rig import FullDisk, Rig, calls, rig
from tests.context.engines import RecordingEngine
from tests.support import cancel_task, let_pass
from whet.agent.loop import run_turn
from whet.agent.session import TurnLimits
from whet.clock import SystemClock
from whet.contract.errors import NotFound, ToolError
from whet.contract.events import (
    Notice,
    Steered,
    StepFinished,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from whet.contract.messages import Message, Usage
from whet.contract.tools import ToolContext
from whet.store.transcript import Transcript
from whet.tools.signature import tool
from whet_lab.practice.script import Fault, ScriptedReply, html_page, rate_limit_reply
from whet_lab.practice.server import PracticeServer

ANSWER = ScriptedReply("All done.")


def roles(messages: list[Message]) -> str:
    return " ".join(message.role[0] for message in messages)


def prefix_holds(server: PracticeServer) -> bool:
    """Request n without its closing bytes is a prefix of request n+1."""
    bodies = [bytes(request.body) for request in server.requests]
    return all(later.startswith(earlier.rstrip(b"]}")) for earlier, later in itertools.pairwise(bodies))


@pytest.mark.parametrize("wire", ["chat_completions", "anthropic_messages", "responses"])
async def test_turn_runs_tools_and_answers_on_every_wire(tmp_path: Path, wire: str) -> None:
    script = [calls(("put", '{"what": "a"}'), text="First."), calls(("look", '{"at":"b"}')), ANSWER]
    async with rig(tmp_path, script, wire=wire) as r:
        end = await r.turn("go")
        assert (end.reason, end.text, end.steps, end.error) == ("answered", "All done.", 3, "")
        assert r.trace() == ["put a", "look b"]
        assert roles(r.session.log.messages) == "u a t a t a"
        assert prefix_holds(r.server)
        assert end.usage.prompt_tokens > 0 and end.usage.total_tokens > end.usage.prompt_tokens
        assert r.session.usage == r.session.log.session.usage == end.usage
        assert [type(event).__name__ for event in r.events if not isinstance(event, TextDelta)] == [
            "StepFinished", "ToolStarted", "ToolFinished",
            "StepFinished", "ToolStarted", "ToolFinished", "StepFinished", "TurnEnd",
        ]  # fmt: skip


async def test_parallel_calls_overlap_and_results_keep_the_models_order(tmp_path: Path) -> None:
    script = [calls(("meet", '{"name":"a","other":"b"}'), ("meet", '{"name":"b","other":"a"}')), ANSWER]
    async with rig(tmp_path, script) as r:
        assert (await r.turn("go")).reason == "answered"
        results = [m.text for m in r.session.log.messages if m.role == "tool"]
        assert results == ["a met b", "b met a"]
        assert len(r.gate.asked) == 2


async def test_what_a_tool_does_wrong_goes_back_to_the_model(tmp_path: Path) -> None:
    script = [
        calls(("fail", "{}"), ("crash", "{}"), ("hang", "{}"), ("shout", "{}")),
        calls(("lok", '{"at":"x"}'), ("look", '{"at": '), ("look", "[1]"), ("look", '{"aat":"x"}')),
        ANSWER,
    ]
    async with rig(tmp_path, script) as r:
        assert (await r.turn("go")).reason == "answered"
        results = [m for m in r.session.log.messages if m.role == "tool"]
        kinds = [e.error_kind for e in r.events if isinstance(e, ToolFinished)]
        assert sorted(kinds) == sorted(
            ["bad_input", "crashed", "timeout", "", "unknown_tool", "bad_input", "bad_input", "bad_input"]
        )
        assert results[0].text == "no luck. try another"
        assert "ZeroDivisionError" in results[1].text
        assert "limit of 0.05 s" in results[2].text
        assert "4,000 of 5,000 characters cut" in results[3].text and len(results[3].text) < 1100
        assert "Did you mean look?" in results[4].text
        assert "not a JSON object" in results[5].text and "not a JSON object" in results[6].text
        assert "at" in results[7].text
        assert [m.is_error for m in results] == [True, True, True, False, True, True, True, True]


async def test_a_tool_that_ran_into_a_timeout_of_its_own_has_failed(tmp_path: Path) -> None:
    async with rig(tmp_path, [calls(("crash", '{"late": true}')), ANSWER]) as r:
        assert (await r.turn("go")).reason == "answered"
        [kind] = [e.error_kind for e in r.events if isinstance(e, ToolFinished)]
        assert (kind, r.session.log.messages[2].text) == ("failed", "crash failed: no answer")


async def test_arguments_nested_without_measure_go_back_to_the_model(tmp_path: Path) -> None:
    deep = "[" * 5_000 + "]" * 5_000
    script = [calls(("look", f'{{"at": {deep}}}'), ("look", deep)), ANSWER]
    async with rig(tmp_path, script) as r:
        assert (await r.turn("go")).reason == "answered"
        results = [m for m in r.session.log.messages if m.role == "tool"]
        assert all("not a JSON object" in m.text and m.is_error for m in results) and len(results) == 2
        assert all(350 < len(m.text) < 600 for m in results)  # what was written is quoted, not all of it


async def test_the_same_failing_call_is_stopped_after_three_times(tmp_path: Path) -> None:
    script = [calls(("fail", "{}")) for _ in range(5)] + [ANSWER]
    async with rig(tmp_path, script) as r:
        await r.turn("go")
        assert r.trace() == ["fail"] * 3
        assert "was not run again" in r.session.log.messages[-2].text


async def test_a_failed_call_may_be_made_again_after_another_or_a_persons_word(tmp_path: Path) -> None:
    reply, other = calls(("fail", "{}")), calls(("fail", '{"why": "rain"}'))
    script = [reply, other] * 4 + [reply, reply, reply, ANSWER, reply, ANSWER]
    async with rig(tmp_path, script) as r:
        await r.turn("go")
        assert r.trace() == ["fail"] * 11
        await r.turn("try once more")
        assert r.trace() == ["fail"] * 12


async def test_denied_and_failed_gate_run_nothing(tmp_path: Path) -> None:
    script = [reply for what in "xyz" for reply in (calls(("put", f'{{"what":"{what}"}}')), ANSWER)]

    async def wrong() -> None:
        raise ToolError("there is no such place")

    async with rig(tmp_path, script) as r:
        r.gate.denied = {"put"}
        await r.turn("go")
        r.gate.broken = True
        await r.turn("again")
        r.gate.broken, r.gate.takes = False, wrong
        await r.turn("and again")
        assert r.trace() == []
        results = [m.text for m in r.session.log.messages if m.role == "tool"]
        assert results[0] == "nobody was there to ask"
        assert "gate failed" in results[1]
        assert "there is no such place" in results[2]
        assert not r.seen(ToolStarted)


async def test_step_budget_ends_the_turn_and_the_next_message_goes_on(tmp_path: Path) -> None:
    script = [calls(("look", f'{{"at":"{n}"}}')) for n in range(3)] + [ANSWER]
    async with rig(tmp_path, script, limits=TurnLimits(steps=3, turn_s=60)) as r:
        end = await r.turn("go")
        assert (end.reason, end.steps) == ("budget", 3)
        assert "3 steps" in end.error
        assert roles(r.session.log.messages) == "u a t a t a t"
        assert (await r.turn("go on")).reason == "answered"


async def test_time_budget_ends_a_turn_that_waits_on_a_tool(tmp_path: Path) -> None:
    async with rig(tmp_path, [calls(("wait", "{}")), ANSWER], limits=TurnLimits(steps=9, turn_s=60)) as r:

        def emit(event: object) -> None:
            if isinstance(event, ToolProgress):
                let_pass(60)

        assert (await run_turn(r.session, Message("user", "go"), emit)).reason == "budget"
        assert "outcome is unknown" in r.session.log.messages[-1].text
        assert (await r.turn("go on")).reason == "answered"


async def cancel_when(r: Rig, kind: type, text: str = "go") -> None:
    """Cancel the turn as soon as an event of `kind` comes."""
    arrived = asyncio.Event()

    def emit(event: object) -> None:
        r.events.append(event)  # type: ignore[arg-type]
        if isinstance(event, kind):
            arrived.set()

    task = asyncio.create_task(run_turn(r.session, Message("user", text), emit))
    async with asyncio.timeout(30):
        await arrived.wait()
    await cancel_task(task)


async def test_cancel_in_a_tool_leaves_a_whole_transcript_and_a_usable_session(tmp_path: Path) -> None:
    async with rig(tmp_path, [calls(("wait", "{}"), ("put", '{"what":"x"}')), ANSWER]) as r:
        await cancel_when(r, ToolProgress)
        assert roles(r.session.log.messages) == "u a t t"
        assert "outcome is unknown" in r.session.log.messages[2].text
        assert "not started" in r.session.log.messages[3].text
        assert all(message.is_error for message in r.session.log.messages[2:])
        sql = "SELECT duration_s FROM tool_calls"
        (stopped_s,), (unstarted_s,) = r.database.read_now(lambda db: db.execute(sql).fetchall())
        assert stopped_s > 0 == unstarted_s
        assert (await r.turn("and now?")).reason == "answered"
        assert r.trace() == ["wait"]


@pytest.mark.slow
async def test_cancels_that_come_again_and_again_leave_a_whole_transcript_too(tmp_path: Path) -> None:
    async with rig(tmp_path, [calls(("wait", "{}"), ("put", '{"what":"x"}')), ANSWER]) as r:
        held, go_on = threading.Event(), threading.Event()

        def emit(event: object) -> None:
            if isinstance(event, ToolProgress):  # from here on the disk is slow
                r.database.submit(lambda _: (held.set(), go_on.wait(30)))
                assert held.wait(30)
                asyncio.get_running_loop().call_later(0.2, go_on.set)

        task = asyncio.create_task(run_turn(r.session, Message("user", "go"), emit))
        while not held.is_set():
            await asyncio.sleep(0.001)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert roles(r.session.log.messages) == "u a t t"
        assert (await r.turn("and now?")).reason == "answered"
        assert roles(r.session.log.messages) == "u a t t u a"


@pytest.mark.parametrize(
    ("said", "window"),
    [
        ("This model's maximum context length is 8192 tokens. You requested 99999.", 8192),
        ("The request is too long.", 0),
    ],
)
async def test_the_size_an_overflow_names_is_the_next_window(tmp_path: Path, said: str, window: int) -> None:
    full = ScriptedReply(fault=Fault(status=400, message=said, code="context_length_exceeded"))
    script = [ScriptedReply("word " * 500), full, ANSWER]
    async with rig(tmp_path, script, engine=RecordingEngine([])) as r:
        await r.turn("word " * 500)
        before = (await r.session.context.status()).window_tokens
        assert (await r.turn("go on")).text == "All done."
        assert (await r.session.context.status()).window_tokens == (window or before)


async def test_cancel_while_text_streams_keeps_what_was_shown(tmp_path: Path) -> None:
    slow = ScriptedReply("one two three or", pieces=4, fault=Fault(stall_after=3))
    async with rig(tmp_path, [slow, ANSWER]) as r:
        await cancel_when(r, TextDelta)
        shown = "".join(e.text for e in r.events if isinstance(e, TextDelta))
        # Nobody counted what was cut: four characters, or what is left of them, are a token.
        assert r.session.usage.output_tokens == math.ceil(len(shown) / 3)
        assert shown and r.session.log.messages[-1].text == shown
        assert (await r.turn("go on")).text == "All done."
        assert prefix_holds(r.server)


async def test_text_typed_during_a_turn_is_in_the_next_request(tmp_path: Path) -> None:
    async with rig(tmp_path, [calls(("look", "{}")), ANSWER, ScriptedReply("Noted.")]) as r:

        def emit(event: object) -> None:
            r.events.append(event)  # type: ignore[arg-type]
            if isinstance(event, StepFinished) and event.step == 2:
                r.session.steer("also the tests")
            if isinstance(event, ToolStarted):
                r.session.steer("mind the docs")

        end = await run_turn(r.session, Message("user", "go"), emit)
        assert end.text == "Noted."
        assert roles(r.session.log.messages) == "u a t u a u a"
        assert [e.text for e in r.seen(Steered)] == ["mind the docs", "also the tests"]  # type: ignore[union-attr]
        assert b"mind the docs" in r.server.requests[1].body
        assert prefix_holds(r.server)


async def test_a_server_that_stays_down_fails_the_turn_and_loses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, [ScriptedReply(fault=Fault(status=401, message="bad key")), ANSWER]) as r:
        end = await r.turn("go")
        assert end.reason == "failed" and end.error and end.hint
        assert roles(r.session.log.messages) == "u"
        assert (await r.turn("again")).reason == "answered"


@pytest.mark.parametrize(
    "fault", [rate_limit_reply(), html_page(502), ScriptedReply("abc", fault=Fault(cut_after=1))]
)
async def test_a_fault_that_passes_is_retried(tmp_path: Path, fault: ScriptedReply) -> None:
    async with rig(tmp_path, [fault, ANSWER]) as r:
        end = await r.turn("go")
        assert (end.reason, end.text) == ("answered", "All done.")
        assert len(r.server.requests) == 2


async def test_a_refusal_and_a_cut_answer_are_named(tmp_path: Path) -> None:
    async with rig(tmp_path, [ScriptedReply(stop="refusal"), ScriptedReply("half", stop="length")]) as r:
        assert (await r.turn("go")).reason == "refused"
        assert (await r.turn("again")).text == "half"
        assert "output limit" in r.seen(Notice)[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("arguments", ['{"at": "a', '{"bt": 1}'])
async def test_the_model_reads_that_the_output_limit_cut_its_call(tmp_path: Path, arguments: str) -> None:
    asks = calls(("look", '{"at": "a"}'), ("look", arguments))
    cut = msgspec.structs.replace(asks, stop="length")
    async with rig(tmp_path, [cut, asks, ANSWER]) as r:
        await r.turn("go")
        results = [message.text for message in r.session.log.messages if message.role == "tool"]
        assert ["reached its output limit" in text for text in results] == [False, True, False, False]


async def test_resume_without_an_unfinished_turn_says_so(tmp_path: Path) -> None:
    async with rig(tmp_path, [ANSWER]) as r:
        with pytest.raises(NotFound):
            await r.turn(None)
        await r.turn("go")
        with pytest.raises(NotFound):
            await r.turn(None)


async def test_a_stored_session_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    with PracticeServer(script=[calls(("look", '{"at" : "x"}')), ANSWER, ScriptedReply("Again.")]) as server:
        async with rig(tmp_path, server=server) as r:
            await r.turn("go")
            session_id = r.session.id
        async with rig(tmp_path, server=server, session_id=session_id) as r:
            assert (await r.turn("more")).text == "Again."
            assert prefix_holds(server)
            assert json.loads(server.requests[-1].body)["messages"][-1]["content"] == "more"


async def test_what_is_stored_is_what_was_said(tmp_path: Path) -> None:
    async with rig(tmp_path, [calls(("look", '{"at" :  "ü"}')), ScriptedReply("Grüße 数据 🙂")]) as r:
        await r.turn("Wo? \x00 \ud83d")
        stored = await Transcript.open(r.database, r.session.id, r.session.clock)
        assert [m.text for m in stored.messages] == [m.text for m in r.session.log.messages]
        assert stored.messages[1].tool_calls[0].arguments == '{"at" :  "ü"}'


async def test_a_result_that_can_not_be_stored_ends_the_turn_and_says_why(tmp_path: Path) -> None:
    database = FullDisk.open(tmp_path / "state.db", SystemClock())
    script = [calls(("put", '{"what": "a"}'), ("put", '{"what": "b"}')), ANSWER]
    async with rig(tmp_path, script, database=database) as r:

        def emit(event: object) -> None:
            if isinstance(event, ToolStarted):
                FullDisk.armed = True

        end = await run_turn(r.session, Message("user", "go"), emit)
        assert (end.reason, end.error, end.hint) == ("failed", "the disk is full", "make room")
        assert r.trace() == ["put a"]
        assert (await r.turn("go on")).reason == "answered"


@pytest.mark.parametrize(
    ("answered", "said", "expected", "requests"),
    [
        (False, "more", ("u u a", [("answered",)]), 1),  # it joins the turn that was cut off
        (True, "more", ("u a u a", [("answered",), ("answered",)]), 1),  # that one only lacked its end
        (False, None, ("u a", [("answered",)]), 1),
        (True, None, ("u a", [("answered",)]), 0),
    ],
)
async def test_a_turn_that_was_cut_off_is_finished_or_ended_first(
    tmp_path: Path, answered: bool, said: str | None, expected: tuple[str, list[tuple[str]]], requests: int
) -> None:
    with PracticeServer(script=[ANSWER]) as server:
        async with rig(tmp_path, server=server) as r:
            turn = await r.session.log.begin_turn(Message("user", "go"))
            if answered:
                reply = Message("assistant", "Said.")
                await r.session.log.append_reply(turn, reply, Usage(), "practice")
            r.session.log.close()  # as a crash would
            session_id = r.session.id
        async with rig(tmp_path, server=server, session_id=session_id) as r:
            end = await r.turn(said)
            assert end.reason == "answered"
            rows = r.database.read_now(lambda db: db.execute("select reason from turns").fetchall())
            assert (roles(r.session.log.messages), rows) == expected
            assert len(server.requests) == requests


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_call_that_may_run_again_is_told_of_once_it_is_on_disk(tmp_path: Path, is_slow: bool) -> None:
    """Over at once, its start and its result are one commit; else its start is on disk while it runs."""
    release = asyncio.Event()

    @tool(toolset="file", effects={"read"}, repeatable=True)
    async def see(ctx: ToolContext) -> str:
        """See."""
        ctx.output("half")
        if is_slow:
            await release.wait()
        return "seen"

    async with rig(tmp_path, [calls(("see", "{}")), ANSWER], more_tools=[see]) as r:
        told: list[tuple[str, bool, bool]] = []

        def emit(event: Any) -> None:
            if isinstance(event, ToolStarted | ToolProgress | ToolFinished):
                sql = "SELECT started IS NOT NULL, finished IS NOT NULL FROM tool_calls"
                row = r.database.read_now(lambda db: db.execute(sql).fetchall())[-1]
                told.append((type(event).__name__, bool(row[0]), bool(row[1])))
                release.set()

        end = await run_turn(r.session, Message("user", "go"), emit)
        assert end.reason == "answered", end.error
        ran = (True, not is_slow)
        assert told == [("ToolStarted", *ran), ("ToolProgress", *ran), ("ToolFinished", True, True)]
