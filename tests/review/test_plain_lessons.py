"""A mended failure and a correction that changed a call are kept without a model, on any budget."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.lessons.world import Run, Step, User

from tests.memory.evidence import said_by, shell
from tests.review.rig import AGAIN, Bench, bench, does, says, talk, use
from whet.review.plain_lessons import find_plain_lessons

STARVED: dict[str, object] = {"review.free_tokens": "0", "review.worker": "off"}
PLENTY: dict[str, object] = {"review.free_tokens": "1000000000"}
SCRIPT = """#!/bin/sh
[ "$1" = --host=cedar ] && { echo 12/12; exit 0; }
echo "refused: \\`courier\\` needs \\`--host=cedar\\`"; exit 2
"""


def quotes_of(*steps: Step) -> list[tuple[str, ...]]:
    sources = said_by(steps)
    turn = max(item.turn for item in sources)
    return [item.evidence for item in find_plain_lessons(sources, turn, is_corrected=True)]


def test_every_line_of_an_error_that_the_next_call_heeded_is_kept() -> None:
    error = "refused: `ship` needs `--flag=ack`\nrefused: `atlas` needs `--host=cedar`"
    failed = Run("terminal", "./ship atlas --flag=solo --host=ember", error, False)
    worked = Run("terminal", "./ship atlas --flag=ack --host=cedar", "ok")
    (evidence,) = quotes_of(User("Ship atlas."), failed, worked)
    assert evidence == (*error.splitlines(), "./ship atlas --flag=ack --host=cedar")


def write_script(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = tmp_path / "work" / "ship"
    script.write_text(SCRIPT)
    script.chmod(0o755)


@pytest.mark.slow
async def test_a_mended_failure_is_kept_on_a_day_without_budget(tmp_path: Path) -> None:
    write_script(tmp_path)
    script = [
        does(use("terminal", command="./ship --host=amber")),
        does(use("terminal", command="./ship --host=cedar")),
        says("Done."),
    ]
    async with bench(tmp_path, script, settings=STARVED) as b:
        await b.turn("Ship it")
        assert [done.state for done in await b.review()] == ["saved"]
        assert "`./ship --host=cedar` worked" in b.memory()
        assert len(b.server.requests) == 3, "no model was asked"


async def correct(b: Bench) -> None:
    await b.turn("Ship it")
    await b.turn("No, that is not it: here the host is `--host=cedar`. Do it again.")


@pytest.mark.slow
@pytest.mark.parametrize(("share", "is_kept"), [("0.08", True), ("0", False)])
async def test_a_correction_whose_value_the_next_call_took_is_kept(
    tmp_path: Path, share: str, is_kept: bool
) -> None:
    write_script(tmp_path)
    script = [
        does(use("terminal", command="./ship --host=amber || true")),
        says("Done."),
        does(use("terminal", command="./ship --host=cedar || true")),
        says("Done."),
    ]
    async with bench(tmp_path, script, settings={**STARVED, "review.share": share}) as b:
        await correct(b)
        await b.review()
        assert ("the host is `--host=cedar`" in b.memory()) is is_kept
        assert len(b.server.requests) == 4, "no model was asked"


@pytest.mark.slow
async def test_a_task_with_a_new_value_is_no_correction_because_a_call_failed(tmp_path: Path) -> None:
    write_script(tmp_path)
    script = [
        does(use("terminal", command="./ship --host=amber || true")),
        says("Done."),
        does(use("terminal", command="grep -r TODO nowhere")),
        does(use("terminal", command="echo PORT=9001")),
        says("Done."),
    ]
    async with bench(tmp_path, script, settings=STARVED) as b:
        await b.turn("Ship it")
        await b.turn("Thanks. Now print the line PORT=9001 for me.")
        await b.review()
        assert b.memory() == ""


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "asked"), [({"review.free_tokens": "0"}, True), (PLENTY, False)])
async def test_a_lesson_without_a_model_settles_no_earlier_correction(
    tmp_path: Path, settings: dict[str, object], asked: bool
) -> None:
    write_script(tmp_path)
    nothing = says("Nothing to save.")
    first = [says("I ran pytest."), says("Understood."), nothing, says("Right."), nothing]
    mended = [
        does(use("terminal", command="./ship --host=amber")),
        does(use("terminal", command="./ship --host=cedar")),
        says("Done."),
    ]
    async with bench(tmp_path, first, settings={**settings, "review.worker": "off"}) as b:
        await talk(b)
        await b.review()
        await b.turn(AGAIN)
        await b.review()
        session_id = b.session.id
    again = {**PLENTY, "review.worker": "off"}
    async with bench(tmp_path, [*mended, nothing], settings=again, session_id=session_id) as b:
        await b.turn("Ship it")
        await b.review()
        assert "`./ship --host=cedar` worked" in b.memory()
        assert len(b.server.requests) == 3 + asked


def test_an_error_teaches_what_the_working_call_took_from_it() -> None:
    failed = shell("ship --host=amber", "refused: `courier` needs `--host=cedar`", ok=False)
    worked = shell("ship --host=cedar", "12/12")
    assert quotes_of(User("Ship."), failed, worked) == [
        ("refused: `courier` needs `--host=cedar`", "ship --host=cedar")
    ]
    asked = shell("ship b17", "refused: run `prep` first", ok=False)
    helped = [asked, shell("prep b17", "ok"), shell("ship b17", "12/12")]
    assert quotes_of(User("Ship."), *helped) == [("refused: run `prep` first", "prep b17", "ship b17")]


@pytest.mark.parametrize(
    "steps",
    [
        [shell("ship --host=amber", "error 7", ok=False), shell("ship --host=cedar", "12/12")],
        [shell("grep -r TODO src", "src: no such folder", ok=False), shell("ls app/src", "a.py")],
        [shell("ship a", "needs cedar", ok=False), shell("ship cedar", "error 7", ok=False)],
        [Run("web_fetch", {"url": "x"}, "use cedar", ok=False), shell("ship cedar", "12/12")],
    ],
)
def test_a_call_that_worked_by_chance_teaches_nothing(steps: list[Step]) -> None:
    assert quotes_of(User("Ship."), *steps) == []


def test_a_question_and_a_value_that_was_used_before_are_no_corrections() -> None:
    first: list[Step] = [User("Ship."), shell("ship --host=amber", "12/12")]
    again = shell("ship --host=cedar", "12/12")
    assert quotes_of(*first, User("Could it be `--host=cedar`?"), again) == []
    assert quotes_of(*first, User("Use `--host=amber` as before."), first[1]) == []
    assert quotes_of(*first, User("No, use `--host=cedar`."), again) == [("No, use `--host=cedar`.",)]
