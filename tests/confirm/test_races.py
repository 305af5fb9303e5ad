"""Approvals, denials, cancels and the sweeper on one request at its deadline: one of them ends it, once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.running import ManualClock
from whet_confirm import decide
from whet_confirm.open import ServicePaths, open_service
from whet_confirm.records import Caller, ConfirmRequest, RequestOutcome
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.submit import Submission

AGENT = Caller("agent", "submit")
PEOPLE = [Caller(name, "approve") for name in ("ann", "bob", "carl")]
AT_ONCE = 50


async def race(service: ConfirmService, clock: ManualClock, dice: random.Random) -> Counter[str]:
    """Let everybody at a few requests while their time runs out; gives how they ended."""
    requests: list[ConfirmRequest] = []
    for number in range(AT_ONCE):
        submitted = await service.submit(AGENT, Submission(f"act{number}", "d", timeout_s=30))
        assert submitted.request is not None
        requests.append(submitted.request)
    deadline_s = requests[0].expires_at
    clock.pass_by(deadline_s - service.timeline.now_s() - 0.003)
    outcomes: dict[str, list[RequestOutcome]] = {request.id: [] for request in requests}

    async def act(request: ConfirmRequest, who: Caller, verdict: Any) -> None:
        for _ in range(dice.randrange(12)):
            await asyncio.sleep(0)
        clock.pass_by(0.001 * (dice.random() < 0.04))
        if verdict == "cancel":
            outcomes[request.id].append(await service.cancel(request.id, AGENT))
        else:
            outcomes[request.id].append(await service.decide(decide.DecisionInput(request.id, verdict), who))

    async def sweep() -> None:
        for _ in range(10):
            await service.change(lambda tx: decide.expire(tx, 10))

    acts = [
        act(request, who, dice.choice(["approve", "deny", "approve", "deny", "cancel"]))
        for request in requests
        for who in PEOPLE
    ]
    dice.shuffle(acts)
    await asyncio.gather(*acts[: len(acts) // 2], sweep(), *acts[len(acts) // 2 :])
    clock.pass_by(1)
    while await service.change(lambda tx: decide.expire(tx, 100)):
        pass
    return Counter(ended(service, request, outcomes[request.id], deadline_s) for request in requests)


def ended(
    service: ConfirmService, request: ConfirmRequest, outcomes: list[RequestOutcome], deadline_s: float
) -> str:
    """Check one request: who was told that they ended it, the record, and the log agree."""
    record = service.get(request.id)
    assert record is not None and record.resolved_at is not None
    winners = [outcome for outcome in outcomes if outcome.kind == "decided"]
    kinds = [event.kind for event in service.log.history(request_id=request.id)]
    ends = [kind for kind in kinds if kind in ("decided", "expired", "cancelled")]
    assert len(ends) == 1 and len(winners) == (record.status != "expired")
    if winners:
        assert winners[0].request is not None
        winner = winners[0].request
        assert (winner.status, winner.resolved_at) == (record.status, record.resolved_at)
        assert record.resolved_at < deadline_s
    return record.status


def run(folder: Path, rounds: int, seed: int) -> None:
    service = open_service(
        ServicePaths(folder / "c.db", folder / "confirm"), policy=None, limits=CallerLimits(10**9, 10**9)
    )
    clock = ManualClock()
    service.timeline = clock.timeline(service.timeline.now_s() + 1)
    counts: Counter[str] = Counter()

    async def go() -> None:
        dice = random.Random(seed)
        for _ in range(rounds):
            counts.update(await race(service, clock, dice))

    asyncio.run(go())
    service.database.close()
    assert counts.total() == rounds * AT_ONCE
    assert set(counts) == {"approved", "denied", "cancelled", "expired"}, counts
    print(dict(counts))


@pytest.mark.slow
def test_at_the_deadline_one_of_them_ends_it(tmp_path):
    run(tmp_path, 4, 1)


@pytest.mark.soak
def test_ten_thousand_races_at_the_deadline(tmp_path):
    run(tmp_path, 200, 2)
