"""Helpers as rows: one for each call, one process at a time, ended once, delivered once."""

from __future__ import annotations

import msgspec
import pytest

from tests.store.support import ONLY_SQLITE, new_log, talk
from whet.contract.delegation import HelperWish
from whet.contract.errors import NotFound, StoreBusy
from whet.store import claims, helper_rows, session_deletion, sessions
from whet.store.helper_rows import HelperRow, MergePlan, WorkingTree

pytestmark = pytest.mark.slow_rows("postgres")

DEAD = f"{claims.owner_name('x').split()[0]} 999999999 - 0000 x"


def row(call: str, parent: str = "s1", **wish) -> HelperRow:
    return HelperRow(
        f"{parent}-{call}", parent, 0, call, HelperWish(f"do {call}", **wish), f"{parent}.{call}"
    )


def added(db, *rows: HelperRow) -> list[HelperRow]:
    return [db.write_now(lambda c, helper_row=one: helper_rows.add(c, helper_row)) for one in rows]


def read(db, helper: HelperRow) -> HelperRow:
    return db.read_now(lambda c: helper_rows.get(c, helper.id))


def test_a_call_has_one_helper_and_a_parent_numbers_its_own(db, clock):
    helper_row, two, again, other = added(db, row("a"), row("b"), row("a"), row("a", "s2"))
    assert [helper_row.name, two.name, again.name, other.name] == [
        "helper-1",
        "helper-2",
        "helper-1",
        "helper-1",
    ]
    assert again == helper_row and read(db, two) == two
    assert db.read_now(lambda c: helper_rows.list_helpers(c, "s1")) == [helper_row, two]
    assert db.read_now(lambda c: helper_rows.find_by_session(c, "s1.b")) == two
    assert db.read_now(lambda c: helper_rows.find_by_call(c, "s2", "b")) is None
    with pytest.raises(NotFound):
        db.read_now(lambda c: helper_rows.get(c, "nobody"))


def test_a_living_process_keeps_its_helper(db, clock):
    [helper_row] = added(db, row("a"))
    mine, other = claims.owner_name("mine"), claims.owner_name("other")
    assert db.write_now(lambda c: helper_rows.take(c, helper_row.id, mine))
    assert not db.read_now(lambda c: claims.is_gone(c, mine)), "it counts as living"
    assert db.write_now(lambda c: helper_rows.take(c, helper_row.id, mine)), "its own it may take again"
    assert not db.write_now(lambda c: helper_rows.take(c, helper_row.id, other))
    db.write_now(lambda c: helper_rows.release(c, helper_row.id, other))
    assert read(db, helper_row).owner == mine
    db.write_now(lambda c: helper_rows.release(c, helper_row.id, mine))
    assert (
        db.write_now(lambda c: helper_rows.take(c, helper_row.id, other))
        and read(db, helper_row).owner == other
    )


@ONLY_SQLITE
def test_the_helper_of_a_process_that_died_is_taken_over(db, clock):
    [helper_row] = added(db, row("a"))
    db.write_now(lambda c: helper_rows.set_owner(c, helper_row.id, DEAD))
    assert db.write_now(lambda c: helper_rows.take(c, helper_row.id, claims.owner_name("mine")))


def test_a_helper_ends_once_and_by_its_owner(db, clock):
    [helper_row] = added(db, row("a"))
    mine = claims.owner_name("mine")
    db.write_now(lambda c: helper_rows.set_owner(c, helper_row.id, mine))
    ended = msgspec.structs.replace(helper_row, reason="answered", answer="42", ended="t1")
    assert not db.write_now(lambda c: helper_rows.end_helper(c, ended, claims.owner_name("other")))
    assert db.write_now(lambda c: helper_rows.end_helper(c, ended, mine))
    assert not db.write_now(lambda c: helper_rows.end_helper(c, msgspec.structs.replace(ended, answer="43")))
    assert read(db, helper_row) == msgspec.structs.replace(ended, state="ended")
    db.write_now(lambda c: helper_rows.set_owner(c, helper_row.id, mine))
    assert read(db, helper_row).owner == "" and not db.write_now(
        lambda c: helper_rows.take(c, helper_row.id, mine)
    )


