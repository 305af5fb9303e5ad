"""Soft failures, undone and objected calls by structure: the labelled corpus, and what is near each rule."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.outcomes import KINDS, OutcomeCase, judged, run_all

from whet.warm.masking import find_hidden_exit, is_masked


def outcomes(*steps: list[Any]) -> list[str]:
    return [outcome for outcome, _ in judged(OutcomeCase("fine", -1, [["say", "go on"], *steps]))]


def test_the_labelled_corpus() -> None:
    tally = run_all()
    assert min(tally.total.values()) >= 25
    assert {kind: share for kind in KINDS if (share := tally.recall(kind)) < 0.9} == {}, tally.missed
    assert tally.false_share <= 0.02, tally.alarms


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("./put a || echo 'did not work'", "x\ndid not work", 1),
        ("./put a || echo 'did not work'", "all is well", None),
        ("command -v jq || echo none", "none", None),
        ("./put a; echo code: $?", "code: 7", 7),
        ("./put a; echo code: $?", "code: 0", None),
        ("./put a; rc=$?; echo $rc", "12", 12),
        ("echo 7", "7", None),
    ],
)
def test_an_exit_code_that_the_command_hides_is_found_where_it_is_shown(
    command: str, text: str, code: int | None
) -> None:
    found = find_hidden_exit(command, text)
    assert (found.code if found else None) == code


@pytest.mark.parametrize(
    ("command", "expected"),
    [("make | tail -3", True), ("make || true", True), ("make", False), ("make | ./check", False)],
)
def test_what_masks_an_exit_code(command: str, expected: bool) -> None:
    assert is_masked(command) is expected


def test_an_answer_that_no_is_no_failure_however_it_is_shown() -> None:
    assert outcomes(["run", "grep -q x a; echo $?", "1", 0]) == ["ok"]


def test_a_thing_that_was_used_before_its_removal_is_not_taken_back() -> None:
    made = ["write", "probe.py", "print(1)"]
    used = ["run", "python probe.py", "1", 0]
    gone = ["run", "rm probe.py", "", 0]
    assert outcomes(made, used, gone)[0] == "ok"
    assert outcomes(made, gone)[0] == "undone"
    assert outcomes(made, used, ["say", "weg"], gone)[0] == "undone", "used before, removed at a word"


def test_only_the_turn_before_and_its_first_change_count_as_an_objection() -> None:
    first, other = ["edit", "a", "1", "2"], ["edit", "b", "5", "6"]
    again = ["edit", "a", "2", "3"]
    assert outcomes(first, ["say", "Three."], again)[0] == "objected"
    assert outcomes(first, ["say", "Also b."], other, again)[0] == "ok"
    assert outcomes(first, ["say", "Why?"], ["say", "Three."], again)[0] == "objected"
    assert outcomes(first, ["say", "And b."], other, ["say", "Go on."], again)[0] == "ok"
    assert outcomes(first, ["say", "Longer."], ["edit", "a", "2", "2 and more"])[0] == "ok"
