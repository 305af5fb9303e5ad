"""Gateways of two platforms share a team's database with workers and servers; all of them are killed, over
and over, and nothing is lost, done twice or reordered anywhere."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gateway.kills.oracle import Tally
from tests.gateway.kills.platforms import PLATFORMS
from tests.gateway.kills.rounds import MOMENTS, Moment, Rounds
from tests.team.processes import LEASE_S
from tests.team.test_soak import rounds_of_kills

pytestmark = pytest.mark.timeout(3 * 3600)


def everything_is_killed(url: str, folder: Path, rounds: int, sessions: int, *, each: int) -> list[Tally]:
    """Three workers, two servers, two gateways on one database; gives what came of the gateways' talks."""

    def survive(name: str, first: int) -> Tally:
        people = PLATFORMS[name]([*range(first, first + 4)])
        moments: list[Moment] = [MOMENTS[at % len(MOMENTS)] for at in range(rounds)]
        return Rounds(folder / name, people, "queue", each).run(moments)

    with ThreadPoolExecutor(2) as pool:
        futures: list[Future[Tally]] = [
            pool.submit(survive, "telegram", 101),
            pool.submit(survive, "slack", 201),
        ]
        rounds_of_kills(url, folder, rounds, sessions, 19)
        return [future.result() for future in futures]


@pytest.fixture
def of_the_team(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database, for every process that this test starts."""
    monkeypatch.setenv("WHET_STORE_URL", url)
    monkeypatch.setenv("WHET_STORE_LEASE_S", str(LEASE_S))
    return url


@pytest.mark.slow
def test_a_few_kills_of_everything_lose_double_and_reorder_nothing(of_the_team: str, tmp_path: Path) -> None:
    for tally in everything_is_killed(of_the_team, tmp_path, 3, 6, each=6):
        assert tally.is_clean and tally.kills == 3, str(tally)


@pytest.mark.soak
def test_two_hundred_rounds_of_kills_of_everything(of_the_team: str, tmp_path: Path) -> None:
    for tally in everything_is_killed(of_the_team, tmp_path, 200, 1000, each=6):
        print(tally)
        assert tally.is_clean, str(tally)
