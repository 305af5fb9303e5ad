"""A short "no" with another value is the newer half of the statement; a "no" without one takes it back."""

from __future__ import annotations

import pytest
from benchmarks.lessons.world import Run, Say, Step, User

from tests.memory.evidence import accepted, verdict
from whet.memory.requests import GateVerdict

PORT = "Serve the pages on port 8080."
DRAFTS, JOELLE = "Send the drafts to Marguerite.", "no wait, Joelle handles drafts now"
ORDER, MAY = "Feel free to order office supplies.", "but not in May"
ASIDE: list[Step] = [User("Which one first?"), Say("The short one.")]
LATER: list[Step] = [Say("ok"), User("Now build it."), Run("terminal", "make", "built"), Say("ok")]


def talked(text: str, reply: str) -> list[Step]:
    return [User(text), Say("Noted."), User(reply), *LATER]


def worked(text: str, *tasks: str) -> list[Step]:
    """Return a session in which the person gives one task after the other, each with a call."""
    calls = ([Run("terminal", f"do {task[-4:]}", "a"), Say("ok"), User(task)] for task in tasks)
    return [User(text), *(step for each in calls for step in each), Say("ok")]


@pytest.mark.parametrize(
    ("said", "reply", "steps"),
    [
        ("La réunion est le mardi.", "non, plutôt le mercredi", None),
        ("Wir liefern am Montag.", "nein, am Freitag", None),
        ("The demo is on Tuesday.", "no, on Thursday", None),
        ("Our VAT rate for books is 7 percent.", "scratch that, it's 5", None),
        ("Die Kiste wiegt 18 Kilo.", "Moment, 22 warens", None),
        ("회의는 3층에서 해요.", "아 잠깐, 5층이요", None),
        ("No meetings before 10.", "no, no meetings before 9", None),
        ("The staging database is called finch.", "no sorry, it's called wren", None),
        ("يمكنك حذف الملفات المؤقتة.", "بشرط أن يكون عمرها أكثر من أسبوع", None),
        ("आप पुराने ईमेल मिटा सकते हैं।", "लेकिन बैंक की चिट्ठियाँ कभी मत छूना", None),
        (PORT, "sorry, 9090", [*worked(PORT, "sorry, 9090"), *LATER[1:]]),
        (PORT, "hm, rather 7070", worked(PORT, "sorry, 9090", "hm, rather 7070")),
        (DRAFTS, JOELLE, [User(DRAFTS), Say("Noted."), *ASIDE, User(JOELLE), *LATER]),
        (ORDER, MAY, [User(ORDER), Say("Noted."), User(MAY), Say("ok")]),
        (ORDER, MAY, [User(ORDER), Say("Noted."), User(MAY), Say("Understood, only from June on then.")]),
        (ORDER, MAY, [User(ORDER), Say("Noted."), User(MAY), Say("I keep costs low.")]),
    ],
)
def test_the_newest_words_are_kept_with_the_statement_that_they_change(
    said: str, reply: str, steps: list[Step] | None
) -> None:
    text = accepted(steps or talked(said, reply), "x", said).text
    assert text.index(said) < text.index(reply)


def test_a_number_that_answers_the_assistants_question_is_no_newer_value() -> None:
    steps: list[Step] = [User(PORT), Say("How many users may log in?"), User("250"), *LATER]
    assert "250" not in accepted(steps, "x", PORT).text


@pytest.mark.parametrize(
    "reply", ["no", "No, forget it.", "nein", "No, do not do that.", "Nein, mach das nicht."]
)
def test_a_mere_no_takes_the_statement_back(reply: str) -> None:
    text = "The demo is on Tuesday."
    assert "took that back" in str(verdict(talked(text, reply), "x", text))


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
    assert "took that back" in str(verdict(talked(said, reply), "x", said))


def test_a_no_takes_back_the_nearest_statement_and_no_earlier_one() -> None:
    printer = "The printer on the second floor is called Gutenberg."
    database = "The database of the team is called finch."
    reply = "no sorry, it's called wren"
    steps: list[Step] = [User(printer), Say("ok"), User(database), Say("ok"), User(reply), *LATER]
    assert accepted(steps, "x", printer).text == f"“{printer}”"
    other: list[Step] = [User("Water the plants."), Say("ok"), User("No, the database has another name.")]
    assert "took that back" in str(verdict([User(database), Say("ok"), *other, *LATER], "x", database))


def test_a_conversation_without_work_does_not_become_part_of_a_statement_in_it() -> None:
    text = "The reports of this team go to Ines Huber every Friday."
    talk: list[Step] = []
    for number in range(1, 40):
        talk += [User(f"Task {number}: go on with the next file."), Say("Done.")]
    given = accepted([User(text), Say("Noted."), *talk], "x", text)
    assert text in given.text and len(given.text) < 400


@pytest.mark.parametrize(
    "said", ["No, the labels for Hofer are always A6, not A5.", "We pay Kranz within 5 days."]
)
def test_a_row_of_numbered_tasks_takes_nothing_back_and_is_no_reply(said: str) -> None:
    tasks = [f"please do chore {number}" for number in range(2, 8)]
    first: list[Step] = [User("Print the labels."), Run("terminal", "lp -o a5 1", "sent"), Say("ok")]
    for before in (first, []):
        assert accepted([*before, *worked(said, *tasks)], "x", said).text == f"“{said}”"


def test_a_claim_about_the_older_value_is_refused() -> None:
    text, reply = "Serve the pages on port 8080.", "sorry, 9090"
    steps: list[Step] = [User(text), Say("ok"), User(reply), *LATER]
    assert "took that back" in str(verdict(steps, "The pages are on port 8080.", text))
    assert isinstance(verdict(steps, "The pages are on port 9090, not 8080.", text), GateVerdict)
