"""Many conversations in one process: side by side, one turn at a time each, each with its own person."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import apsw
import pytest

from tests.agent.rig import calls
from tests.support import cancel_task
from whet.agent.session import Session
from whet.app.build import App
from whet.app.conversations.hosted import SessionHost, TurnWrites
from whet.app.conversations.people import PersonRouter
from whet.config.paths import Home
from whet.config.permission_settings import ApprovalSettings, SandboxSettings
from whet.config.schema import AgentSettings, ModelSettings, Settings
from whet.contract.errors import NotFound, WhetError
from whet.contract.events import Event, TurnEnd
from whet.contract.messages import Message
from whet.contract.origin import Origin
from whet.contract.protocols import Answer, ApprovalRequest
from whet.memory.requests import MemoryRequest
from whet.store import sessions
from whet.store.jobs import QueuedJob
from whet.store.transcript import TurnRecord
from whet.store.turns import list_accepted
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer


class Asked:
    """A person who is asked and says what was decided beforehand."""

    def __init__(self, answer: Answer = "once") -> None:
        self.answer: Answer = answer
        self.requests: list[ApprovalRequest] = []
        self.wait: asyncio.Event | None = None

    async def approve(self, request: ApprovalRequest) -> Answer | None:
        self.requests.append(request)
        if self.wait is not None:
            await self.wait.wait()
        return self.answer

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        return f"{question} {self.answer}"


@asynccontextmanager
async def hosted(
    server: PracticeServer,
    folder: Path,
    *,
    mode: str = "auto",
    idle_after_s: float = 60.0,
    max_open: int = 200,
    max_turns: int = 200,
    turn_timeout_s: float = 3600.0,
    sandbox: Literal["auto", "off"] = "off",
) -> AsyncIterator[SessionHost]:
    settings = Settings(
        model=ModelSettings(provider="practice", base_url=server.base_url, model="practice"),
        approval=ApprovalSettings(mode=mode),  # type: ignore[arg-type]
        agent=AgentSettings(turn_timeout_s=turn_timeout_s),
        sandbox=SandboxSettings(mode=sandbox),
    )
    people = PersonRouter()
    app = await App.start(Home(folder / "home"), settings, {}, people, folder, source="api")
    many = SessionHost(
        app.sessions, people, idle_after_s=idle_after_s, max_open=max_open, max_turns=max_turns
    )
    try:
        yield many
    finally:
        await many.aclose()
        await app.aclose()


@asynccontextmanager
async def hosting(
    script: list[ScriptedReply] | None, folder: Path, **options: Any
) -> AsyncIterator[tuple[PracticeServer, SessionHost]]:
    """Host sessions on a server of their own."""
    with PracticeServer(script=script) as server:
        async with hosted(server, folder, **options) as many:
            yield server, many


def ignore(event: Event) -> None:
    pass


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def text_of(end: TurnEnd | None) -> str:
    assert end is not None
    return end.text


STALLED = Fault(stall_after=0)


async def test_two_conversations_run_side_by_side(tmp_path: Path) -> None:
    script = [
        ScriptedReply("One.", when="first thing", fault=STALLED),
        ScriptedReply("Two.", when="second thing", fault=STALLED),
    ]
    async with hosting(script, tmp_path) as (server, many):
        session, two = await many.new_session(), await many.new_session()
        turns = [
            asyncio.create_task(many.submit(session, "first thing", emit=ignore)),
            asyncio.create_task(many.submit(two, "second thing", emit=ignore)),
        ]
        await asyncio.to_thread(server.wait_for_stall, 2)  # neither waits for the other
        assert sorted(many.running) == sorted([session, two])
        server.release()
        assert [text_of(await turn) for turn in turns] == ["One.", "Two."]
        titles = [(await many.open_session(id_)).log.session.title for id_ in (session, two)]
        assert titles == ["first thing", "second thing"]


async def test_what_is_said_during_a_turn_is_queued_or_taken_by_it_or_refused(tmp_path: Path) -> None:
    script = [
        calls(("todo", '{"items": []}')),
        ScriptedReply("With both.", fault=STALLED),
        ScriptedReply("Later."),
    ]
    async with hosting(script, tmp_path) as (server, many):
        id_ = await many.new_session()
        first = asyncio.create_task(many.submit(id_, "begin", emit=ignore))
        await asyncio.to_thread(server.wait_for_stall)
        queued = asyncio.create_task(many.submit(id_, "after that", emit=ignore))
        with pytest.raises(WhetError, match="a turn is running"):
            await many.submit(id_, "no", emit=ignore, busy="refuse")
        server.release()
        assert text_of(await first) == "With both." and text_of(await queued) == "Later."
        texts = [row.text for row in (await many.open_session(id_)).log.messages if row.role == "user"]
        assert texts == ["begin", "after that"]


async def test_steering_is_read_by_the_running_turn_or_is_one_of_its_own(tmp_path: Path) -> None:
    stored: list[str] = []

    def writes(name: str) -> TurnWrites:
        def store(connection: apsw.Connection) -> Sequence[QueuedJob]:
            stored.append(name)
            return ()

        def ended(
            turn: TurnRecord, reason: str, text: str
        ) -> Callable[[apsw.Connection], Sequence[QueuedJob]]:
            return lambda connection: stored.append(f"end {text}") or ()

        return TurnWrites(store, ended)

    async with hosting(
        [ScriptedReply("Too late for more.", fault=STALLED), ScriptedReply("Then this.")], tmp_path
    ) as (server, many):
        id_ = await many.new_session()
        events: list[Event] = []
        first = asyncio.create_task(many.submit(id_, "a", emit=events.append, writes=writes("a")))
        await asyncio.to_thread(server.wait_for_stall)
        assert await many.submit(id_, "b", emit=ignore, busy="steer", writes=writes("b")) is None
        server.release()
        assert text_of(await first) == "Then this."
        assert stored == ["a", "b", "end Then this."]
        assert [type(event).__name__ for event in events].count("Steered") == 1


async def test_cancel_ends_the_turn_and_drops_what_it_had_not_read(tmp_path: Path) -> None:
    async with hosting([ScriptedReply("never", fault=STALLED), ScriptedReply("Fresh.")], tmp_path) as (
        server,
        many,
    ):
        id_ = await many.new_session()
        assert not many.cancel(id_)
        turn = asyncio.create_task(many.submit(id_, "a", emit=ignore))
        await asyncio.to_thread(server.wait_for_stall)
        await many.submit(id_, "b", emit=ignore, busy="steer")
        assert many.cancel(id_)
        end = await turn
        assert end is not None and end.reason == "cancelled" and not many.is_running(id_)
        assert text_of(await many.submit(id_, "c", emit=ignore)) == "Fresh."
        log = (await many.open_session(id_)).log
        assert [row.text for row in log.messages if row.role == "user"] == ["a", "c"]


async def test_a_queued_text_survives_the_end_of_the_program_but_no_cancel(tmp_path: Path) -> None:
    stalled = [ScriptedReply("never", fault=STALLED)] * 2
    async with hosting(stalled, tmp_path) as (server, many):
        id_ = await many.new_session()

        async def begin(text: str, number: int) -> asyncio.Task[TurnEnd | None]:
            turn = asyncio.create_task(many.submit(id_, text, emit=ignore))
            await asyncio.to_thread(server.wait_for_stall, number)
            session = many.find_open(id_)
            assert session is not None
            session.steer(f"after {text}")
            return turn

        turn = await begin("a", 1)
        many.cancel(id_)
        await turn
        turn = await begin("c", 2)
        await many.aclose()
        await turn
        rows = await many.services.database.append(lambda db: list_accepted(db, id_))  # after all writes
        assert [row.message.text for row in rows] == ["after c"]


async def test_an_open_session_reads_what_an_ended_program_accepted(tmp_path: Path) -> None:
    async with hosting([ScriptedReply("One."), ScriptedReply("Both.")], tmp_path) as (server, many):
        id_ = await many.new_session()
        await many.submit(id_, "a", emit=ignore)
        async with hosted(server, tmp_path) as others:
            (await others.open_session(id_)).steer("b")
            await others.release(id_)
            assert others.open_count == 0
            end_owner = "UPDATE accepted_messages SET owner = replace(owner, ?, ' 999999999 ')"
            await others.services.database.append(lambda db: db.execute(end_owner, (f" {os.getpid()} ",)))
        await many.submit(id_, "c", emit=ignore)
        log = (await many.open_session(id_)).log
        assert [row.text for row in log.messages if row.role == "user"] == ["a", "b", "c"]


async def test_cancelling_the_caller_cancels_the_turn_durably(tmp_path: Path) -> None:
    async with hosting([ScriptedReply("never", fault=STALLED), ScriptedReply("Fresh.")], tmp_path) as (
        server,
        many,
    ):
        id_ = await many.new_session()
        turn = asyncio.create_task(many.submit(id_, "a", emit=ignore))
        await asyncio.to_thread(server.wait_for_stall)
        await cancel_task(turn)
        with pytest.raises(NotFound):  # its end is stored: there is nothing to resume
            await many.submit(id_, None, emit=ignore)
        assert text_of(await many.submit(id_, "b", emit=ignore)) == "Fresh."


async def test_an_idle_conversation_keeps_nothing_in_memory_and_goes_on(tmp_path: Path) -> None:
    server = PracticeServer(script=[ScriptedReply("Noted."), ScriptedReply("Again.")])

    def kept(id_: str) -> list[object]:
        """What is still there of the conversation, among all objects."""
        return [
            one
            for one in gc.get_objects()
            if (isinstance(one, Session) and one.id == id_)
            or (isinstance(one, Message) and "zyzzogeton" in one.text)
        ]

    with server:
        gc.freeze()  # what is there already need not be looked through
        async with hosted(server, tmp_path, idle_after_s=0.0) as many:
            id_ = await many.new_session(profile="ann")
            learning = weakref.ref(many.services.learning.service_of("ann"))
            gc.disable()  # nothing may wait for the collector: it comes by rarely
            try:
                await many.submit(id_, "remember the zyzzogeton", emit=ignore)
                assert learning() is not None
                await until(lambda: many.open_count == 0 and learning() is None)
                await until(lambda: not kept(id_))  # what was put off to the turn's end may still hold it
            finally:
                gc.enable()
            assert text_of(await many.submit(id_, "go on", emit=ignore)) == "Again."
        first, second = (json.loads(request.body)["messages"] for request in server.requests)
        assert second[: len(first)] == first  # the same bytes went out before the new message


async def test_the_one_longest_at_rest_makes_room(tmp_path: Path) -> None:
    async with hosting(None, tmp_path, max_open=2, max_turns=2) as (_, many):
        ids = [await many.new_session() for _ in range(2)]
        await many.open_session(ids[0])
        third = await many.new_session()
        await many.open_session(third)
        assert many.open_count == 2
        await many.open_session(ids[1])
        assert many.open_count == 2


@pytest.mark.slow
async def test_one_that_made_room_leaves_no_timer_behind(tmp_path: Path) -> None:
    """Its timer would close the conversation under a turn that has begun since."""
    async with hosting(
        [ScriptedReply("Slow.", fault=STALLED)], tmp_path, idle_after_s=0.2, max_open=1, max_turns=1
    ) as (server, many):
        first = await many.new_session()
        await many.open_session(await many.new_session())  # the first one makes room, its timer still to come
        turn = asyncio.create_task(many.submit(first, "a", emit=ignore))
        await asyncio.to_thread(server.wait_for_stall)
        await asyncio.sleep(0.25)
        assert many.is_running(first)
        server.release()
        assert text_of(await turn) == "Slow."


async def test_each_person_has_a_memory_of_their_own(tmp_path: Path) -> None:
    """Neither the prompt, nor the memory tool, nor the search through conversations crosses over."""
    script = [
        calls(("memory", '{"action": "add", "target": "user", "content": "Anna likes kumquats"}')),
        ScriptedReply("Saved."),
        calls(("session_search", '{"query": "kumquats"}')),
        ScriptedReply("Nothing."),
        calls(("session_search", '{"query": "kumquats"}')),
        ScriptedReply("Found."),
    ]
    async with hosting(script, tmp_path, idle_after_s=0.0) as (_, many):
        hers = await many.new_session(profile="anna")
        await many.submit(hers, "I am Anna and I like kumquats", emit=ignore)
        await until(lambda: many.open_count == 0)  # whose it is, is stored with the session
        database = many.services.database

        async def prompt(profile: str) -> str:
            id_ = await many.new_session(profile=profile)
            return (await database.read(lambda db: sessions.read_prefix(db, id_)))[0]

        assert "kumquats" in await prompt("anna")
        assert "kumquats" not in await prompt("ben") and "kumquats" not in await prompt("")
        his, again = await many.new_session(profile="ben"), await many.new_session(profile="anna")
        await many.submit(his, "search", emit=ignore)
        await many.submit(again, "search", emit=ignore)
        results = [
            next(row.text for row in (await many.open_session(id_)).log.messages if row.role == "tool")
            for id_ in (his, again)
        ]
        assert "Anna" not in results[0] and hers not in results[0] and hers in results[1]
        own = await many.new_session()
        mine = await many.services.learning.owner_service.submit(
            MemoryRequest("add", "user", "The owner rows boats"), Origin("user", session_id=own)
        )
        assert mine.ok, mine.text
        assert "rows" not in await prompt("anna") and "rows" in await prompt("")


async def test_a_chosen_model_stays_with_the_conversation(tmp_path: Path) -> None:
    """Over the end of the process, into what follows in the conversation, and back to the configured one."""
    server = PracticeServer(responder=lambda ask: ScriptedReply("Here."))
    with server:
        async with hosted(server, tmp_path) as many:
            id_, other = await many.new_session(), await many.new_session()
            async with many.using(id_) as session:
                await many.switch_model(session, "practice-large")
            answering = [many.services.models.provider_of(session_id).info for session_id in (id_, other)]
            assert [info.model for info in answering] == ["practice-large", "practice"]
            await many.submit(id_, "a", emit=ignore)
            await many.submit(other, "b", emit=ignore)
        async with hosted(server, tmp_path) as many:
            await many.submit(id_, "c", emit=ignore)
            following = await many.new_session(leaving=id_)
            await many.submit(following, "d", emit=ignore)
        async with hosted(server, tmp_path) as many:
            await many.submit(following, "e", emit=ignore)
            async with many.using(following) as session:
                assert session.log.session.model_chosen
                await many.switch_model(session, "")
                assert not session.log.session.model_chosen
            await many.submit(following, "f", emit=ignore)
    asked = [json.loads(request.body)["model"] for request in server.requests]
    assert [name == "practice-large" for name in asked] == [True, False, True, True, True, False]


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="only Linux lists connections there")
async def test_connections_to_chosen_models_are_closed_when_nobody_uses_them(tmp_path: Path) -> None:
    server = PracticeServer(responder=lambda ask: ScriptedReply("Here."))
    with server:
        async with hosted(server, tmp_path) as many:
            id_ = await many.new_session()
            for number in range(9):
                async with many.using(id_) as session:
                    await many.switch_model(session, f"practice-{number}")
                await many.submit(id_, "hello", emit=ignore)
            await until(lambda: 0 < connections_to(server) <= 5)


def connections_to(server: PracticeServer) -> int:
    """Count this process's open connections to a server."""
    port, rows = urlsplit(server.url).port, Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    there = [row.split()[2:4] for row in rows]
    return sum(text.endswith(f":{port:04X}") and state == "01" for text, state in there)


