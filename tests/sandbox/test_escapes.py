"""Ways out of the sandbox, tried for real with each engine: none may get out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sandbox.attempts import attempts
from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.world import World

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")


def test_the_corpus_is_wide() -> None:
    every = attempts()
    groups = Counter(attempt.group for attempt in every)
    assert len(every) >= 200
    assert len(groups) >= 15
    assert len({attempt.name for attempt in every}) == len(every)


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_sample_of_all_groups_does_not_get_out(case: EngineCase, tmp_path: Path) -> None:
    with World(tmp_path) as world:
        assert world.attack(case.engine(), attempts()[::8]) == []


@pytest.mark.soak
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_none_gets_out(case: EngineCase, tmp_path: Path) -> None:
    with World(tmp_path) as world:
        assert world.attack(case.engine(), attempts()) == []


def test_the_harness_sees_what_gets_out(tmp_path: Path) -> None:
    chosen = [
        attempt for attempt in attempts() if attempt.name in ("files-sh-0", "files-sh-25", "sockets-py-0")
    ]
    with World(tmp_path) as world:
        out = world.attack_unconfined(chosen)
    assert len(out) >= 3, out
