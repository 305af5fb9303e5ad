"""What sessions began with and how their turns went, as stored."""

from __future__ import annotations

import pytest

from tests.store.support import USAGE, answer, asking, begin_session, finish, new_log, result, talk
from whet.contract.errors import NotFound
from whet.contract.tools import ToolOutput
from whet.store import learned, outcomes, session_deletion

pytestmark = pytest.mark.slow_rows("postgres")

NOTE = learned.ContextItem("memory", "n1", "h1", "the tests need X")
SKILL = learned.ContextItem("skill", "deploy", "h2", "How to deploy")


async def test_private_sessions_children_and_empty_ones_say_nothing(db, clock) -> None:
    await talk(db, clock, "private", "hello", private=True)
    await talk(db, clock, "child", "hello", kind="child")
    await new_log(db, clock, "empty")
    for name in ("private", "child", "empty"):
        await db.write(lambda c, name=name: learned.record_items(c, name, [NOTE]))
    assert await db.read(lambda c: outcomes.list_item_uses(c, ("memory",))) == []
    assert await db.read(lambda c: outcomes.list_turn_outcomes(c)) == []


async def test_signals_of_a_turn(db, clock) -> None:
    log = await talk(
        db, clock, "s1", "run the tests", "No, run them with pytest.", "thanks", "and now deploy"
    )
    await log.undo_last_turn()
    await db.write(lambda c: outcomes.record_signal(c, "s1", "good", "now", turn=3))
    await db.write(lambda c: outcomes.record_signal(c, "s1", "correction", "now", turn=1))
    turn_outcomes = await db.read(lambda c: outcomes.list_turn_outcomes(c))
    assert [sorted(turn.signals) for turn in turn_outcomes] == [["correction"], [], ["good"], ["undo"]]
    assert [turn.had_trouble for turn in turn_outcomes] == [True, False, False, True]


async def test_a_retry_is_no_undo_and_good_takes_bad_back(db, clock) -> None:
    log = await talk(db, clock, "s1", "run the tests")
    await log.undo_last_turn()
    assert await db.write(lambda c: outcomes.record_signal(c, "s1", "retry", "now")) == 1
    await db.write(lambda c: outcomes.record_signal(c, "s1", "bad", "now"))
    await db.write(lambda c: outcomes.record_signal(c, "s1", "good", "now"))
    (turn,) = await db.read(lambda c: outcomes.list_turn_outcomes(c))
    assert turn.signals == {"retry", "good"}


async def test_failed_calls_are_counted_but_denied_ones_are_not(db, clock) -> None:
    log, turn = await begin_session(db, clock, "go")
    await log.append_reply(turn, asking("a", "b", "c"), USAGE, "m")
    first, second, third = log.open_calls(turn)
    await finish(log, turn, first)
    for call, kind in ((second, "exit"), (third, "denied")):
        output = ToolOutput("no", error_kind=kind)
        await log.store_call_result(turn, call, result(call), output=output, duration_s=0.1)
    await log.append_reply(turn, answer("done"), USAGE, "m")
    await log.end_turn(turn, "failed", "it broke")
    (outcome,) = await db.read(lambda c: outcomes.list_turn_outcomes(c))
    assert (outcome.calls, outcome.failed_calls, outcome.signals) == (3, 1, {"failed"})
    assert await db.read(lambda c: outcomes.count_session_calls(c, "s1")) == (3, 1)


async def test_a_turn_that_is_not_there_is_named(db, clock) -> None:
    await new_log(db, clock)
    with pytest.raises(NotFound, match="no turn yet"):
        await db.write(lambda c: outcomes.record_signal(c, "s1", "good", "now"))
    await talk(db, clock, "s2", "hello")
    with pytest.raises(NotFound, match="no turn 4"):
        await db.write(lambda c: outcomes.record_signal(c, "s2", "good", "now", turn=4))


async def test_a_deleted_session_leaves_nothing_behind(db, clock) -> None:
    await talk(db, clock, "s1", "hello")
    await db.write(lambda c: learned.record_items(c, "s1", [NOTE]))
    await db.write(lambda c: outcomes.record_signal(c, "s1", "bad", "now"))
    await db.write(lambda c: session_deletion.delete_session(c, "s1"))
    left = await db.read(
        lambda c: c.execute(
            "SELECT (SELECT count(*) FROM session_items) + (SELECT count(*) FROM turn_signals)"
        ).fetchone()
    )
    assert left == (0,)


async def test_items_of_a_session_come_back_with_what_chance_left_out(db, clock) -> None:
    await talk(db, clock, "s1", "hello")
    await db.write(lambda c: learned.record_items(c, "s1", [NOTE], [SKILL], randomised=True))
    notes = await db.read(lambda c: outcomes.list_item_uses(c, ("memory", "user")))
    assert [(use.item, use.session_id, use.held_out, use.randomised) for use in notes] == [
        (NOTE, "s1", False, True)
    ]
    (skill,) = await db.read(lambda c: outcomes.list_item_uses(c, ("skill",)))
    assert skill.item == SKILL and skill.held_out
