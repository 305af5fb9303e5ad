"""The tree of forks: what stands below what, in lists and in a family."""

from __future__ import annotations

import apsw

from whet.contract.messages import Message
from whet.store import bulk, forks, sessions
from whet.store.bulk import PastMessage
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession


def tree(db: StateDatabase, session_id: str) -> list[tuple[str, int, str, int]]:
    found = db.read_now(lambda it: forks.family(it, session_id))
    return [(one.row.id, one.depth, one.origin, one.turn) for one in found]


def test_forks_stand_below_where_they_began(db: StateDatabase) -> None:
    at = "2026-11-23T00:00:0{}.000Z"

    def begin(it: apsw.Connection) -> None:
        for number, name in enumerate(("old", "other")):
            sessions.create(it, NewSession(name, title=name), at.format(number))
            bulk.begin_with(
                it,
                name,
                [
                    PastMessage(Message(role="user", content="hi"), 1),
                    PastMessage(Message(role="assistant", content="yes"), 2),
                ],
            )
        for number, (name, origin) in enumerate((("a", "old"), ("b", "old"), ("aa", "a"), ("last", "other"))):
            forks.fork(it, origin, 1, name, at.format(number + 2))

    db.write_now(begin)
    listed = db.read_now(lambda it: forks.as_trees(it, sessions.list_sessions(it, 9)))
    assert [(one.row.id, one.depth) for one in listed] == [
        ("other", 0), ("last", 1), ("old", 0), ("b", 1), ("a", 1), ("aa", 2)
    ]  # fmt: skip
    assert tree(db, "aa") == tree(db, "b")
    assert tree(db, "b") == [
        ("old", 0, "", 0), ("a", 1, "old", 1), ("aa", 2, "a", 1), ("b", 1, "old", 1)
    ]  # fmt: skip
    db.write_now(lambda it: sessions.set_archived(it, "a", at.format(9)))
    assert tree(db, "b") == [("old", 0, "", 0), ("b", 1, "old", 1), ("aa", 0, "a", 1)]
