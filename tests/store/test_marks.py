"""What of a message goes into the index, under which marks, and what is kept small in other tables."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tests.store.support import ONLY_SQLITE, USAGE, asking, new_log, on, talk, user
from whet.contract.errors import NotFound
from whet.contract.messages import Message, ToolCall
from whet.store import grants, index, learned, outcomes, rows, sessions
from whet.store.copies import find_nearest
from whet.store.sessions import NewSession


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("begin", "end", "marks"),
    [
        ("2026-11-21", "2026-11-22", ["\ue00420261121"]),
        ("2026-11-21", "2026-11-22T00:00:00.001", ["\ue00420261121", "\ue00420261122"]),
        ("2026-11-21T23:59:00", "2026-11-22T00:01:00", ["\ue00420261121", "\ue00420261122"]),
        ("2026-11-21", "2026-11-21", ["\ue00420261121"]),
        ("2026-01-01", "2026-02-12", [f"\ue005{month}" for month in ("202601", "202602")]),
        ("2025-11-15", "2026-02-01", [f"\ue005{month}" for month in ("202511", "202512", "202601")]),
        ("2020-01-01", "2023-05-02", []),
    ],
)
def test_a_time_is_named_by_its_days_or_its_months(begin: str, end: str, marks: list[str]):
    assert index.time_marks(ms(begin), ms(end)) == marks


def test_forty_days_are_named_by_days_and_forty_months_by_months():
    first = ms("2026-01-01")
    days = index.time_marks(first, first + 41 * 86_400_000)
    assert (len(days), days[-1]) == (41, "\ue00420260210")
    assert index.time_marks(first, first + 41 * 86_400_000 + 1) == ["\ue005202601", "\ue005202602"]
    months = index.time_marks(ms("2020-01-01"), ms("2023-05-01"))
    assert (len(months), months[0], months[-1]) == (40, "\ue005202001", "\ue005202304")


def test_a_time_beyond_the_years_1_to_9999_is_named_by_the_nearest_day():
    for beyond, edge in ((10**17, ms("9999-12-31")), (-(10**17), ms("0001-01-01"))):
        assert index.time_marks(beyond, beyond) == index.time_marks(edge, edge) != []


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("user", "hi"), "hi"),
        (Message("assistant", "so", (ToolCall("1", "put", '{"a": "b"}'),)), 'so\nput {"a": "b"}'),
        (
            Message("assistant", "", (ToolCall("1", "put", r'{"a\n": ["b\"", 3, {"c": null}]}'),)),
            '\nput a\n\nb"\n3\nc\nNone',
        ),
        (Message("assistant", "", (ToolCall("1", "put", r"{\broken"),)), "\nput {\\broken"),
        (Message("tool", "done", tool_call_id="1", tool_name="put"), "done"),
        (Message("assistant", "said", reasoning="thought"), "said"),
    ],
)
def test_what_can_be_found_of_a_message(message: Message, text: str):
    role, _, content, extra = rows.pack(message, 0)
    assert index.plain_text(role, content, extra) == text


@ONLY_SQLITE
def test_each_message_stands_in_the_index_with_its_marks_and_some_with_a_beat(db, clock):
    async def main():
        await talk(db, clock, "s1", "hello", workspace="/w", profile="ann")
        log = await new_log(db, clock, "s2")
        turn = await log.begin_turn(user("go"))
        await log.append_reply(turn, asking("a"), USAGE, "m")
        return log, turn

    log, turn = asyncio.run(main())
    while on(db, index.index_batch):
        pass

    def stored() -> list[int]:
        return [
            number
            for (number,) in db.read_now(lambda c: c.execute("SELECT rowid FROM messages_fts").fetchall())
        ]

    one, two = (on(db, sessions.key_of, id_) << rows.SEQ_BITS for id_ in ("s1", "s2"))
    assert stored() == sorted([-2 * (two | 2), -2 * (two | 1), -2 * (one | 2), -2 * (one | 1)])

    def having(*marks: str) -> list[int]:
        match = " AND ".join(f'"{mark}"' for mark in marks)
        sql = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid"
        return [number for (number,) in db.read_now(lambda c: c.execute(sql, (match,)).fetchall())]

    assert having(index.profile_mark("ann")) == [-2 * (one | 2), -2 * (one | 1)]
    assert having(index.workspace_mark("/w"), index.role_mark(rows.USER)) == [-2 * (one | 1)]
    assert len(having("\ue00420261121")) == 4 == len(having("\ue005202611"))
    on(db, index.remove_messages, one | 2, one | 3)
    assert having(index.profile_mark("ann")) == [-2 * (one | 1)]
    asyncio.run(log.end_turn(turn, "answered", ""))


def test_of_each_way_to_where_it_was_said_the_last_that_is_there_counts():
    assert list(find_nearest([[1, 2, 3], [4, 5], [6, 2], [7]], {1, 2, 4, 5, 6})) == [2, 5]
    assert list(find_nearest([[1, 2, 3]], {1, 3})) == [1] and list(find_nearest([[1]], {2})) == []


async def test_a_grant_is_kept_once_and_taken_back_once(db, clock):
    repository = grants.GrantRepository(db, clock)
    for tool, pattern, workspace in (("t", "p", ""), ("t", "p", "/w"), ("t", "p", "")):
        await repository.add(tool, pattern, workspace)
    first, second = await repository.all()
    assert first == grants.GrantRow(first.id, "t", "p", "", "2026-11-21T09:00:00.000Z")
    assert (second.workspace, second.id > first.id) == ("/w", True)
    assert on(db, grants.add, "t", "p", "", "later") == first
    assert on(db, grants.remove, first.id) and not on(db, grants.remove, first.id)
    assert on(db, grants.list_grants) == [second]


def test_what_a_session_began_with_and_what_chance_kept_from_it(db):
    for id_ in ("s1", "s2"):
        on(db, sessions.create, NewSession(id_), "now")
    shown, kept = learned.ContextItem("skill", "a", "h1", "l" * 130), learned.ContextItem("skill", "b", "h2")
    on(db, learned.record_items, "s1", [shown], [kept], randomised=True)
    on(db, learned.record_items, "s2", [kept])
    assert on(db, learned.list_held_out_names, "s1") == {"b"}
    assert on(db, learned.list_held_out_names, "s2") == frozenset()
    db.write_now(lambda c: c.execute("UPDATE sessions SET turns = 1"))
    uses = on(db, outcomes.list_item_uses, ["skill"])
    assert [(use.item.name, use.session_id, use.held_out, use.randomised) for use in uses] == [
        ("a", "s1", False, True),
        ("b", "s1", True, True),
        ("b", "s2", False, False),
    ]
    assert uses[0].item.label == "l" * 120 and on(db, outcomes.list_item_uses, ["memory"]) == []
    with pytest.raises(NotFound):
        on(db, learned.record_items, "gone", [])


def test_the_chats_in_which_a_skill_was_opened_are_counted_once_each(db):
    for new in (
        NewSession("s1"),
        NewSession("s2"),
        NewSession("h", private=True),
        NewSession("r", kind="review"),
    ):
        on(db, sessions.create, new, "now")

    def use(session: str, file: str = "SKILL.md", name: str = "a", hash_: str = "h") -> None:
        given = {"name": name, "file": file, "hash": hash_, "session_id": session}
        names = {field: given.get(field, "") for field in learned.Use.__struct_fields__}
        on(db, learned.add_use, "", learned.Use(**names), "now")

    for session in ("s1", "s1", "s2", "h", "r"):
        use(session)
    use("s1", "other.md")
    use("s2", name="b")
    use("s2", hash_="h2")
    numbers = on(db, outcomes.count_loading_sessions, "")
    assert numbers == {("a", "h"): 2, ("b", "h"): 1, ("a", "h2"): 1}
    assert on(db, outcomes.count_loading_sessions, "ann") == {}