def test_results_are_delivered_once_oldest_first(db, clock):
    helper_row, two, _ = added(db, row("a"), row("b"), row("c"))
    assert db.read_now(lambda c: helper_rows.find_next_result(c, "s1")) is None
    for helper, at in ((two, "t1"), (helper_row, "t2")):
        db.write_now(
            lambda c, h=helper, at=at: helper_rows.end_helper(c, msgspec.structs.replace(h, ended=at))
        )
    for helper in (two, helper_row):
        found = db.read_now(lambda c: helper_rows.find_next_result(c, "s1"))
        assert found is not None and found.id == helper.id
        db.write_now(lambda c, h=helper: helper_rows.deliver(c, h.id, "t3"))
    assert db.read_now(lambda c: helper_rows.find_next_result(c, "s1")) is None
    with pytest.raises(StoreBusy):
        db.write_now(lambda c: helper_rows.deliver(c, helper_row.id, "t4"))
    assert read(db, helper_row).delivered == "t3"


async def test_what_people_see_of_helpers(db, clock):
    helper_row, two, three = added(
        db, row("a"), row("b", worktree=True, background=True), row("c", worktree=True)
    )
    await new_log(db, clock, "s1.a")
    await talk(db, clock, "s1.b", "x")
    db.write_now(lambda c: helper_rows.set_owner(c, helper_row.id, claims.owner_name("mine")))
    tree = WorkingTree("/t", "/r", "c0")
    db.write_now(lambda c: helper_rows.store_tree(c, two.id, tree))
    db.write_now(lambda c: helper_rows.end_helper(c, msgspec.structs.replace(two, reason="answered")))
    assert read(db, two).tree == tree

    def lines() -> list[str]:
        return [view.line for view in db.read_now(lambda c: helper_rows.list_views(c, "s1"))]

    assert lines() == [
        "helper-1 works, 0 calls, 0 tokens: do a",
        "helper-2 answered, 0 calls, 15 tokens, edits not merged: do b",
        "helper-3 waits, 0 calls, 0 tokens, edits not merged: do c",
    ]
    plans = {
        "edits conflict in x, y": MergePlan("p", conflicts=("x", "y")),
        "edits merged": MergePlan("p", will={"a": "1"}),
        "no edits": MergePlan("p"),
    }
    for words, plan in plans.items():
        db.write_now(lambda c, plan=plan: helper_rows.store_merge(c, three.id, plan))
        assert words in lines()[2] and read(db, three).merge == plan


async def test_a_session_is_listed_with_the_usage_of_its_helpers(db, clock):
    await talk(db, clock, "s1", "go")
    calls = ("1.0.0", "1.0.1", "2.0.0")
    for helper in added(db, *map(row, calls)):
        await talk(db, clock, helper.session, "x")
    (listed,) = db.read_now(lambda c: [s for s in sessions.list_sessions(c, 9) if s.id == "s1"])
    own = db.read_now(lambda c: sessions.get(c, "s1")).usage
    assert listed.usage.total_tokens == own.total_tokens + 3 * 15
    assert db.read_now(lambda c: helper_rows.helper_usage(c, "s1", 1)).total_tokens == 2 * 15
    assert db.read_now(lambda c: helper_rows.helper_usage(c, "s1.1.0.0")).total_tokens == 0


async def test_a_deleted_session_takes_its_helpers_with_it_and_itself_from_its_parents(db, clock):
    for id_ in ("s1", "s2", "s1.a"):
        await new_log(db, clock, id_)
    _, other = added(db, row("a"), row("c", "s2"))
    db.write_now(lambda c: session_deletion.delete_session(c, "s1.a"))
    assert db.read_now(lambda c: helper_rows.list_helpers(c, "s1")) == []
    [_] = added(db, row("b"))
    db.write_now(lambda c: session_deletion.delete_session(c, "s1"))
    assert db.read_now(lambda c: helper_rows.list_helpers(c, "s1")) == []
    assert db.read_now(lambda c: helper_rows.list_helpers(c, "s2")) == [other]
