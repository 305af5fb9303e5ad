"""The confirmation service on a team's database: two and more processes, one audit log, no decision twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from tests.confirm.people import AGENT
from tests.confirm.process import SERVE, Served
from tests.confirm.running import ManualClock
from tests.confirm.test_races import race
from tests.support import wait_until
from whet.config.paths import Home
from whet.contract.errors import ConfigError, StoreCorrupt, StoreError
from whet.postgres.connection import connect
from whet_confirm import audit, tokens
from whet_confirm.decide import DecisionInput
from whet_confirm.ledger import Tx
from whet_confirm.open import ServicePaths, open_service, service_paths
from whet_confirm.records import Caller, Verdict
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.submit import Submission
from whet_confirm.team import init

VERDICTS: list[Verdict] = ["approve", "deny"]
PEOPLE = [Caller(name, "approve") for name in ("ann", "bob", "carl")]


@pytest.fixture
def where(url: str, tmp_path: Path) -> ServicePaths:
    init(url)
    return service_paths(Home(tmp_path / "home"), url)


@contextmanager
def opened(where: ServicePaths, clock: ManualClock | None = None) -> Iterator[ConfirmService]:
    service = open_service(where, policy=None, limits=CallerLimits(10**9, 10**9))
    try:
        if clock is not None:
            service.timeline = clock.timeline(service.timeline.now_s() + 1)
        yield service
    finally:
        service.database.close()


def verified(service: ConfirmService, where: ServicePaths) -> tuple[str, ...]:
    keys = audit.read_keys(where.public_key) | {service.key.id: service.key}
    return service.database.read_now(lambda db: audit.verify(db, keys)).problems


@pytest.mark.slow
def test_at_the_deadline_one_of_them_ends_it(where):
    clock = ManualClock()
    with opened(where, clock) as service:
        counts = asyncio.run(race(service, clock, random.Random(1)))
        assert counts.total() == 50 and verified(service, where) == ()


@pytest.mark.slow
def test_two_services_decide_and_use_up_each_request_once(where):
    async def go(service: ConfirmService, two: ConfirmService) -> None:
        for number in range(10):
            submission_result = await (service, two)[number % 2].submit(
                AGENT, Submission(f"act{number}", "d", timeout_s=60)
            )
            assert submission_result.request is not None
            id_, digest = submission_result.request.id, submission_result.request.digest
            decided = await asyncio.gather(
                *(
                    side.decide(DecisionInput(id_, verdict), who)
                    for who in PEOPLE
                    for side in (service, two)
                    for verdict in ("approve", "deny")
                )
            )
            assert [outcome.kind for outcome in decided].count("decided") == 1
            used = await asyncio.gather(
                *(side.consume(id_, AGENT, digest, f"{at}") for at, side in enumerate((service, two) * 3))
            )
            stored = two.get(id_)
            assert stored is not None
            assert [outcome.kind for outcome in used].count("decided") == (stored.status == "approved")

    with opened(where) as service, opened(where) as two:
        asyncio.run(go(service, two))
        assert verified(service, where) == ()
        with closing(connect(where.url)) as admin:
            notes = admin.execute(b"SELECT count(*) FROM whet_confirm_noted.requests").fetchone()
        assert notes == (0,)


@pytest.mark.slow
def test_what_somebody_else_changes_is_found_and_never_sealed(where):
    with opened(where) as service, closing(connect(where.url)) as admin:
        asyncio.run(service.submit(AGENT, Submission("act", "d")))
        admin.execute(b"UPDATE whet_confirm.requests SET status = 'approved', resolved_by = 'mallory'")
        assert verified(service, where) != ()
        asyncio.run(service.submit(AGENT, Submission("other", "d")))
        assert verified(service, where) != ()
        admin.execute(
            b"INSERT INTO whet_confirm.tokens (id, hash, name, role, created_at)"
            b" VALUES ('x', 'x', 'mallory', 'approve', 0)"
        )
        with pytest.raises(StoreCorrupt, match="tokens was changed"):
            asyncio.run(service.submit(AGENT, Submission("third", "d")))


def test_a_change_that_fails_midway_is_undone_and_the_next_one_is_sealed(where):
    def broken(tx: Tx) -> None:
        tokens.create(tx, "lost", "submit", by="test")
        raise ValueError("a bug")

    with opened(where) as service:
        with pytest.raises(ValueError, match="a bug"):
            asyncio.run(service.change(broken))
        asyncio.run(service.submit(AGENT, Submission("act", "d")))
        assert verified(service, where) == ()
        rows = service.database.read_now(lambda db: db.execute("SELECT name FROM tokens").fetchall())
        assert ("lost",) not in rows


@pytest.mark.slow
def test_a_connection_that_is_cut_loses_and_doubles_nothing(where, cluster):
    with opened(where) as service:
        submission_result = asyncio.run(service.submit(AGENT, Submission("act", "d")))
        assert submission_result.request is not None
        cluster.cut(where.url)
        outcome = asyncio.run(
            service.decide(DecisionInput(submission_result.request.id, "approve"), PEOPLE[0])
        )
        assert outcome.kind == "decided"
        kinds = [event.kind for event in service.log.history(request_id=submission_result.request.id)]
        assert kinds == ["submitted", "vote", "decided"]
        assert verified(service, where) == ()


@pytest.mark.slow
def test_tables_that_are_not_there_and_a_key_that_is_another(url, where, cluster, tmp_path):
    with pytest.raises(StoreError, match="confirmation service's tables") as caught:
        open_service(
            service_paths(Home(tmp_path / "home"), cluster.database()), policy=None, limits=CallerLimits()
        )
    assert caught.value.hint == "set it up: whet team init URL"
    with opened(where):
        pass
    with pytest.raises(ConfigError), opened(service_paths(Home(tmp_path / "elsewhere"), url)):
        pass


def call(client: httpx2.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    return answer.json() | {"status_code": answer.status_code}


@pytest.mark.slow
def test_two_processes_hear_of_each_other(where, tmp_path):
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(Served(tmp_path, "--db-path", where.url, "--rate-limit", "1000"))
            for _ in range(2)
        )
        agent, owner = one.client("submit"), two.client("approve")
        for number in range(10):
            fields = call(agent, "/confirm", {"action": f"act{number}", "description": "d"})
            assert call(owner, f"/confirm/{fields['id']}/approve", {})["status"] == "approved"
            waited = agent.get(f"/confirm/{fields['id']}?wait=20").json()
            assert waited["status"] == "approved"
        done = subprocess.run(
            [*SERVE[:-1], "audit", "verify", "--db-path", where.url],
            env={"WHET_HOME": str(one.home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stdout + done.stderr


async def races(services: list[ConfirmService], count: int, dice: random.Random) -> Counter[str]:
    """Have both services decide and use up requests, 20 at a time."""
    counts: Counter[str] = Counter()
    for begin in range(0, count, 20):
        results = [
            await dice.choice(services).submit(AGENT, Submission(f"act{number}", "d", timeout_s=600))
            for number in range(begin, min(begin + 20, count))
        ]
        asked = [field.request for field in results if field.request is not None]
        ballots: list[tuple[str, Verdict, Caller]] = [
            (request.id, verdict, who)
            for request in asked
            for who in PEOPLE
            for verdict in (dice.choice(VERDICTS),)
        ]
        dice.shuffle(ballots)
        outcomes = await asyncio.gather(
            *(dice.choice(services).decide(DecisionInput(id_, v), who) for id_, v, who in ballots)
        )
        assert [outcome.kind for outcome in outcomes].count("decided") == len(asked)
        used = await asyncio.gather(
            *(
                dice.choice(services).consume(request.id, AGENT, request.digest, f"k{at}")
                for request in asked
                for at in range(3)
            )
        )
        statuses = [stored.status for request in asked if (stored := services[0].get(request.id)) is not None]
        assert [outcome.kind for outcome in used].count("decided") == statuses.count("approved")
        counts.update(statuses)
    return counts


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_races_between_two_services(where):
    with opened(where) as service, opened(where) as two:
        counts = asyncio.run(races([service, two], 10_000, random.Random(3)))
        assert counts.total() == 10_000 and set(counts) == {"approved", "denied"}
        assert verified(service, where) == ()
        print(dict(counts))


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(3, marks=pytest.mark.slow),
        pytest.param(100, marks=(pytest.mark.soak, pytest.mark.timeout(3600))),
    ],
)
def test_kills_lose_and_double_no_decision(where: ServicePaths, tmp_path: Path, count: int) -> None:
    """One of two processes is killed in the middle of decisions, over and over; the other goes on."""
    dice = random.Random(7)
    with ExitStack() as stack:

        def start() -> Served:
            return stack.enter_context(Served(tmp_path, "--db-path", where.url, "--rate-limit", "1000000"))

        there = [start(), start()]
        asked: list[str] = []
        for number in range(count):
            fields = [
                there[1].call(
                    "POST", "/confirm", {"action": f"act{number}", "description": "d"}, role="submit"
                )
                for _ in range(5)
            ]
            asked += [body["id"] for _, body in fields]
            victim = there[0]
            client = victim.client("approve")
            told: list[bool] = []

            def decide(client: httpx2.Client, told: list[bool], ids: list[str]) -> None:
                for id_ in ids:
                    try:
                        told.append(client.post(f"/confirm/{id_}/approve", json={}).status_code < 300)
                    except httpx2.TransportError:
                        return

            deciding = Thread(target=decide, args=(client, told, asked[-5:]))
            deciding.start()
            stop = dice.randrange(4)
            wait_until(lambda told=told, stop=stop: len(told) >= stop, 60)
            victim.kill()
            deciding.join()
            for id_ in asked[-5:]:
                assert there[1].call("POST", f"/confirm/{id_}/approve", {}, role="approve")[0] in (
                    200,
                    202,
                    409,
                )
            there = [there[1], start()]
        with opened(where) as service:
            for id_ in asked:
                kinds = [event.kind for event in service.log.history(request_id=id_)]
                assert kinds.count("decided") == 1, (id_, kinds)
            assert verified(service, where) == ()
