"""Every call that an engine gets over a whole life: tools, compaction, /compress, /model, /new, resume,
subagent, exit; and which engine a session gets."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tests.agent.rig import calls
from tests.app.opened import ask, open_app, practice_model
from tests.context.engines import RecordingEngine
from whet.agent.session import Session
from whet.app.build import App
from whet.config.permission_settings import ApprovalSettings
from whet.config.schema import ContextSettings
from whet.contract.context_engine import ContextEngine, EngineOffer
from whet.contract.events import Compaction, Event, Notice
from whet.contract.messages import WireFormat
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


@asynccontextmanager
async def opened(
    server: PracticeServer,
    folder: Path,
    *offers: EngineOffer,
    engine: str = "recording",
    format: WireFormat | Literal["auto"] = "auto",
) -> AsyncIterator[App]:
    async with open_app(
        folder / "home",
        folder,
        practice_model(server.base_url, window_tokens=50_000, format=format),
        approval=ApprovalSettings(mode="auto"),
        context=ContextSettings(engine=engine),
    ) as app:
        app.services.contexts.engines.update({offer.name: offer for offer in offers})
        yield app


def recording(make: Callable[[], ContextEngine]) -> EngineOffer:
    return EngineOffer("recording", "Writes everything down.", "test", fresh=make)


async def turn(session: Session, text: str) -> list[Event]:
    events: list[Event] = []
    await ask(session, text, events)
    return events


GOLDEN = """\
update_model {"api_key": "", "api_mode": "chat_completions", "base_url": "URL", "context_length": 50000, \
"model": "practice", "provider": "practice"}
get_tool_schemas
on_session_start S1 {"context_length": 50000, "conversation_id": "S1", "hermes_home": "HOME", \
"model": "practice", "platform": "cli"}
should_compress_preflight u
should_compress int
update_from_response USAGE
handle_tool_call rec_find {"q": "x"} ua
should_compress int
update_from_response USAGE
should_compress_preflight uatau
should_compress int
compress uatau int focus=None
update_from_response USAGE
has_content_to_compress uua
compress uua int focus=the plan
update_model {"api_key": "", "api_mode": "chat_completions", "base_url": "URL", "context_length": 50000, \
"model": "other", "provider": "practice"}
should_compress_preflight uau
should_compress int
update_from_response USAGE
child:update_model {"api_key": "", "api_mode": "chat_completions", "base_url": "URL", \
"context_length": 50000, "model": "other", "provider": "practice"}
child:get_tool_schemas
child:on_session_start S2 {"context_length": 50000, "conversation_id": "S2", "hermes_home": "HOME", \
"model": "other", "platform": "cli"}
child:should_compress_preflight u
child:should_compress int
child:update_from_response USAGE
child:on_session_end S2 ua
child:shutdown
should_compress int
update_from_response USAGE
on_session_end S1 uauata
on_session_reset
shutdown
second:update_model {"api_key": "", "api_mode": "chat_completions", "base_url": "URL", \
"context_length": 50000, "model": "other", "provider": "practice"}
second:get_tool_schemas
second:on_session_start S3 {"carry_over_context": false, "context_length": 50000, "conversation_id": "S1", \
"hermes_home": "HOME", "model": "other", "old_session_id": "S1", "platform": "cli"}
second:should_compress_preflight u
second:should_compress int
second:update_from_response USAGE
second:on_session_end S3 ua
second:shutdown
third:update_model {"api_key": "", "api_mode": "chat_completions", "base_url": "URL", \
"context_length": 50000, "model": "other", "provider": "practice"}
third:get_tool_schemas
third:on_session_start S1 {"carry_over_context": false, "context_length": 50000, "conversation_id": "S1", \
"hermes_home": "HOME", "model": "other", "old_session_id": "S3", "platform": "cli"}
third:on_session_end S1 uatauauata
third:shutdown"""


def helpers_apart(trace: str) -> tuple[list[str], list[str]]:
    """A session's engine and its helper's run on threads of their own, so no order holds between them."""
    lines = trace.splitlines()
    return [x for x in lines if not x.startswith("child:")], [x for x in lines if x.startswith("child:")]


def test_golden_trace_of_an_engines_life(tmp_path: Path) -> None:
    """Failures 20, 34, 35, 38a, 38b: no rotation, no double start, no stale binding, no stolen engine."""
    trace: list[str] = []
    engines: list[RecordingEngine] = []

    def make() -> RecordingEngine:
        engines.append(RecordingEngine(trace, ("", "child:", "second:", "third:")[len(engines)]))
        return engines[-1]

    script = [
        calls(("rec_find", '{"q": "x"}')),
        ScriptedReply("Found."),
        ScriptedReply("Smaller."),
        ScriptedReply("", tool_calls=calls(("delegate_task", '{"task": "dig"}')).tool_calls),
        ScriptedReply("Dug."),
        ScriptedReply("Handed on."),
        ScriptedReply("New."),
    ]
    ids: dict[str, str] = {}

    async def main(server: PracticeServer) -> None:
        async with opened(server, tmp_path, recording(make)) as app:
            session = await app.new_session()
            ids[session.id] = "S1"
            await turn(session, "find x")
            engines[0].wants = True
            events = await turn(session, "go on " + "x" * 400)
            assert [event.engine for event in events if isinstance(event, Compaction)] == ["recording"]
            assert await session.context.compact("the plan", events.append) == "compacted"
            await app.sessions.models.switch(session, "other")
            await turn(session, "hand it on")
            new = await app.new_session(leaving=session)
            ids[new.id] = "S3"
            await turn(new, "new things")
            await app.open_session(session.id, leaving=new)
        assert all(name.startswith("engine-") for engine in engines for name in engine.threads)
        assert len(engines) == 4

    with PracticeServer(script=script) as server:
        asyncio.run(main(server))
        text = "\n".join(trace).replace(server.base_url, "URL").replace(str(tmp_path / "home"), "HOME")
    usage = (
        "prompt_tokens completion_tokens total_tokens input_tokens output_tokens cache_read_tokens"
        " cache_write_tokens reasoning_tokens"
    )
    text = text.replace(usage, "USAGE")
    for session_id, label in ids.items():
        text = text.replace(session_id, label)
    child = re.search(r"child:on_session_start (\w+)", text)
    assert child is not None
    text = text.replace(child[1], "S2")
    assert helpers_apart(text) == helpers_apart(GOLDEN)


async def test_resume_in_a_new_process_has_the_same_conversation_and_list(tmp_path: Path) -> None:
    """Failures 15, 21: the compacted list comes back, not the one before it."""
    first: list[str] = []
    second: list[str] = []
    with PracticeServer(
        script=[ScriptedReply("One."), ScriptedReply("Two."), ScriptedReply("Yes.")]
    ) as server:
        engine = RecordingEngine(first)
        async with opened(server, tmp_path, recording(lambda: engine)) as app:
            session = await app.new_session()
            await turn(session, "a long story " * 50)
            engine.wants = True
            await turn(session, "and on " * 50)
            await session.context.compact("", lambda event: None)
        async with opened(server, tmp_path, recording(lambda: RecordingEngine(second))) as app:
            again = await app.open_session(session.id)
            await turn(again, "still there?")
    started = [line for line in [*first, *second] if "on_session_start" in line]
    assert len(started) == 2 and started[0] == started[1]
    assert first[-2].startswith("on_session_end") and first[-2].endswith(" ua")
    assert [line for line in second if "preflight" in line] == ["should_compress_preflight uau"]


class Unclonable(RecordingEngine):
    """Holds what can't be copied, as an engine with a database does."""

    def __deepcopy__(self, memo: object) -> Unclonable:
        raise TypeError("cannot pickle 'sqlite3.Connection' object")


