"""What only shows after many requests: memory, start-up, the size of what is kept."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import pytest

from tests.confirm.process import Served
from whet_confirm import retention
from whet_confirm.decide import DecisionInput
from whet_confirm.open import ServicePaths, make_first_tokens, open_service
from whet_confirm.records import Caller
from whet_confirm.requests import RequestFilter
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.submit import Submission
from whet_confirm.timeline import Timeline

pytestmark = pytest.mark.slow

AGENT, ALICE = Caller("agent", "submit"), Caller("alice", "approve")


def rss_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


async def resolve(service: ConfirmService, count: int, *, leave: int = 0) -> None:
    """Submit `count` requests, 50 at a time, and deny all but the last `leave`."""

    async def one(number: int) -> None:
        request = await service.submit(
            AGENT, Submission(f"act{number % 5000}", "d", {"n": number}, timeout_s=3600)
        )
        assert request.request is not None
        if number < count - leave:
            await service.decide(DecisionInput(request.request.id, "deny"), ALICE)

    for begin in range(0, count, 50):
        await asyncio.gather(*(one(number) for number in range(begin, min(begin + 50, count))))


def grow(folder: Path, count: int, warm_up: int = 6_000) -> float:
    """Memory that `count` resolved requests cost, in MB, after a warm-up that fills caches."""
    service = open_service(
        ServicePaths(folder / "c.db", folder / "confirm"), policy=None, limits=CallerLimits(10**9, 10**9)
    )

    async def go() -> float:
        await resolve(service, warm_up)
        before = rss_mb()
        await resolve(service, count)
        return rss_mb() - before

    grown = asyncio.run(go())
    service.database.close()
    return grown


def test_memory_stays_flat_over_a_few_hundred(tmp_path):
    assert grow(tmp_path, 600, warm_up=900) < 3


@pytest.mark.soak
def test_memory_stays_flat_over_a_million_and_old_ones_can_be_taken_away(tmp_path):
    grown = grow(tmp_path, 1_000_000)
    print(f"{grown:.1f} MB more after a million requests")
    assert grown < 20
    service = open_service(
        ServicePaths(tmp_path / "c.db", tmp_path / "confirm"), policy=None, limits=CallerLimits(10**9, 10**9)
    )
    cut = service.database.read_now(lambda db: retention.plan_pruning(db, service.timeline.now_s()))
    assert cut.requests >= 1_000_000
    while service.database.write_now(lambda db: retention.prune_batch(db, cut)):
        pass
    assert service.list(RequestFilter(status="denied", limit=5)) == []
    service.database.close()


@pytest.mark.soak
def test_ready_within_a_second_with_a_hundred_thousand_requests(tmp_path):
    home = tmp_path / "home"
    where = ServicePaths(home / "confirmations.db", home / "confirm")
    home.mkdir()
    service = open_service(where, policy=None, limits=CallerLimits(10**9, 10**9))
    service.timeline = Timeline()
    make_first_tokens(service, where)
    asyncio.run(resolve(service, 100_000, leave=10_000))
    service.database.close()
    with Served(tmp_path) as served:
        served.kill()
    began = time.monotonic()
    with Served(tmp_path) as served:
        took_s = time.monotonic() - began
        assert served.call("GET", "/health")[1]["pending_count"] == 10_000
    print(f"ready after {took_s:.2f} s, the start of Python included")
    assert took_s < 2.0
