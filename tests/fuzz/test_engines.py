"""Whatever a transcript holds and whatever an engine makes of it, the request is one that servers accept.

The real path: host, lane, engine, `read_back`, the recorded compaction, repair, codec. Judges are the
practice server's rules for the three wire formats. Four engines: the built-in one with a model that answers
anything, one that gives back garbage of every kind, one that cuts blindly, and one that only watches.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fuzz.test_wire import LANES, OPTIONS
from tests.fuzz.transcripts import TEXTS, random_transcript
from tests.providers import shapes
from tests.support import FixedClock
from whet.context.compressor import Compressor
from whet.context.engine_runner import Deadlines, EngineRunner, HostFacts
from whet.context.host import EngineHost
from whet.contract.context_engine import ChatRows, ContextEngine
from whet.contract.errors import Unavailable
from whet.contract.events import Event
from whet.contract.messages import Message, Usage
from whet.contract.protocols import ModelInfo
from whet.plugins.hermes import await_real_usage
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript
from whet_lab.practice.strict import VendorRefusal

pytestmark = pytest.mark.slow

INFO = ModelInfo("vendor", "m-1", 2_000, 500)
SERVERS = ("chat", "anthropic", "responses")


class Wild(ContextEngine):
    """Wants to compact always; gives back what `act` makes of the list, or of one that it changed."""

    def __init__(self, name: str, act: Callable[[ChatRows], Any]) -> None:
        self._name = name
        self._act = act

    @property
    def name(self) -> str:
        return self._name

    def update_from_response(self, usage: dict[str, Any]) -> None:
        del usage

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True

    def compress(self, messages: ChatRows, **given: Any) -> ChatRows:  # type: ignore[override]
        return self._act(messages)


class Watcher(Wild):
    """Chooses at random what one request shows, too."""

    def select_context(self, messages: ChatRows, **given: Any) -> Any:
        return self._act(messages)

    def prune_tool_results_only(self, messages: ChatRows, **given: Any) -> Any:
        return self._act(messages), 1


def garbage(rng: random.Random) -> Callable[[ChatRows], Any]:
    """Make what an engine could come to after any bug."""

    def value() -> Any:
        return rng.choice(
            (
                None,
                7,
                1.5,
                True,
                b"x",
                [],
                {},
                "",
                rng.choice(TEXTS),
                [{"type": "text", "text": "x"}],
                [1],
                {"a": []},
            )
        )

    def row(old: dict[str, Any]) -> Any:
        new = dict(old)
        for _ in range(rng.randrange(3)):
            key = rng.choice(("role", "content", "tool_calls", "tool_call_id", "name", "extra"))
            new[key] = value()
            if rng.random() < 0.3:
                new.pop(key)
        return rng.choice((new, new, new, old, value()))

    def act(rows: ChatRows) -> Any:
        kind = rng.randrange(8)
        if kind == 0:
            return value()
        if kind == 1:
            raise rng.choice(
                (ValueError("no"), KeyError("x"), SystemExit(3), RecursionError(), MemoryError())
            )
        if kind == 2:
            rng.shuffle(rows)
            return rows
        if kind == 3:
            for one in rows:
                one.clear() if rng.random() < 0.3 else one.update(role=value())
            return rows[: rng.randrange(len(rows) + 1)]
        if kind == 4:
            return [
                {"role": rng.choice(("user", "assistant", "system", "tool")), "content": rng.choice(TEXTS)}
            ]
        return [row(one) for one in rows if rng.random() < 0.8]

    return act


def cut(rng: random.Random) -> Callable[[ChatRows], Any]:
    """Cut anywhere, through pairs too, with a summary in any role."""

    def act(rows: ChatRows) -> Any:
        begin, end = sorted((rng.randrange(len(rows) + 1), rng.randrange(len(rows) + 1)))
        role = rng.choice(("user", "assistant", "system"))
        return [*rows[:begin], {"role": role, "content": "Sum."}, *rows[end:]]

    return act


def answers(rng: random.Random) -> Callable[..., str]:
    """Make a summarising model that says anything, or nothing."""

    def ask(messages: list[dict[str, Any]], *, max_tokens: int, timeout_s: float) -> str:
        if rng.random() < 0.2:
            raise rng.choice((TimeoutError("slow"), Unavailable("down"), ValueError("cut")))
        return rng.choice((*TEXTS, "## 2. Goal\nShip it.", "<think>hm</think>", "<html></html>"))

    return ask


def engines(rng: random.Random) -> list[ContextEngine]:
    return [
        Compressor(answers(rng), FixedClock()),
        Wild("garbage", garbage(rng)),
        Wild("cuts", cut(rng)),
        Watcher("watcher", rng.choice((garbage, cut))(rng)),
    ]


def check(view: Any, where: str) -> None:
    """Let the three servers judge a request."""
    for name in SERVERS:
        codec, server, _ = LANES[name]
        whole = shapes.cache(codec).body(view)
        try:
            server.check(msgspec.json.decode(whole), OPTIONS)
        except (VendorRefusal, msgspec.DecodeError, UnicodeError) as refusal:
            raise AssertionError(f"{where}, {name}: {refusal!r}\n{view}"[:6000]) from refusal


async def judge(database: StateDatabase, seed: int) -> int:
    """Run one transcript through every engine; gives how many requests were judged."""
    rng = random.Random(seed)
    rows = random_transcript(rng)
    count = 0
    for number, engine in enumerate(engines(rng)):
        log = await Transcript.create(database, NewSession(id=f"s{seed}-{number}"), FixedClock())
        spare = EngineRunner.wrap(Compressor(answers(rng), FixedClock()), Deadlines(), Compressor.on_recorded)
        host = EngineHost(
            log,
            EngineRunner.wrap(engine, Deadlines(), await_real_usage),
            HostFacts(lambda: INFO),
            made(spare),
        )
        events: list[Event] = []
        await host.begin()
        for end in sorted({rng.randrange(len(rows) + 1), len(rows)}):
            known = len(log.messages)
            grow(log, [*rows[len(rows) // 2 :], *rows[:end]] if known else rows[:end])
            for limit in (None, 900):
                view = await host.view(log.messages, events.append, overflow_limit_tokens=limit)
                check(view, f"seed {seed}, {engine.name}, {len(log.messages)} rows")
                count += 1
            host.observe(Usage(prompt_tokens=rng.choice((0, 10, 1_900, 5_000))))
        if await host.compact("", events.append) == "compacted":
            check(await host.view(log.messages, events.append), f"seed {seed}, {engine.name}, by hand")
        json.dumps(msgspec.to_builtins(events))
        await host.aclose()
        spare.lane.close()
    return count


def grow(log: Transcript, rows: list[Message]) -> None:
    """Add rows to the live list that no turn would have stored."""
    first = max(log.live.seqs, default=0) + 1
    log.live.seqs.extend(range(first, first + len(rows)))
    log.messages.extend(rows)


def made(spare: EngineRunner) -> Callable[[], Any]:
    async def make() -> EngineRunner:
        return spare

    return make


async def judged(folder: Path, seeds: range) -> int:
    logging.getLogger("whet.context").setLevel(
        logging.CRITICAL
    )  # thousands of stacks take longer than the rest
    database = StateDatabase.open(folder / "state.db", FixedClock())
    try:
        return sum([await judge(database, seed) for seed in seeds])
    finally:
        database.close()
        logging.getLogger("whet.context").setLevel(logging.NOTSET)


def test_a_strict_server_accepts_what_any_engine_makes_of_any_transcript(tmp_path: Path) -> None:
    """Failures 1, 2, 3, 4, 6."""
    assert asyncio.run(judged(tmp_path, range(15))) > 120


@pytest.mark.soak
@pytest.mark.parametrize("thousand", range(10))
def test_ten_thousand_transcripts_by_every_engine(tmp_path: Path, thousand: int) -> None:
    asyncio.run(judged(tmp_path, range(thousand * 1000 + 5_000_000, thousand * 1000 + 5_001_000)))
