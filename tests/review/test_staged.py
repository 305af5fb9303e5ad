"""What looks once more at staged changes: exactly which rows, and what is asked of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from benchmarks.lessons.world import Run, User, World

from tests.memory.conftest import world as world
from whet.clock import SystemClock, iso
from whet.config.schema import ModelSettings, ReviewSettings
from whet.contract.events import ReviewFinished
from whet.contract.origin import Origin
from whet.contract.protocols import Provider
from whet.memory.cases import SkillCase
from whet.review.fork import ForkParts
from whet.review.improving import Improvement, improve, replace_steps, score
from whet.review.jobs import ReviewJob, Runtime, queue_review
from whet.review.judge import read_claims, write_question
from whet.review.probes import run_probes
from whet.review.spending import find_room
from whet.review.worker import ReviewWorker
from whet.store import ledger
from whet.store.ledger import LedgerRow, NewRow, Quote, hash_text
from whet.store.reviews import DaySpending

FACT = "port = 2525"


def stage(world: World, **fields: Any) -> LedgerRow:
    given: dict[str, Any] = {"kind": "memory", "item": "memory", "action": "add", "state": "staged"}
    origin = Origin("review", "child", task_id=fields.pop("task", "j"))
    new = NewRow(**{**given, "origin": origin, "after": "the port", "trust": "observed", **fields})
    return world.database.write_now(lambda db: ledger.insert_row(db, new, "now"))


def probed(world: World) -> tuple[list[str], list[int]]:
    ran: list[str] = []

    def look(command: str, workspace: str) -> str:
        ran.append(f"{workspace}: {command}")
        return f"{FACT}\n"

    return ran, run_probes(world.database, "j", (), look, "2026-11-21")


def test_what_no_command_of_this_machine_showed_is_not_marked_as_checked(world: World) -> None:
    session = asyncio.run(world.session([User("Which port?"), Run("terminal", "cat app.toml", FACT)]))
    world.database.write_now(lambda db: db.execute("UPDATE sessions SET workspace = '/work'"))
    shown = (Quote(FACT, session, 3, "tool", trust="observed"),)
    left = [
        stage(world),  # nothing would be run for it, and the note would say that it was checked
        stage(world, evidence=(msgspec.structs.replace(shown[0], failed=True),)),
        stage(world, evidence=shown, trust="user"),
        stage(world, evidence=shown, kind="skill", item="deploy"),
        stage(world, evidence=shown, state="active"),
        stage(world, evidence=shown, task="another"),
        stage(world, evidence=shown, after="the port (checked 2026-01-01)"),
        stage(world, evidence=shown, after="is built on"),
        stage(world, evidence=(Quote(" \n", session, 3, "tool"),)),  # no line that was seen
    ]
    marked = stage(world, evidence=shown, before="is built on", after="built")
    assert probed(world) == (["/work: cat app.toml"], [marked.id])
    rows = {row.id: row for row in world.database.read_now(lambda db: ledger.select(db))}
    assert [rows[row.id] for row in left] == left
    text = "built (checked 2026-11-21)"
    assert rows[marked.id] == msgspec.structs.replace(marked, after=text, hash=hash_text(text))
    assert probed(world) == (["/work: cat app.toml"], []), "once marked, it is left as it is"


def test_a_judge_is_asked_about_twelve_claims_at_most_and_about_what_can_come_into_force(
    world: World,
) -> None:
    for fields in ({"remark": ""}, {"after": ""}, {"trust": "untrusted"}, {"state": "active"}):
        stage(world, **{"remark": "c", **fields})
    rows = [stage(world, remark=f"claim {number}") for number in range(13)]
    assert world.database.read_now(lambda db: read_claims(db, "j")) == rows[:12]
    assert world.database.read_now(lambda db: read_claims(db, "other")) == []


def test_each_claim_is_one_line_of_json_cut_to_size(world: World) -> None:
    quotes = (Quote("a\nb", "s", 1, "user"), Quote("c" * 900, "s", 2, "tool"))
    rows = [
        stage(world, remark="r" * 500, after="k" * 900, evidence=quotes),
        stage(world, item="user", remark="ä", after="k"),
        stage(world, kind="skill", item="deploy", remark="r", after="text"),
        stage(world, item="other", remark="r"),
    ]
    lines = write_question(rows).split("\n")
    assert [json.loads(line) for line in lines] == [
        {
            "number": 1,
            "taken as": "a note",
            "claim": "r" * 400,
            "quotes": "user: a\nb\ntool: " + "c" * 784,
            "kept": "k" * 800,
        },
        {"number": 2, "taken as": "something about the person", "claim": "ä", "quotes": "", "kept": "k"},
        {"number": 3, "taken as": "the procedure deploy", "claim": "r", "quotes": ""},
        {"number": 4, "taken as": "", "claim": "r", "quotes": "", "kept": "the port"},
    ]
    assert "ä" in lines[1]


def case(*commands: tuple[str, bool]) -> SkillCase:
    return SkillCase("s", "Fire.", commands)


@pytest.mark.parametrize(
    ("steps", "commands", "expected"),
    [
        (["a", "b"], [("a", False), ("b", False)], 1.0),
        (["a"], [("a", False), ("b", False)], 2 / 3),
        (["a", "c"], [("a", False), ("b", False)], 0.5),
        (["a", "b", "c"], [("a", False), ("b", False)], 0.8),
        (["b", "a"], [("a", False), ("b", False)], 0.5),
        (["c"], [("a", False)], 0.0),
        (["a"], [("a", True)], 0.0),
        (["a", "b"], [("a", False), ("b", True)], 0.0),
        (["a"], [("a", False), ("a", False)], 1.0),
        ([], [("a", False)], 0.0),
        (["a"], [], 0.0),
    ],
)
def test_a_score_is_the_mean_of_what_is_right_and_what_is_told(
    steps: list[str], commands: list[tuple[str, bool]], expected: float
) -> None:
    assert score(steps, case(*commands)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("before", "after", "is_gain"),
    [
        ({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.6}, True),
        ({"a": 0.5, "b": 0.5}, {"a": 0.4, "b": 0.9}, False),
        ({"a": 0.5, "b": 0.5}, {"a": 0.9, "b": 0.5}, False),
        ({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.4}, False),
    ],
)
def test_a_gain_is_one_on_what_was_held_out_without_a_loss(
    before: dict[str, float], after: dict[str, float], is_gain: bool
) -> None:
    assert Improvement((), before, after, ("b",), 1).is_gain is is_gain


def test_steps_stand_where_the_old_ones_stood() -> None:
    text = "head\n1. `a` → one\nbetween\n2. `b`\ntail\n"
    assert replace_steps(text, ["b", "a", "c`d"]) == "head\n1. `b`\n2. `a` → one\n3. ``c`d``\nbetween\ntail\n"
    assert replace_steps("head\n", ["a"]) == "head\n1. `a`\n" and replace_steps("1. `a`", []) == "\n"


def test_without_steps_or_with_one_case_there_is_nothing_to_improve() -> None:
    for text, cases in (("no steps", 2), ("1. `a`", 1)):
        with pytest.raises(Exception, match="no numbered steps" if cases == 2 else "1 cases"):
            improve(text, [case(("a", False))] * cases, lambda prompt: "", 1)


async def test_a_bug_in_a_review_is_one_line_and_the_next_try_comes_later(world: World) -> None:
    def broken(order: ReviewJob) -> tuple[Provider, bool]:
        raise ZeroDivisionError("a bug\nin it")

    session, clock = await world.session([User("hello")]), SystemClock()
    order = ReviewJob(session, 1, ("memory",), ("asked",), Runtime(ModelSettings()), 100)
    queued = world.database.write_now(lambda db: queue_review(db, order, session, clock))
    unused: Any = None
    parts = ForkParts(world.database, clock, {}, *[unused] * 6)
    told: list[ReviewFinished] = []
    worker = ReviewWorker(parts, lambda profile: world.learning, ReviewSettings(), broken, told.append)
    done = await worker.run_one()
    assert done is not None and (done.job_id, done.session_id) == (queued.job_id, session)
    assert (done.state, done.note, done.by_hand) == ("waiting", "ZeroDivisionError: a bug in it", True)
    assert done.until > iso(clock.now()) and told == [done]
    assert [await worker.run_one()] == [None], "it is not due yet"


@pytest.mark.parametrize(
    ("free", "reviewed", "other", "expected", "has"),
    [
        (0, 0, 0, 0, True),
        (0, 0, 0, 1, False),
        (1_000, 0, 0, 250, True),
        (1_000, 0, 0, 251, False),
        (1_000, 200, 0, 50, True),
        (1_000, 200, 0, 51, False),
        (0, 100, 900, 200, True),
        (0, 100, 900, 201, False),
        (2_000, 100, 1_400, 400, True),
        (2_000, 100, 1_400, 401, False),
    ],
)
def test_reviews_have_a_quarter_of_the_days_tokens(
    free: int, reviewed: int, other: int, expected: int, has: bool
) -> None:
    settings = ReviewSettings(share=0.25, free_tokens=free)
    assert (expected <= find_room(settings, DaySpending(reviewed, other, None))) is has