class Cloning(RecordingEngine):
    def clone_for_agent(self) -> Cloning:
        return Cloning(self.trace, "clone:")


async def seats(
    server: PracticeServer, folder: Path, offer: EngineOffer, engine: str = "recording"
) -> tuple[ContextEngine, str, list[str]]:
    async with opened(server, folder, offer, engine=engine) as app:
        session = await app.new_session()
        host = app.services.contexts.host(session.context)
        events = await turn(session, "hello")
        return host.runner.engine, host.runner.origin, [e.text for e in events if isinstance(e, Notice)]


@pytest.mark.slow
async def test_each_way_to_an_instance_of_its_own(tmp_path: Path) -> None:
    """Failure 31: an engine that can't be copied is made again or shared, never silently dropped."""
    trace: list[str] = []
    plain, holding = RecordingEngine(trace), Unclonable(trace)

    def broken() -> ContextEngine:
        raise OSError("disk")

    with PracticeServer(script=[ScriptedReply("Hi.") for _ in range(4)]) as server:
        for prototype, fresh, origin in [
            (Cloning(trace), None, "clone"),
            (plain, None, "copy"),
            (holding, lambda: Unclonable(trace), "fresh"),
            (holding, broken, "shared"),
        ]:
            offer = EngineOffer("recording", "", "test", prototype, fresh)
            engine, came, notices = await seats(server, tmp_path, offer)
            assert (came, notices) == (origin, [])
            assert (engine is prototype) is (origin == "shared")
        child_offer = EngineOffer("recording", "", "test", holding, broken)
        async with opened(server, tmp_path, child_offer) as app:
            seat = await app.services.contexts.start_engine(
                app.services.models.provider.info, foreground=False
            )
            assert seat.name == "compressor" and "recording is not used" in seat.notices[0]
    assert copy.copy(plain) is not plain


