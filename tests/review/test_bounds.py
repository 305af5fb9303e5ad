"""What bounds a review: the day's budget, the digest's size, one order for a conversation, what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.support import FixedClock, list_jobs
from whet.config.schema import ModelSettings, ReviewSettings
from whet.contract.errors import WhetError
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.origin import Origin
from whet.contract.tools import clip
from whet.review import wording
from whet.review.budget import Budget, BudgetReached
from whet.review.digest import digest
from whet.review.jobs import ReviewJob, Runtime, queue_review, read_review_job, reviewable_kinds
from whet.review.triggers import count, day_start, reset_counters, shows_recovery
from whet.store import jobs, sessions
from whet.store.database import StateDatabase
from whet.store.ledger import Kind, LedgerRow, Quote, State
from whet.store.reviews import Counters, ReviewedTurn, TurnCall

RUNTIME = Runtime(ModelSettings())
CLOCK = FixedClock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[StateDatabase]:
    one = StateDatabase.open(tmp_path / "state.db", CLOCK)
    yield one
    one.close()


def spent(
    database: StateDatabase, tokens: int, usd: float | None, *, days_ago: int = 0, kind: str = "review"
) -> None:
    """Store a session that used so much."""

    def work(connection: apsw.Connection) -> None:
        name = f"s{CLOCK.new_id()}"
        new = sessions.NewSession(id=name, kind=kind)  # type: ignore[arg-type]
        sessions.create(connection, new, "2026-01-01T00:00:00.000Z")
        when = day_start(CLOCK.now()) if not days_ago else "2020-01-01T00:00:00.000Z"
        connection.execute(
            "UPDATE sessions SET total_tokens = ?, cost_usd = ?, last_active = ? WHERE id = ?",
            (tokens, usd, when, name),
        )

    database.write_now(work)


def checked(database: StateDatabase, expected: Usage, **limits: float) -> str:
    settings = msgspec.convert({"daily_tokens": 0, "daily_usd": 0, **limits}, ReviewSettings)
    try:
        asyncio.run(Budget(database, CLOCK, settings).check(expected))
    except BudgetReached as error:
        return error.message
    return ""


def test_a_call_that_just_fits_the_days_tokens_is_made_and_one_more_token_is_not(
    database: StateDatabase,
) -> None:
    spent(database, 900, None)
    spent(database, 5_000, None, days_ago=1)
    spent(database, 7_000, None, kind="chat")
    assert checked(database, Usage(total_tokens=100), daily_tokens=1_000) == ""
    said = checked(database, Usage(total_tokens=101), daily_tokens=1_000)
    assert "(900 of 1,000 tokens)" in said
    assert checked(database, Usage(total_tokens=10**9)) == "", "without limits nothing is counted"


def test_the_days_money_is_kept_and_an_unknown_price_can_not_be(database: StateDatabase) -> None:
    spent(database, 1, 0.75)
    fits = Usage(total_tokens=10, cost_usd=0.25)
    assert checked(database, fits, daily_usd=1.0) == ""
    over = msgspec.structs.replace(fits, cost_usd=0.26)
    assert "($0.75 of $1.00)" in checked(database, over, daily_usd=1.0)
    unknown = msgspec.structs.replace(fits, cost_usd=None)
    assert "price of the model is not known" in checked(database, unknown, daily_usd=1.0)
    assert checked(database, unknown, daily_tokens=100) == ""
    assert "(1 of 10 tokens)" in checked(database, fits, daily_tokens=10, daily_usd=5.0)
    spent(database, 1, None)
    assert "price of the model is not known" in checked(database, fits, daily_usd=1.0)


# --- the digest --------------------------------------------------------------------------------------

TALK = [
    Message("user", "please look at it"),
    Message("assistant", "I look.", tool_calls=(ToolCall("c", "terminal", '{"command": "make"}'),)),
    Message("tool", "12 passed", tool_name="terminal", tool_call_id="c"),
    Message("tool", "broken", tool_name="terminal", tool_call_id="d", is_error=True),
    Message("assistant", "", tool_calls=(ToolCall("e", "todo", "{}"),)),
]


def test_a_conversation_is_written_row_by_row() -> None:
    assert digest(TALK, 1_000) == (
        "<conversation>\nPERSON:\nplease look at it\n\nAGENT:\nI look.\n"
        'CALL terminal {"command": "make"}\n\nRESULT of terminal:\n12 passed\n\n'
        "FAILED RESULT of terminal:\nbroken\n\nCALL todo {}\n</conversation>"
    )


def test_what_the_person_typed_early_outlasts_the_work_in_the_middle_of_a_long_day() -> None:
    day: list[Message] = []
    for number in range(60):
        call = ToolCall(f"c{number}", "terminal", f'{{"command": "make {"x" * 90} {number}"}}')
        day += [Message("user", f"Do task {number} next."), Message("assistant", "", tool_calls=(call,))]
        day += [Message("tool", "r" * 400, tool_name="terminal", tool_call_id=call.id)]
    text = digest(day, 1_000)
    assert len(text) <= 4_040 and all(f"Do task {number} next." in text for number in range(60))
    assert "x 59" in text and "x 30" not in text


def test_long_results_are_cut_before_anything_else_and_only_as_far_as_needed() -> None:
    result = Message("tool", "r" * 3_900, tool_name="terminal", tool_call_id="c")
    said = Message("user", "s" * 3_900)
    whole = digest([said, result], 2_000)
    assert "s" * 3_900 in whole and "r" * 3_900 in whole
    less = digest([said, result], 1_700)
    assert "s" * 3_900 in less and "r" * 1_200 in less and "r" * 1_300 not in less
    even = Message("user", "s" * 3_902)
    size = len(digest([even, result], 9_000)) - len("<conversation>\n\n</conversation>")
    assert size % 4 == 0 and "r" * 3_900 in digest([even, result], size // 4)
    exact = digest([Message("user", "s" * 72)], 20)
    assert "s" * 72 in exact and "s" * 73 not in digest([Message("user", "s" * 73)], 20)


@pytest.mark.parametrize("cap", [4_000, 2_000, 1_000, 500, 240, 120])
def test_a_result_is_cut_to_the_next_size_that_fits(cap: int) -> None:
    result = Message("tool", "r" * 9_000, tool_name="terminal", tool_call_id="c")
    assert f"RESULT of terminal:\n{clip('r' * 9_000, cap)}\n<" in digest([result], (cap + 72) // 4)
    assert clip("r" * 9_000, 4_000) in digest([result], 99_000)


def test_a_digest_keeps_to_its_size() -> None:
    many = [Message("user", f"{n} " + "word " * 900) for n in range(40)]
    text = digest(many, 500)
    assert len(text) <= 500 * 4 + 100 and "characters cut" in text


# --- orders ------------------------------------------------------------------------------------------


def order(session_id: str = "s", turn: int = 1, **more: object) -> ReviewJob:
    base = ReviewJob(session_id, turn, ("memory",), ("turns",), RUNTIME, 100)
    return msgspec.structs.replace(base, **more)


def queued(database: StateDatabase) -> list[tuple[ReviewJob, str]]:
    found = database.read_now(lambda db: list_jobs(db, kinds=("review",)))
    return [(read_review_job(job.payload), job.run_after) for job in found]


def put_all(database: StateDatabase, *orders: ReviewJob) -> list[jobs.QueuedJob]:
    for one in {order.session_id for order in orders}:
        new = sessions.NewSession(id=one)
        database.write_now(lambda db, new=new: sessions.create(db, new, "2026-01-01T00:00:00.000Z"))
    return [
        database.write_now(lambda db, one=one: queue_review(db, one, "conversation", CLOCK)) for one in orders
    ]


def test_a_waiting_review_is_widened(database: StateDatabase) -> None:
    first = order(turn=5, focus="tests", reasons=("turns",), others=("x", "y"))
    second = order(turn=3, kinds=("skill",), reasons=("steps", "turns"), focus="deploys")
    one, two = put_all(database, first, second)
    assert one.job_id == two.job_id and two.kinds == ("memory", "skill")
    [(found, _)] = queued(database)
    assert (found.turn, found.kinds, found.reasons, found.focus) == (
        5,
        ("memory", "skill"),
        ("turns", "steps"),
        "tests\ndeploys",
    )
    assert found.others == ("x", "y"), "those of its first turn"


def test_a_review_by_hand_is_due_at_once(database: StateDatabase) -> None:
    put_all(database, order())
    later = "2030-01-01T00:00:00.000Z"
    database.write_now(lambda db: db.execute("UPDATE jobs SET run_after = ?", (later,)) and None)
    database.write_now(lambda db: queue_review(db, order(reasons=("turns",)), "conversation", CLOCK))
    assert queued(database)[0][1] == later
    database.write_now(lambda db: queue_review(db, order(reasons=("asked",)), "conversation", CLOCK))
    assert queued(database)[0][1] < later


def test_another_session_or_an_order_of_another_version_gets_a_job_of_its_own(
    database: StateDatabase,
) -> None:
    one, two = put_all(database, order("a"), order("b"))
    assert one.job_id != two.job_id
    database.write_now(lambda db: db.execute("UPDATE jobs SET payload = '{}'") and None)
    three = database.write_now(lambda db: queue_review(db, order("a"), "conversation", CLOCK))
    assert three.job_id not in (one.job_id, two.job_id)
    with pytest.raises(WhetError, match="can't be read"):
        read_review_job("{}")


def test_a_session_is_reviewed_for_what_it_has_tools_for() -> None:
    assert reviewable_kinds(["memory", "terminal"]) == ("memory",)
    assert reviewable_kinds(["skill_manage", "memory"]) == ("memory", "skill")
    assert reviewable_kinds(["skill_view"]) == ()


# --- counting ----------------------------------------------------------------------------------------


def test_a_write_of_a_skill_sets_the_steps_back_and_keeps_what_came_after() -> None:
    calls = (
        TurnCall(1, "skill_manage", "{}", ""),
        TurnCall(2, "skill_manage", "{}", ""),
        TurnCall(3, "terminal", "{}", ""),
    )
    facts = ReviewedTurn(("go on",), calls, 10)
    assert count(Counters(turns=4, steps=7), facts, ReviewSettings()) == Counters(5, 1, ())
    refused = ReviewedTurn(("go on",), (TurnCall(1, "skill_manage", "{}", "refused"),), 10)
    assert count(Counters(4, 7), refused, ReviewSettings()) == Counters(5, 8, ())
    assert reset_counters(Counters(4, 7, ("recovery",)), ("skill",)) == Counters(4, 0)
    assert reset_counters(Counters(4, 7), ("memory",)) == Counters(0, 7)


def test_reasons_are_named_once() -> None:
    said = ReviewedTurn(("No, use ./check instead", "no, that is wrong"), (), 10)
    once = count(Counters(), said, ReviewSettings(), corrects=True)
    assert once.reasons == count(once, said, ReviewSettings()).reasons == ("correction",)
    assert count(Counters(), said, ReviewSettings()).reasons == ("correction",), "said while it worked"
    asked = ReviewedTurn(("Have a look at it",), (), 10)
    assert count(Counters(), asked, ReviewSettings()).reasons == ()


def test_a_recovery_is_near_its_failure() -> None:
    failed = TurnCall(1, "terminal", '{"command": "make a"}', "exit")
    other = [TurnCall(2, "lint", f'{{"n": {n}}}', "") for n in range(6)]
    worked = TurnCall(3, "terminal", '{"command": "make b"}', "")
    assert shows_recovery([failed, *other[:5], worked])
    assert not shows_recovery([failed, *other, worked])
    assert not shows_recovery([failed, TurnCall(3, "terminal", '{"command": "cd x && ls -l"}', "")])
    assert shows_recovery([failed, TurnCall(3, "terminal", '{"command": "ls && make b"}', "")])
    assert shows_recovery([failed, TurnCall(3, "terminal", '{"command": ""}', "")])
    assert not shows_recovery([failed, TurnCall(3, "terminal", '{"command": "make b"}', "exit")])
    timed_out = msgspec.structs.replace(failed, error_kind="timeout")
    assert shows_recovery([timed_out, worked])


# --- what is told ------------------------------------------------------------------------------------


def row(kind: Kind, item: str, action: str, state: State = "active", quotes: Sequence[str] = ()) -> LedgerRow:
    evidence = tuple(Quote(text, "s", 1) for text in quotes)
    return LedgerRow(
        1,
        "",
        "",
        kind,
        item,
        action,
        state,
        "",
        "",
        (),
        "",
        "",
        evidence,
        "user",
        "",
        0,
        0,
        Origin(),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ""),
        ([row("memory", "memory", "add", "refused")], "nothing saved, 1 refused: whet review inbox"),
        ([row("memory", "memory", "add")], "Memory updated"),
        (
            [row("memory", "memory", "add", quotes=["a"]), row("memory", "memory", "add", quotes=["a", "b"])],
            "Memory updated (2 quotes)",
        ),
        ([row("memory", "user", "add", quotes=["a"])], "User profile updated (1 quote)"),
        (
            [row("skill", "d", "patch"), row("skill", "d", "remove_file"), row("skill", "e", "move")],
            "Skill 'd' patched · Skill 'd' trimmed · Skill 'e' changed",
        ),
        ([row("skill", "d", "patch", "inbox")], "1 waits for you: whet review inbox"),
        (
            [row("memory", "memory", "add"), *[row("skill", "d", "edit", "quarantined")] * 2],
            "Memory updated · 2 wait for you: whet review inbox",
        ),
    ],
)
def test_what_a_person_is_told_of_a_review(rows: list[LedgerRow], said: str) -> None:
    assert wording.write_summary(rows) == (f"Self-improvement review: {said}" if said else "")


def test_the_message_names_the_tasks_the_tools_and_the_focus() -> None:
    text = wording.review_message(("memory",), " the tests ", ("memory", "read_file"))
    assert text.startswith(wording.TITLE) and "memory, read_file" in text
    assert "look above all at: the tests\n" in text
    assert wording.read_prompt("memory.md").strip() in text
    assert wording.read_prompt("skill.md").strip() not in text
    assert "above all" not in wording.review_message(("skill",), " ", ())
    assert "{" not in wording.review_message(("memory", "skill"), "", ("memory",))
    assert '"outcome": "failed"' in wording.review_message(("memory",), "", ("memory",), has_calls=True)


def test_there_is_budget_again_at_the_persons_midnight(database: StateDatabase) -> None:
    tomorrow = Budget(database, CLOCK, ReviewSettings()).tomorrow()
    today = day_start(CLOCK.now())
    assert tomorrow > today and tomorrow[10:] == today[10:]