async def test_closing_gives_a_turn_time_to_end_and_takes_no_more(tmp_path: Path) -> None:
    async with hosting([ScriptedReply("In time.", fault=STALLED)], tmp_path) as (server, many):
        id_ = await many.new_session()
        turn = asyncio.create_task(many.submit(id_, "a", emit=ignore))
        await asyncio.to_thread(server.wait_for_stall)
        waits = asyncio.create_task(many.submit(id_, "b", emit=ignore))
        await asyncio.sleep(0)
        closing = asyncio.create_task(many.aclose(drain_s=20))
        await asyncio.sleep(0)
        server.release()
        await closing
        assert text_of(await turn) == "In time."
        with pytest.raises(WhetError, match="ending"):
            await waits
        with pytest.raises(WhetError, match="ending"):
            await many.submit(id_, "c", emit=ignore)


@pytest.mark.slow
async def test_sessions_that_ran_commands_leave_few_folders_and_descriptors(tmp_path, monkeypatch):
    """Each had a folder and a descriptor until the program ended, so a server ran out of them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    call = calls(("terminal", json.dumps({"command": "true"})))
    script = [reply for _ in range(24) for reply in (call, ScriptedReply("done"))]
    server = PracticeServer(script=script)
    with server:
        counts: list[int] = []
        async with hosted(server, tmp_path, max_open=1, max_turns=1, sandbox="auto") as many:
            if not many.services.confinement.get().command_status().holds:
                pytest.skip("no sandbox works here")
            for _ in range(24):
                session_id = await many.new_session()
                await many.submit(session_id, "run it", emit=ignore)
                counts.append(len(os.listdir("/proc/self/fd")))
            assert len([*tmp_path.glob("whet-jail-*")]) in range(1, 20)
            assert counts[-1] - counts[18] < 3
        assert [*tmp_path.glob("whet-jail-*")] == []
