"""Whether a message corrects the turn before it: by what followed, in any language."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.review.rig import bench, does, says, use
from whet.review.correction import find_correction
from whet.store.reviews import TurnCall


def ran(command: str) -> TurnCall:
    return TurnCall(1, "terminal", json.dumps({"command": command}), "")


def edit(path: str, old: str, new: str) -> TurnCall:
    return TurnCall(1, "patch", json.dumps({"path": path, "old_string": old, "new_string": new}), "")


@pytest.mark.parametrize(
    ("said", "calls", "before"),
    [
        ("No, the tests run with ./check, not pytest.", [ran("./check")], [ran("pytest")]),
        ("Nein, die Tests laufen mit ./check hier.", [ran("./check")], [ran("pytest")]),
        ("テストは ./check で実行してください", [ran("./check")], [ran("pytest")]),
        ("The labels are always A6, not A5.", [ran("lp a6 2")], [ran("lp a5 1")]),
        (
            "that is the old host, sorry",
            [ran("./push qa-4.lan --all now")],
            [ran("./push qa-3.lan --all now")],
        ),
        (
            "Das ist der falsche Ordner gewesen.",
            [edit("b/x.py", "a = 1", "a = 2")],
            [edit("x.py", "a = 1", "a = 2")],
        ),
    ],
)
def test_work_that_is_done_again_otherwise(said: str, calls: list[TurnCall], before: list[TurnCall]) -> None:
    assert find_correction(said, calls, before) == "redone"


@pytest.mark.parametrize(
    "said",
    [
        "As I said, no emojis.",
        "Ab jetzt bitte kurze Antworten.",
        "Отвечай мне всегда коротко.",
        "以后请用中文回答",
        "以后用中文答",
    ],
)
def test_what_is_only_said_may_be_one(said: str) -> None:
    assert find_correction(said, [], [ran("pytest")]) == "said"


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ("go on", []),
        ("Thanks a lot!", []),
        ("Is that the right folder for it?", []),
        ("これは正しいですか", []),
        ("再看看这里", []),
        ("Now add a test for this function.", [edit("tests/x.py", "", "def test(): ...")]),
        ("Do the rest of the list, then stop.", [ran("make docs")]),
        ("> that is wrong, use ./check\n> no such file\n", []),
        ("Now deploy it to the staging host.", [ran("ls -la")]),
        ("Now run it once more for me.", [ran("pytest -q")]),
        ("Now run pytest once more for me.", [ran("pytest -q")]),
        ("Do the same with the other tool.", [TurnCall(1, "ops", '{"command": "pytest -q -x"}', "")]),
    ],
)
def test_the_next_task_an_answer_and_a_question_are_none(said: str, calls: list[TurnCall]) -> None:
    assert find_correction(said, calls, [ran("pytest -q")]) == ""


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("The moon is far.", "Apples grow on trees."),
        ("Unser Büro ist in Linz.", "Die Rechnungen gehen an Frau Huber."),
        ("Księżyc jest daleko.", "Jabłka rosną na drzewach."),
        ("月亮很远。", "苹果长在树上。"),
        ("月は遠いです。", "りんごは木になります。"),
        ("The nightly job runs at two.", "The weekly job runs on Sunday."),
        ("The moon is far.", "The invoices are in /srv/invoices here."),
    ],
)
def test_a_statement_after_which_and_before_which_nothing_was_done_corrects_nothing(
    asked: str, said: str
) -> None:
    assert find_correction(said, [], [], asked) == ""


def test_where_nothing_was_done_a_new_value_on_the_same_subject_is_one() -> None:
    asked = "How are the tests run?"
    assert find_correction("Here the tests run with ./check.", [], [], asked) == "said"
    assert find_correction("And what about ./check in tests?", [], [], asked) == ""


@pytest.mark.parametrize(
    ("asked", "before", "said", "now"),
    [
        (
            "Deploy to staging.",
            "make deploy ENV=staging",
            "Looks good, deploy to live.",
            "make deploy ENV=live",
        ),
        ("Deploye auf Test.", "make deploy ENV=test", "Passt, jetzt bitte auf live.", "make deploy ENV=live"),
        ("Compte les lignes de a.txt.", "wc -l a.txt", "Maintenant celles de b.txt.", "wc -l b.txt"),
        ("Run pytest.", "pytest", "Now the docs with make docs.", "make docs"),
        ("Run the unit tests.", "pytest", "Now git push.", "git push"),
        ("运行测试。", "pytest", "现在运行 git push。", "git push"),
    ],
)
def test_what_the_person_had_asked_for_was_no_mistake(asked: str, before: str, said: str, now: str) -> None:
    assert find_correction(said, [ran(now)], [ran(before)], asked) == ""


@pytest.mark.parametrize(
    ("asked", "before", "said", "now"),
    [
        ("Lance les tests.", "npm test", "Non, avec pnpm.", "pnpm test"),
        ("Запусти тесты.", "pytest", "Нет, через make.", "make test"),
        ("شغّل الاختبارات.", "pytest", "لا، استخدم tox.", "tox"),
        ("运行测试。", "pytest", "不对,应该用 tox。", "tox"),
        ("Run the unit tests.", "pytest tests", "No, only the ones in tests/api.", "pytest tests/api"),
        (
            "Deploy the site.",
            "make deploy ENV=live",
            "It should have been staging.",
            "make deploy ENV=staging",
        ),
    ],
)
def test_another_program_for_the_same_work_or_a_part_of_it_is_one(
    asked: str, before: str, said: str, now: str
) -> None:
    assert find_correction(said, [ran(now)], [ran(before)], asked) == "redone"


def looked(path: str) -> TurnCall:
    return TurnCall(1, "read_file", json.dumps({"path": path, "offset": 9}), "")


def test_who_only_looks_again_has_done_no_work_again() -> None:
    assert find_correction("That is not the file I mean.", [looked("b.py")], [looked("a.py")]) == "said"


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        ("./go b c x y", "./go b c v w", "redone"),
        ("./go b x y z", "./go b t u v", ""),
        ("./go b c d e f g h", "./go b c", ""),
        ("./go b c", "./go b c d e f g h", ""),
    ],
)
def test_work_is_done_again_where_three_fifths_of_it_are_alike(now: str, before: str, expected: str) -> None:
    assert find_correction("Please take the other ones now.", [ran(now)], [ran(before)]) == expected


@pytest.mark.slow
async def test_work_that_is_done_again_is_seen_in_the_store(tmp_path: Path) -> None:
    """The turn before is read whole, though the session goes on after it."""

    script = [
        does(use("terminal", command="echo report unit=inch page=4")),
        says("Done."),
        does(use("terminal", command="echo report unit=mm page=4")),
        says("Done again."),
    ]
    async with bench(tmp_path, script) as b:
        await b.turn("Make the report")
        assert not b.queued
        await b.turn("My reports are in millimetres, please.")
        assert len(b.queued) == 1


@pytest.mark.fast_rows("Hello", "No, do it", "No, the tests")
@pytest.mark.parametrize(
    ("said", "is_correction"),
    [
        ("No, the tests run with ./check --fast in this project.", True),
        ("いいえ、ここのテストは ./check で実行します。", True),
        ("Hello, the tests run with ./check --fast in this project.", False),
        ("No, is that what the tests of this project run with?", False),
        ("No, do it.", False),
    ],
)
async def test_a_first_message_that_begins_with_a_no_corrects_another_session(
    tmp_path: Path, said: str, is_correction: bool
) -> None:
    async with bench(tmp_path, [says("Noted.")]) as b:
        await b.turn(said)
        assert len(b.queued) == is_correction


@pytest.mark.parametrize(
    ("asked", "said", "is_correction"),
    [
        ("please do chore number 3", "please do chore number 4", False),
        ("fix issue #3 first", "and now issue #4, thank you", False),
        ("Kapitel 3 bitte setzen", "jetzt bitte das Kapitel 4 setzen", False),
        ("please do chore number 3", "No, the labels begin at 4 here.", True),
    ],
)
def test_the_next_number_of_the_same_thing_is_the_next_task(
    asked: str, said: str, is_correction: bool
) -> None:
    calls, before = [ran("lp -o a5 -n one 4")], [ran("lp -o a5 -n one 3")]
    assert find_correction(said, calls, before, asked) == ("redone" if is_correction else "")