def test_an_unknown_engine_is_said_at_once(tmp_path: Path) -> None:
    """Failure 31: the person is told in the first turn."""
    with PracticeServer(script=[ScriptedReply("Hi.")]) as server:
        offer = recording(lambda: RecordingEngine([]))
        engine, _, notices = asyncio.run(seats(server, tmp_path, offer, "recordin"))
    assert engine.name == "compressor"
    assert notices == [
        "context engine 'recordin' is not there, compressor is used instead; did you mean recording?"
    ]


async def test_status_tells_no_engine_of_a_session(tmp_path: Path) -> None:
    """Failures 35, 37: looking stores nothing twice; window and threshold are the engine's own."""
    trace: list[str] = []
    with PracticeServer(script=[ScriptedReply("Hi.")]) as server:
        async with opened(server, tmp_path, recording(lambda: RecordingEngine(trace))) as app:
            session = await app.new_session()
            await turn(session, "hello")
            live = await session.context.status()
        trace.clear()
        async with opened(server, tmp_path, recording(lambda: RecordingEngine(trace))) as app:
            seen = await app.sessions.context_status(session.id)
        assert (live.window_tokens, live.threshold_tokens, live.counted) == (50_000, 37_500, True)
        assert (seen.threshold_tokens, seen.messages, seen.counted) == (37_500, 2, False)
        assert abs(seen.used_tokens - live.used_tokens) < live.used_tokens / 3
    assert [line.split()[0] for line in trace] == ["update_model", "shutdown"]


def test_engine_tools_are_part_of_the_frozen_prefix(tmp_path: Path) -> None:
    """G9: system prompt and tools have the same bytes before and after a compaction and a resume."""

    async def main(server: PracticeServer) -> None:
        engine = RecordingEngine([])
        async with opened(server, tmp_path, recording(lambda: engine)) as app:
            session = await app.new_session()
            assert list(session.tools)[-1] == "rec_find"
            engine.wants = True
            await turn(session, "a long story " * 50)
            await turn(session, "and on")
            await session.context.compact("", lambda event: None)
        async with opened(server, tmp_path, recording(lambda: RecordingEngine([]))) as app:
            await turn(await app.open_session(session.id), "again")

    with PracticeServer(
        script=[ScriptedReply("One."), ScriptedReply("Two."), ScriptedReply("Three.")]
    ) as server:
        asyncio.run(main(server))
        bodies = [json.loads(bytes(request.body)) for request in server.requests]
    prefixes = {msgspec.json.encode((body["tools"], body["messages"][0])) for body in bodies}
    assert len(bodies) == 3 and len(prefixes) == 1


@pytest.mark.parametrize(
    ("format", "mode"),
    [
        ("auto", "chat_completions"),
        ("anthropic_messages", "anthropic_messages"),
        ("responses", "codex_responses"),
    ],
)
def test_engines_are_told_the_format_in_their_own_words(
    tmp_path: Path, format: WireFormat | Literal["auto"], mode: str
) -> None:
    trace: list[str] = []

    async def main(server: PracticeServer) -> None:
        offer = recording(lambda: RecordingEngine(trace))
        async with opened(server, tmp_path, offer, format=format) as app:
            await app.new_session()

    with PracticeServer() as server:
        asyncio.run(main(server))
    assert f'"api_mode": "{mode}"' in "\n".join(trace)
