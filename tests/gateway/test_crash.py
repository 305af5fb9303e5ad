"""A gateway that is killed again and again under load loses, doubles and reorders nothing.

What that means is in `kills/oracle.py`, what the platforms do meanwhile in `kills/platforms.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.kills.platforms import PLATFORMS
from tests.gateway.kills.rounds import Rounds, survive
from tests.gateway.kills.troubles import Moment

pytestmark = pytest.mark.slow


@pytest.mark.xfail(reason="the new notice of an unknown send counts as a message here", strict=False)
@pytest.mark.parametrize(
    ("platform", "busy", "moments"),
    [
        ("telegram", "queue", ["before an acknowledgement"]),
        ("discord", "queue", ["after a send"]),
        ("slack", "steer", ["any time"]),
        ("webhook", "queue", ["before an acknowledgement"]),
    ],
)
def test_kills_under_load_lose_double_and_reorder_nothing(
    tmp_path: Path, platform: str, busy: str, moments: list[Moment]
) -> None:
    people, streams = PLATFORMS[platform]([101, 102, 103, 104]), platform == "telegram"
    tally = Rounds(tmp_path / "home", people, busy, 8, streams=streams).run(moments)
    assert tally.is_clean, str(tally)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "growing"])
@pytest.mark.parametrize("busy", ["queue", "steer"])
@pytest.mark.parametrize("platform", sorted(PLATFORMS))
def test_a_hundred_kills_under_load(tmp_path: Path, platform: str, busy: str, streams: bool) -> None:
    tally = survive(tmp_path / "home", platform, busy, 100, streams=streams)
    assert tally.is_clean, str(tally)
