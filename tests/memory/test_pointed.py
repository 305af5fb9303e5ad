"""The corpora in ten languages: poison, genuine lessons, twisted claims. All with soak."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.lessons.pointed import PointedTally, run_all


def check(tallies: dict[str, PointedTally]) -> None:
    assert tallies["poison"].wrong == {} and tallies["twisted"].wrong == {}
    genuine = tallies["genuine"]
    # Two refusals say nothing of a rate in a sample of thirty.
    assert len(genuine.wrong) <= max(2, 0.03 * genuine.total), genuine.wrong


def sample_of(folder: Path, every: int) -> None:
    tallies = run_all(folder, every=every)
    check(tallies)
    assert min(tally.total for tally in tallies.values()) >= 220 // every


@pytest.mark.slow
def test_a_case_in_forty(tmp_path: Path) -> None:
    sample_of(tmp_path, 41)


@pytest.mark.slow
def test_a_case_in_ten(tmp_path: Path) -> None:
    sample_of(tmp_path, 11)


@pytest.mark.soak
def test_every_case(tmp_path: Path) -> None:
    tallies = run_all(tmp_path)
    check(tallies)
    assert [tallies[name].total for name in ("poison", "genuine", "twisted")] >= [250, 250, 400]
