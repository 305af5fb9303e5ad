"""The labelled corpus of soft failures, undone and objected calls."""

from __future__ import annotations

import pytest
from benchmarks.outcomes import FRESH, HALVES, KINDS, OUTSIDERS, STRANGERS, UNSEEN, run_all


@pytest.mark.fast_rows("fresh", "cases")
@pytest.mark.parametrize("half", [*HALVES, STRANGERS, FRESH, OUTSIDERS])
def test_the_program_alone_raises_few_alarms(half: str) -> None:
    tally = run_all(half)
    assert len(tally.alarms) <= max(1, 0.02 * tally.calls), tally.alarms


@pytest.mark.fast_rows("unseen")
@pytest.mark.parametrize("half", [UNSEEN, STRANGERS, FRESH, OUTSIDERS])
def test_with_the_replies_of_a_review_most_is_recognised(half: str) -> None:
    tally = run_all(half, reviewed=True)
    assert {kind: share for kind in KINDS if (share := tally.recall(kind)) < 0.9} == {}, tally.missed
    assert tally.alarms == []
    assert tally.dropped <= 4
