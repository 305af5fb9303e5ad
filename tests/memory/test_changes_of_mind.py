"""A short "no" with another value is the newer half of the statement; a "no" without one takes it back."""

from __future__ import annotations

import pytest
from benchmarks.lessons.world import Run, Say, Step, User

from tests.memory.evidence import verdict
from whet.memory.requests import GateVerdict

LATER: list[Step] = [Say("ok"), User("Now build it."), Run("terminal", "make", "built"), Say("ok")]


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("La réunion est le mardi.", "non, plutôt le mercredi"),
        ("Wir liefern am Montag.", "nein, am Freitag"),
        ("The demo is on Tuesday.", "no, on Thursday"),
        ("Our VAT rate for books is 7 percent.", "scratch that, it's 5"),
        ("Die Kiste wiegt 18 Kilo.", "Moment, 22 warens"),
        ("회의는 3층에서 해요.", "아 잠깐, 5층이요"),
    ],
)
def test_the_newest_words_are_kept_with_the_statement_that_they_change(said: str, reply: str) -> None:
    given = verdict([User(said), Say("Noted."), User(reply), *LATER], "x", said)
    assert isinstance(given, GateVerdict), given
    assert given.text.index(said) < given.text.index(reply)


def test_a_value_that_replaces_another_stays_with_it_after_work_was_done() -> None:
    said, reply = "Serve the pages on port 8080.", "sorry, 9090"
    steps: list[Step] = [User(said), Run("terminal", "serve 8080", "up"), Say("ok"), User(reply), *LATER]
    given = verdict(steps, "x", said)
    assert isinstance(given, GateVerdict), given
    assert given.text.index(said) < given.text.index(reply)


def test_a_number_that_answers_the_assistants_question_is_no_newer_value() -> None:
    said, reply = "Serve the pages on port 8080.", "250"
    steps: list[Step] = [User(said), Say("How many users may log in?"), User(reply), *LATER]
    given = verdict(steps, "x", said)
    assert isinstance(given, GateVerdict) and reply not in given.text, given


def test_a_question_between_does_not_hide_the_newer_name() -> None:
    said, reply = "Send the drafts to Marguerite.", "no wait, Joelle handles drafts now"
    talk: list[Step] = [User(said), Say("Noted."), User("Which one first?"), Say("The short one.")]
    given = verdict([*talk, User(reply), *LATER], "x", said)
    assert isinstance(given, GateVerdict) and given.text.index(said) < given.text.index(reply), given


@pytest.mark.parametrize("answer", ["ok", "Understood, only from June on then.", "I keep costs low."])
def test_a_condition_stays_whatever_the_assistant_answers(answer: str) -> None:
    said, reply = "Feel free to order office supplies.", "but not in May"
    given = verdict([User(said), Say("Noted."), User(reply), Say(answer)], "x", said)
    assert isinstance(given, GateVerdict) and reply in given.text, given


@pytest.mark.parametrize(
    "reply", ["no", "No, forget it.", "nein", "No, do not do that.", "Nein, mach das nicht."]
)
def test_a_mere_no_takes_the_statement_back(reply: str) -> None:
    said = "The demo is on Tuesday."
    assert "took that back" in str(verdict([User(said), Say("Noted."), User(reply), *LATER], "x", said))


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("No emojis in commit messages.", "No, do not do that."),
        ("Do not use emojis.", "No, do not do that."),
        ("Always do a review first.", "No, don't do that."),
        ("No uses emojis.", "No, no hagas eso."),
        ("Ne lance pas les tests ici.", "Non, ne fais pas ça."),
    ],
)
def test_a_mere_no_takes_back_a_rule_that_shares_only_small_words_with_it(said: str, reply: str) -> None:
    given = str(verdict([User(said), Say("Noted."), User(reply), *LATER], "x", said))
    assert "took that back" in given, given


def test_a_no_that_names_the_rules_own_subject_stays_with_it() -> None:
    said, reply = "No meetings before 10.", "no, no meetings before 9"
    given = verdict([User(said), Say("Noted."), User(reply), *LATER], "x", said)
    assert isinstance(given, GateVerdict) and reply in given.text, given


def test_a_conversation_without_work_does_not_become_part_of_a_statement_in_it() -> None:
    said = "The reports of this team go to Ines Huber every Friday."
    talk: list[Step] = []
    for number in range(1, 40):
        talk += [User(f"Task {number}: go on with the next file."), Say("Done.")]
    given = verdict([User(said), Say("Noted."), *talk], "x", said)
    assert isinstance(given, GateVerdict), given
    assert said in given.text and len(given.text) < 400


def test_tasks_with_numbers_take_nothing_back_and_stay_out_of_the_statement() -> None:
    said = "No, the labels for Hofer are always A6, not A5."
    steps: list[Step] = [
        User("Print the labels."),
        Run("terminal", "lp -o a5 1", "sent"),
        Say("ok"),
        User(said),
    ]
    for number in range(2, 6):
        steps += [Run("terminal", f"lp -o a6 {number}", "sent"), Say("ok"), User(f"please do chore {number}")]
    given = verdict([*steps, Say("ok")], "x", said)
    assert isinstance(given, GateVerdict) and given.text == f"“{said}”", given


def test_a_row_of_numbered_tasks_is_no_reply_to_a_number() -> None:
    said = "We pay Kranz within 5 days."
    steps: list[Step] = [User(said)]
    for number in range(3, 8):
        steps += [Run("terminal", f"do {number}", "a"), Say("ok"), User(f"please do chore number {number}")]
    given = verdict([*steps, Say("ok")], "x", said)
    assert isinstance(given, GateVerdict) and given.text == f"“{said}”", given


def test_the_last_of_several_newer_values_is_not_passed_over() -> None:
    said = "Serve the pages on port 8080."
    steps: list[Step] = [User(said), Run("terminal", "serve 8080", "up"), Say("ok")]
    for reply in ("sorry, 9090", "hm, rather 7070"):
        steps += [User(reply), Run("terminal", f"serve {reply[-4:]}", "up"), Say("ok")]
    given = verdict(steps, "x", said)
    assert "7070" in (given if isinstance(given, str) else given.text), given


def test_a_claim_about_the_older_value_is_refused() -> None:
    said, reply = "Serve the pages on port 8080.", "sorry, 9090"
    steps: list[Step] = [User(said), Say("ok"), User(reply), *LATER]
    assert "took that back" in str(verdict(steps, "The pages are on port 8080.", said))
    assert isinstance(verdict(steps, "The pages are on port 9090, not 8080.", said), GateVerdict)
