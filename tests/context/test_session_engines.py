"""Which engines a session has, what they are told of models and moves, and how each is let go."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.context.engines import RecordingEngine
from tests.support import FixedClock
from whet.context.engine_runner import Deadlines, EngineRunner, HostFacts
from whet.context.engines import SessionEngines
from whet.context.host import EngineHost
from whet.contract.protocols import ModelInfo
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

SMALL, LARGE = ModelInfo("p", "small", 8_000, 1_000), ModelInfo("p", "large", 64_000, 1_000)
ROW = {"role": "user", "content": "hello"}


class Bench:
    """A session's engines; `info` is the model that answers."""

    def __init__(self, log: Transcript, trace: list[str], *, has_spare: bool = True) -> None:
        self.log = log
        self.trace = trace
        self.info = SMALL
        self.made = 0
        self.seat = EngineRunner.wrap(RecordingEngine(trace, "first "), Deadlines())
        spare = self.make_spare if has_spare else None
        self.engines = SessionEngines(log, self.seat, HostFacts(lambda: self.info, "/home", "cli"), spare)

    async def make_spare(self) -> EngineRunner | None:
        self.made += 1
        return EngineRunner.wrap(RecordingEngine(self.trace, "spare "), Deadlines())

    def told(self) -> list[str]:
        """What was called since the last time, without what was given."""
        lines = [" ".join(line.split()[:2]) for line in self.trace]
        self.trace.clear()
        return lines


@asynccontextmanager
async def on_bench(tmp_path: Path, kind: str = "chat", *, has_spare: bool = True) -> AsyncIterator[Bench]:
    database = StateDatabase.open(tmp_path / "state.db", FixedClock())
    new = NewSession(id="s", conversation_id="c", kind=kind)  # type: ignore[arg-type]
    bench = Bench(await Transcript.create(database, new, FixedClock()), [], has_spare=has_spare)
    try:
        yield bench
    finally:
        for seat in bench.engines.active:
            seat.lane.close()
        database.close()


async def test_another_model_voids_the_limit_that_a_server_named(tmp_path: Path) -> None:
    async with on_bench(tmp_path) as b:
        assert not b.engines.has_other_model() and b.engines.window == 8_000
        for limit in (0, 8_000, 9_000):
            b.engines.limit_window(limit)
            assert b.engines.window == 8_000 and b.seat.notices == []
        b.engines.limit_window(7_999)
        assert b.engines.window == 7_999 and "7,999 tokens, less than was set" in b.seat.notices[0]
        assert not b.engines.has_other_model() and b.engines.window == 7_999
        b.info = LARGE
        assert b.engines.has_other_model() and b.engines.window == 64_000
        assert not b.engines.has_other_model()
        await b.engines.follow_model()
        await b.engines.follow_model()
        assert b.told() == ["first update_model"] and b.seat.engine.context_length == 64_000


async def test_a_model_chosen_before_the_first_request_is_another_one(tmp_path: Path) -> None:
    async with on_bench(tmp_path) as b:
        assert await b.engines.begin(None, None)
        assert b.told() == ["first update_model", "first on_session_start"]
        b.info = LARGE
        assert b.engines.has_other_model()


async def test_the_built_in_engine_is_made_once_and_told_of_the_session(tmp_path: Path) -> None:
    async with on_bench(tmp_path) as b:
        assert b.engines.active == [b.seat]
        spare = await b.engines.use_spare()
        assert spare is not None and b.engines.active == [b.seat, spare]
        assert b.told() == ["spare update_model", "spare on_session_start"]
        assert await b.engines.use_spare() is spare and b.made == 1 and b.told() == []
        assert b.seat.notices == ["context engine recording failed; recording stands in"]


async def test_without_another_engine_nothing_stands_in(tmp_path: Path) -> None:
    async with on_bench(tmp_path, has_spare=False) as b:
        assert await b.engines.use_spare() is None and b.seat.notices == []


async def test_an_engine_astray_is_told_of_the_session_once(tmp_path: Path) -> None:
    async with on_bench(tmp_path) as b:
        b.engines.mark_astray(b.seat)
        b.engines.mark_astray(b.seat)
        await b.engines.resynchronise()
        assert b.told() == ["first on_session_start"]
        await b.engines.resynchronise()
        assert b.told() == []


@pytest.mark.parametrize(
    ("kind", "origin", "is_shut"),
    [("chat", "clone", True), ("chat", "fresh", True), ("child", "clone", False), ("child", "fresh", True)],
)
async def test_what_an_engine_holds_open_is_closed_with_its_session_unless_it_may_be_shared(
    tmp_path: Path, kind: str, origin: str, is_shut: bool
) -> None:
    async with on_bench(tmp_path, kind) as b:
        b.seat.origin = origin  # type: ignore[assignment]
        b.seat.live = lambda: [ROW]
        await b.engines.aclose(lambda: [ROW])
        assert b.trace[0] == "first on_session_end s u"
        assert b.told()[1:] == ["first shutdown"] * is_shut
        assert b.seat.live() == [] and b.seat.lane.stuck is False


async def test_an_engine_that_is_handed_over_is_not_ended_its_stand_in_is(tmp_path: Path) -> None:
    async with on_bench(tmp_path) as b:
        await b.engines.use_spare()
        b.trace.clear()
        await b.engines.hand_over(lambda: [ROW])
        assert b.told() == ["spare on_session_end", "spare shutdown"]


async def test_a_session_that_was_left_is_kept_alive_by_nothing_of_its_engines(tmp_path: Path) -> None:
    async with on_bench(tmp_path) as b:

        class Owner:
            def info(self) -> ModelInfo:
                return LARGE

        owner = Owner()
        left = weakref.ref(owner)
        b.engines.facts = HostFacts(owner.info)
        await b.engines.aclose(list)
        del owner
        assert left() is None and b.engines.window == 64_000


@pytest.mark.parametrize(("kind", "conversation"), [("chat", "c"), ("child", "s")])
async def test_an_engine_runs_in_its_sessions_scope(tmp_path: Path, kind: str, conversation: str) -> None:
    entered: list[tuple[str, ...]] = []

    @contextmanager
    def scope(*ids: str) -> Generator[None]:
        entered.append(ids)
        yield

    async with on_bench(tmp_path, kind) as b:
        b.engines.facts = HostFacts(lambda: SMALL, scope=scope)
        await b.engines.begin(None, None)
        await b.engines.use_spare()
        for seat in b.engines.active:
            entered.clear()
            await seat.run("a hook", list)
            assert entered == [("s", conversation)]


async def test_a_host_ends_its_session_once(tmp_path: Path) -> None:
    database, trace = StateDatabase.open(tmp_path / "state.db", FixedClock()), list[str]()
    log = await Transcript.create(database, NewSession(id="s"), FixedClock())
    seat = EngineRunner.wrap(RecordingEngine(trace), Deadlines())
    host = EngineHost(log, seat, HostFacts(lambda: SMALL))
    await host.begin()
    assert not host.is_closed and seat.live() == []
    for _ in range(2):
        await host.aclose()
    assert host.is_closed and [line.split()[0] for line in trace[2:]] == ["on_session_end", "shutdown"]
    given = EngineHost(log, EngineRunner.wrap(RecordingEngine(trace), Deadlines()), HostFacts(lambda: SMALL))
    await given.begin()
    await given.hand_over()
    begun = len(trace)
    await given.aclose()
    assert given.is_closed and trace[begun:] == [], "it is another session's by now"
    database.close()
