"""Whether a message corrects the turn before it: by what followed, in any language."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.review.rig import bench, does, says, use
from whet.review.correction import correction
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
    assert correction(said, calls, before) == "redone"


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
    assert correction(said, [], [ran("pytest")]) == "said"


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
    ],
)
def test_the_next_task_an_answer_and_a_question_are_none(said: str, calls: list[TurnCall]) -> None:
    assert correction(said, calls, [ran("pytest -q")]) == ""


@pytest.mark.slow
def test_work_that_is_done_again_is_seen_in_the_store(tmp_path: Path) -> None:
    """The turn before is read whole, though the session goes on after it."""

    async def main() -> None:
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

    asyncio.run(main())
