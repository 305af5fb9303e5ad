"""What the demo measures: sums from the database, properties of the requests that went out.

Nothing here is taken from what the demo showed. It knows neither stage nor story.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from whet.agent.loop import run_turn
from whet.app.build import App
from whet.cli.demo_world import DemoWorld, SeenRequest
from whet.cli.main import run_on_loop
from whet.cli.stored import opened
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import Unavailable
from whet.contract.protocols import NobodyPresent
from whet.contract.texts import from_json
from whet.store import counts, sessions

_OVERHEAD_STEPS = 20


class StoredSums(msgspec.Struct, frozen=True):
    """Sums over every session of the demo, as the database has them."""

    sessions: int
    turns: int
    steps: int
    calls_ok: int
    calls_failed: int
    calls_denied: int
    calls_interrupted: int
    calls_without_result: int
    prompt_tokens: int
    output_tokens: int
    cache_hit_ratio: float
    size_bytes: int


class Overhead(msgspec.Struct, frozen=True):
    """What the program itself spends on one model call and its tool call."""

    model_calls: int
    cpu_ms_per_call: float
    wall_ms_per_call: float


class Prefixes(msgspec.Struct, frozen=True):
    """Of how many pairs of neighbouring requests of a session the first is a byte prefix of the second."""

    pairs: int
    held: int


def stored(world: DemoWorld) -> StoredSums:
    """Read the sums."""
    with opened(world.home) as database:
        total = database.read_now(sessions.stats)
        outcomes = database.read_now(counts.calls_by_outcome)
        steps = database.read_now(counts.steps)
        unfinished = database.read_now(counts.unfinished_calls)
    special = {kind: outcomes.get(kind, 0) for kind in ("", "denied", "interrupted")}
    return StoredSums(
        sessions=total.sessions,
        turns=total.turns,
        steps=steps,
        calls_ok=special[""],
        calls_failed=sum(outcomes.values()) - sum(special.values()),
        calls_denied=special["denied"],
        calls_interrupted=special["interrupted"],
        calls_without_result=unfinished,
        prompt_tokens=total.usage.prompt_tokens,
        output_tokens=total.usage.output_tokens,
        cache_hit_ratio=round(total.usage.cache_hit_ratio, 4),
        size_bytes=total.size_bytes,
    )


def messages_of(request: SeenRequest) -> list[dict[str, Any]]:
    """Give the messages of a Chat Completions request."""
    return from_json(request.body, dict[str, Any])["messages"]


def prefixes(requests: Sequence[SeenRequest]) -> Prefixes:
    """Hold each request against the next one of its session, byte by byte.

    A body without its closing brackets has to be how the next one begins. The requests are in order, one
    session after the other; a request without an answer in it opens a session.
    """
    pairs = [
        (earlier.body, later.body)
        for earlier, later in itertools.pairwise(requests)
        if any(message["role"] == "assistant" for message in messages_of(later))
    ]
    held = sum(later.startswith(re.sub(r"[\]}]+$", "", earlier)) for earlier, later in pairs)
    return Prefixes(len(pairs), held)


def overhead(world: DemoWorld) -> Overhead:
    """Run 20 steps with a real tool each, stored durably, and count this process's own CPU time.

    The practice server is another process and nothing is drawn. One short turn comes before, so that
    imports and the first connection are not counted. It has a home of its own.
    """
    return run_on_loop(_overhead(world))


async def _overhead(world: DemoWorld) -> Overhead:
    flags = {"model.model": f"practice-steps-{_OVERHEAD_STEPS}"}
    settings = load(world.home, flags, environ={}).settings
    home = Home(world.folder / "home-for-measuring")
    async with aclosing(await App.start(home, settings, {}, NobodyPresent(), world.project)) as app:
        warm = await app.new_session()
        await run_turn(warm, warm.user_message("Read README.md"), lambda event: None)
        session = await app.new_session()
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        end = await run_turn(session, session.user_message("Read README.md"), lambda event: None)
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    if end.reason != "answered":
        raise Unavailable(f"the measuring run ended: {end.error or end.reason}", hint="run the demo again")
    return Overhead(end.steps, round(cpu_s / end.steps * 1000, 2), round(wall_s / end.steps * 1000, 2))
