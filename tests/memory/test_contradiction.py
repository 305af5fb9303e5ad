"""What the person took back is not kept."""

from __future__ import annotations

import pytest
from benchmarks.lessons.world import Say, User

from tests.memory.evidence import said_by
from whet.memory.contradiction import clauses, contradiction

SAID = "Tests run with nox on port 8443."


def taken_back(text: str, *later: str, said: str = SAID) -> str:
    steps = [User(said)]
    for one in later:
        steps += [Say("ok"), User(one)]
    found = said_by(steps)
    return contradiction(text, [found[0]], found)


@pytest.mark.parametrize(
    "later",
    [
        "no",
        "Scratch that, sorry.",
        "That's wrong.",
        "Don't use nox.",
        "We don't use 8443.",
        "not 8443, please",
        "nein",
    ],
)
def test_a_later_no_takes_it_back(later: str) -> None:
    assert taken_back("Tests run with `nox` on port 8443.", later) == later.strip()


@pytest.mark.parametrize(
    "later",
    [
        "no problem",
        "not bad at all",
        "thanks",
        "Don't touch the migrations.",
        "The linter is wrong about quotes.",
        "note that the docs are short",
    ],
)
def test_a_no_to_something_else_does_not(later: str) -> None:
    assert taken_back("Tests run with nox on port 8443.", later) == ""


def test_a_bare_no_counts_right_after_what_was_quoted_only() -> None:
    assert taken_back(SAID, "go on", "no") == ""
    assert taken_back(SAID, "no", "go on") == "no"


def test_a_claim_that_denies_the_same_thing_agrees() -> None:
    said = "We don't use pytest, we run nox."
    assert taken_back("Don't use pytest; run nox.", said=said) == ""
    assert taken_back("Use pytest.", said=said) == said


def test_an_opening_no_is_about_what_was_said_before() -> None:
    said = "No, tests run with nox."
    assert taken_back("Tests run with nox.", said=said) == ""
    assert taken_back("Tests run with nox.", "No, tests run with nox.") != ""


def test_earlier_messages_speak_against_nothing() -> None:
    found = said_by([User("Forget nox."), Say("ok"), User(SAID)])
    assert contradiction(SAID, [found[2]], found) == ""
    assert contradiction(SAID, [], found) == ""


def test_nobody_but_the_person_takes_back() -> None:
    found = said_by([User(SAID), Say("Forget nox, it is wrong.")])
    assert contradiction(SAID, [found[0]], found) == ""
    helped = said_by([User(SAID), Say("Not nox."), User("remember that")])
    assert contradiction(SAID, [helped[0]], helped) == ""


def test_half_of_a_claim_must_be_denied_with_two_words_or_more() -> None:
    claim = "castle dragon eagle falcon"
    assert taken_back(claim, "the castle dragon is wrong", said=claim) != ""
    assert taken_back(claim + " garden", "the castle dragon is wrong", said=claim) == ""
    assert taken_back(claim + " garden", "the castle dragon eagle is wrong", said=claim) != ""
    assert taken_back(claim, "wrong castle", said=claim) != ""
    assert taken_back(claim + " garden", "wrong castle", said=claim) == ""


def test_a_single_character_is_shared_by_chance() -> None:
    said = "Wait 5 minutes between deploys of castle dragon eagle."
    assert taken_back(said, "There are not 5 files.", said=said) == ""
    assert taken_back(said.replace("5", "55"), "Not 55, please.", said=said.replace("5", "55")) != ""


def test_a_thought_is_cut_where_it_turns() -> None:
    assert clauses("we run nox, but not tox; fine. ") == ["we run nox", "not tox", " fine"]
    assert clauses("one. two\n\nthree") == ["one", " two", "three"]
    assert clauses(" . ") == []
