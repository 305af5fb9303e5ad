"""The demo's measurements: sums from the database, properties of the recorded requests.

Nothing here is taken from the demo's own output.
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
from whet.cli.main import run_on_loop
from whet.cli.stored import open_database
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import Unavailable
from whet.contract.protocols import NobodyPresent
from whet.contract.texts import from_json
from whet.store import counts, sessions
from whet_lab.demo.world import DemoWorld, SeenRequest

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
    """The time that the program itself spends on one model call with its tool call."""

    model_calls: int
    cpu_ms_per_call: float
    wall_ms_per_call: float


class Prefixes(msgspec.Struct, frozen=True):
    """The number of pairs of consecutive requests, and of pairs whose second begins with the whole first."""

    pairs: int
    held: int


def read_sums(world: DemoWorld) -> StoredSums:
    """Read the sums from the database."""
    with open_database(world.home) as database:
        total = database.read_now(sessions.read_stats)
        outcomes = database.read_now(counts.count_calls)
        steps = database.read_now(counts.count_steps)
        unfinished = database.read_now(counts.count_unfinished_calls)
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


def read_messages(request: SeenRequest) -> list[dict[str, Any]]:
    """Return the messages of a Chat Completions request."""
    return from_json(request.body, dict[str, Any])["messages"]


def count_prefixes(requests: Sequence[SeenRequest]) -> Prefixes:
    """Compare each request with the next one of its session, byte by byte.

    The next body must begin with this one without its closing brackets. The requests are in order, one
    session after the other; a request without an answer in it begins a session.
    """
    pairs = [
        (earlier.body, later.body)
        for earlier, later in itertools.pairwise(requests)
        if any(message["role"] == "assistant" for message in read_messages(later))
    ]
    matches = sum(later.startswith(re.sub(r"[\]}]+$", "", earlier)) for earlier, later in pairs)
    return Prefixes(len(pairs), matches)


def measure_overhead(world: DemoWorld) -> Overhead:
    """Run 20 steps with a real tool each, stored durably, and measure this process's own CPU time.

    The practice server is another process and nothing is drawn. One short turn runs first, so that imports
    and the first connection do not count. The turns have a home of their own.
    """
    return run_on_loop(_run_overhead_turns(world))


async def _run_overhead_turns(world: DemoWorld) -> Overhead:
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
