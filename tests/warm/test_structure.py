"""Soft failures, undone and objected calls by structure: the labelled corpus, and what is near each rule."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.outcomes import FRESH, HALVES, KINDS, STRANGERS, UNSEEN, OutcomeCase, judged, run_all


def outcomes(*steps: list[Any]) -> list[str]:
    return [outcome for outcome, _ in judged(OutcomeCase("fine", -1, [["say", "go on"], *steps]))]


@pytest.mark.parametrize("half", [*HALVES, STRANGERS, FRESH])
def test_the_program_alone_raises_few_alarms(half: str) -> None:
    tally = run_all(half)
    assert len(tally.alarms) <= max(1, 0.02 * tally.calls), tally.alarms


@pytest.mark.parametrize("half", [UNSEEN, STRANGERS, FRESH])
def test_with_the_replies_of_a_review_most_is_recognised(half: str) -> None:
    tally = run_all(half, reviewed=True)
    assert {kind: share for kind in KINDS if (share := tally.recall(kind)) < 0.9} == {}, tally.missed
    assert len(tally.alarms) <= max(1, 0.02 * tally.calls), tally.alarms
    assert tally.dropped <= 4


def test_an_answer_that_no_is_no_failure_however_it_is_shown() -> None:
    assert outcomes(["run", "grep -q x a; echo $?", "1", 0]) == ["ok"]


def test_only_the_turn_before_and_its_first_change_count_as_an_objection() -> None:
    first, other = ["edit", "a", "1", "2"], ["edit", "b", "5", "6"]
    again = ["edit", "a", "2", "3"]
    assert outcomes(first, ["say", "Three."], again)[0] == "objected"
    assert outcomes(first, ["say", "Also b."], other, again)[0] == "ok"
    assert outcomes(first, ["say", "Why?"], ["say", "Three."], again)[0] == "objected"
    assert outcomes(first, ["say", "And b."], other, ["say", "Go on."], again)[0] == "ok"
    assert outcomes(first, ["say", "Longer."], ["edit", "a", "2", "2 and more"])[0] == "ok"


def test_a_command_is_taken_back_by_the_opposite_verb_on_the_same_object() -> None:
    def taken(done: str, back: str) -> bool:
        return outcomes(["run", done, "ok", 0], ["run", back, "ok", 0])[0] == "undone"

    assert taken("npm install left-pad", "npm uninstall left-pad")
    assert taken("createdb shop_try", "dropdb shop_try")
    assert taken("git config --global a.b true", "git config --global --unset a.b")
    assert not taken("npm install dayjs", "npm uninstall lodash")
    assert not taken("git log v1", "git tag -d v1")
    assert not taken("docker logs web", "docker rm web")


def test_a_program_that_served_its_purpose_is_not_taken_back_when_it_is_stopped() -> None:
    started, used, ended = "docker run -d --name db pg", "pytest", "docker rm -f db"
    assert outcomes(*(["run", text, "ok", 0] for text in (started, used, ended)))[0] == "ok"
    assert outcomes(*(["run", text, "ok", 0] for text in (started, ended)))[0] == "undone"


def test_a_thing_that_was_used_before_its_removal_is_not_taken_back() -> None:
    made = ["write", "probe.py", "print(1)"]
    used = ["run", "python probe.py", "1", 0]
    gone = ["run", "rm probe.py", "", 0]
    assert outcomes(made, used, gone)[0] == "ok"
    assert outcomes(made, gone)[0] == "undone"
    assert outcomes(made, used, ["say", "weg"], gone)[0] == "undone", "used before, removed at a word"
