"""The corpora of `benchmarks/lessons/unseen.py`: no stranger in force, nothing of the person lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.lessons import unseen
from benchmarks.lessons.world import World

# The most that may end wrong: newest in force of revisions at 97 %, one in forty parallel facts, else none.
ALLOWED = {"revision": 2, "parallel": 1, "replaced": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "name"), [(corpus, name) for corpus in unseen.SETS for name in unseen.SETS[corpus]]
)
def test_a_set_of_a_corpus(tmp_path: Path, corpus: str, name: str) -> None:
    world = World(tmp_path)
    tally = asyncio.run(unseen.try_set(world, name, unseen.read_cases(name, corpus)))
    world.close()
    lost = {case: why for case, why in tally.wrong.items() if not why.startswith("still in force")}
    assert len(lost) <= ALLOWED.get(name, 0), lost
    assert len(tally.wrong) <= 2.5 * ALLOWED.get(name, 0), tally.wrong
