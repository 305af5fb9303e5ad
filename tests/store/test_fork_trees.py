"""The tree of forks: what stands below what, in lists and in a family."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from tests.store.conftest import StoreClock
from tests.store.support import USAGE, asking, finish, new_log, talk, user
from whet.contract.errors import NotFound
from whet.contract.messages import Message, Usage
from whet.store import bulk, forks, sessions
from whet.store.bulk import PastMessage
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript

pytestmark = pytest.mark.slow_rows("postgres")


def tree(db: StateDatabase, session_id: str) -> list[tuple[str, int, str, int]]:
    family = db.read_now(lambda it: forks.list_family(it, session_id))
    return [(tree_row.row.id, tree_row.depth, tree_row.origin, tree_row.turn) for tree_row in family]


def test_forks_stand_below_where_they_began(db: StateDatabase) -> None:
    at = "2026-11-23T00:00:0{}.000Z"

    def begin(it: apsw.Connection) -> None:
        for number, name in enumerate(("old", "other")):
            sessions.create(it, sessions.NewSession(name, title=name), at.format(number))
            bulk.prepend_messages(
                it, name, [PastMessage(Message("user", "hi"), 1), PastMessage(Message("assistant", "yes"), 2)]
            )
        for number, (name, origin) in enumerate((("a", "old"), ("b", "old"), ("aa", "a"), ("last", "other"))):
            forks.fork(it, origin, 1, name, at.format(number + 2))

    db.write_now(begin)
    listed = db.read_now(lambda it: forks.order_as_trees(it, sessions.list_sessions(it, 9)))
    assert [(tree_row.row.id, tree_row.depth) for tree_row in listed] == [
        ("other", 0),
        ("last", 1),
        ("old", 0),
        ("b", 1),
        ("a", 1),
        ("aa", 2),
    ]
    assert tree(db, "aa") == tree(db, "b")
    assert tree(db, "b") == [("old", 0, "", 0), ("a", 1, "old", 1), ("aa", 2, "a", 1), ("b", 1, "old", 1)]
    db.write_now(lambda it: sessions.set_archive_time(it, "a", at.format(9)))
    assert tree(db, "b") == [("old", 0, "", 0), ("b", 1, "old", 1), ("aa", 0, "a", 1)]


def test_a_fork_holds_the_turns_up_to_one_and_counts_them(db: StateDatabase, clock: StoreClock) -> None:
    async def begin() -> None:
        await talk(db, clock, "s1", "one", "two", "three", title="Tea", private=True)
        log = await talk(db, clock, "s2", "beside it")
        turn = await log.begin_turn(user("go"))
        await log.append_reply(turn, asking("a", "b"), USAGE, "m")
        for call in log.open_calls(turn):
            await finish(log, turn, call)
        await log.end_turn(turn, "answered", "")
        await log.begin_turn(user("still open"))
        await new_log(db, clock, "empty")

    def fork(origin: str, turn: int, new: str) -> tuple[str, int, int, int]:
        row = db.write_now(lambda it: forks.fork(it, origin, turn, new, "2026-11-23"))
        return row.title, row.turns, row.messages, row.tool_calls

    asyncio.run(begin())
    assert fork("s1", 2, "f") == ("Tea (from turn 2)", 2, 4, 0)
    assert fork("f", 1, "ff") == ("Tea (from turn 1)", 1, 2, 0), "of the first title"
    assert fork("s1", 0, "all") == ("Tea (from turn 3)", 3, 6, 0)
    assert fork("s2", 0, "calls") == ("", 2, 6, 2), "the turn that runs is none of it"
    copy = asyncio.run(Transcript.open(db, "f", clock))
    assert [message.text for message in copy.messages] == ["one", "ok", "two", "ok"]
    assert copy.session.private and copy.session.usage == Usage() and copy.live.seqs == [1, 2, 3, 4]
    for origin, turn, why in (
        ("s1", 4, "no turn 4 that has ended"),
        ("empty", 0, "no turn has ended"),
        ("s2", 3, "3"),
    ):
        with pytest.raises(NotFound, match=why):
            fork(origin, turn, "x")
