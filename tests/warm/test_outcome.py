"""The judge agrees with the labels of calls that were really run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import FixedClock
from tests.warm.corpus import run_cases
from tests.warm.stores import Turn, open_store, store
from whet.contract.texts import parse_arguments
from whet.warm.outcome import judge_alone


def agreement(tmp_path: Path, clock: FixedClock, rounds: int) -> int:
    """Run the corpus and hold the judge to its labels; gives the number of calls."""
    database = open_store(tmp_path, clock)
    store(database, clock, Turn("anything at all"), id="talk")
    ran = asyncio.run(run_cases(tmp_path / "work", database, rounds))
    database.close()
    assert len({case.tool for case, _ in ran}) >= 12
    judged = [(case, call, judge_alone(call, parse_arguments(call.arguments))) for case, call in ran]
    wrong = [
        (case.tool, case.arguments, case.label, found, (call.result or "")[-200:])
        for case, call, found in judged
        if found[0] != case.label
    ]
    assert 1 - len(wrong) / len(ran) >= 0.97, wrong
    return len(ran)


@pytest.mark.slow
def test_the_labelled_corpus_in_short(tmp_path: Path, clock: FixedClock) -> None:
    assert agreement(tmp_path, clock, 1) >= 50


@pytest.mark.soak
def test_the_labelled_corpus(tmp_path: Path, clock: FixedClock) -> None:
    assert agreement(tmp_path, clock, 12) >= 300
