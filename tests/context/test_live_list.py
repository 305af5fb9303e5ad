"""Whatever list goes in, what comes out is valid for every provider, and stays put while it grows."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import FixedClock, each
from whet.context.live_list import (
    EMPTY,
    GO_ON,
    NO_RESULT,
    OPENING,
    LiveList,
    Repairer,
    ensure_answerable,
    repair,
)
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, Usage
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript


def user(text: str = "hi") -> Message:
    return Message("user", text)


def parts(*content: TextPart | ImagePart) -> Message:
    return Message("user", content)


def calls(*ids: str, text: str = "") -> Message:
    return Message("assistant", text, tool_calls=tuple(ToolCall(i, "t", "{}") for i in ids))


def result(call_id: str, text: str = "done") -> Message:
    return Message("tool", text, tool_call_id=call_id, tool_name="t")


def says(text: str) -> Message:
    return Message("assistant", text)


def check(rows: list[Message]) -> None:
    assert rows and rows[0].role == "user"
    assert rows[-1].role != "assistant"
    seen: set[str] = set()
    waiting: list[str] = []
    before = ""
    for row in rows:
        if row.role == "tool":
            assert waiting and row.tool_call_id == waiting.pop(0), "a result answers the next open call"
        else:
            assert not waiting, "every call is answered before anything else"
            assert row.content or row.tool_calls, "no empty message"
            assert not (before == "assistant" == row.role), "no two answers in a row"
        for call in row.tool_calls:
            assert call.id and call.id not in seen, "call ids are unique"
            seen.add(call.id)
            waiting.append(call.id)
        before = row.role
    assert not waiting


def test_valid_list_comes_back_as_the_same_objects() -> None:
    rows = [user(), calls("a", "b"), result("a"), result("b"), says("ok"), user("more")]
    assert all(new is old for new, old in zip(repair(rows), rows, strict=True))


@each(
    ("rows", "texts"),
    [
        ([user(), result("x")], ["hi"]),
        ([user(), calls("a"), user("next")], ["hi", "", NO_RESULT, "next"]),
        ([user(), calls("a"), result("a"), result("a", "again")], ["hi", "", "done"]),
        ([user(), calls("a", "b"), result("b", "B"), result("a", "A")], ["hi", "", "A", "B"]),
        ([says("first"), user()], [OPENING, "first", "hi"]),
        ([user(), says("one"), says("two"), user()], ["hi", "one", GO_ON, "two", "hi"]),
        ([user(), says("done")], ["hi", "done", GO_ON]),
        ([user("")], [EMPTY]),
        ([parts(TextPart(""), TextPart(""))], [EMPTY]),
        ([parts(TextPart(""), TextPart("two"))], ["\ntwo"]),
        ([parts(ImagePart("image/png", "aGk="))], [""]),
        ([user(), says(""), user("x")], ["hi", "x"]),
        ([], [OPENING]),
    ],
)
def test_each_break_is_mended(rows: list[Message], texts: list[str]) -> None:
    mended = list(repair(rows))
    check(mended)
    assert [row.text for row in mended] == texts


def test_reused_call_ids_become_unique_in_call_and_result() -> None:
    mended = list(
        repair([user(), calls("a"), result("a", "1"), calls("a", "a"), result("a", "2"), result("a", "3")])
    )
    check(mended)
    assert [row.text for row in mended if row.role == "tool"] == ["1", "2", "3"]
    assert [call.id for row in mended for call in row.tool_calls] == ["a", "a#2", "a#3"]
    hashed = list(repair([user(), calls("a#b"), result("a#b", "1"), calls("a#b"), result("a#b", "2")]))
    assert [(row.tool_call_id, row.text) for row in hashed[2::2]] == [("a#b", "1"), ("a#b#2", "2")]


def random_rows(rng: random.Random, length: int) -> list[Message]:
    rows: list[Message] = []
    for _ in range(length):
        ids = [rng.choice(["a", "b", "c", "", f"n{rng.randrange(99)}"]) for _ in range(rng.randrange(1, 4))]
        rows.append(
            rng.choice(
                [user(), user(""), says("x"), says(""), calls(*ids), calls(*ids, text="t"), result(ids[0])]
            )
        )
    return rows


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 40))
def test_any_list_becomes_valid_and_repair_is_stable(seed: int, length: int) -> None:
    rows = random_rows(random.Random(seed), length)
    mended = list(repair(rows))
    check(mended)
    assert [row.text for row in repair(mended)] == [row.text for row in mended]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_came_out_never_changes_while_the_list_grows(seed: int) -> None:
    repairer = Repairer()
    earlier: list[Message] = []
    for row in random_rows(random.Random(seed), 30):
        repairer.feed(row)
        assert all(new is old for new, old in zip(repairer.rows, earlier, strict=False))
        assert len(repairer.rows) >= len(earlier)
        earlier = list(repairer.rows)
    repairer.close()
    check(list(ensure_answerable(repairer.rows)))


async def test_a_server_that_counts_nothing_leaves_the_estimate_as_it_was(tmp_path: Path) -> None:
    clock = FixedClock()
    with closing(StateDatabase.open(tmp_path / "state.db", clock)) as database:
        log = await Transcript.create(database, NewSession(id="s"), clock)
        live = LiveList(log, 1_000)
        live.follow([user("word " * 400)])
        live.outgoing()
        size = live.tokens()
        assert live.note_usage(Usage()) == size and live.tokens() == size and not live.is_counted
        live.follow([user("word " * 400), user("came later " * 400)])
        assert live.note_usage(Usage()) == live.sent_tokens() == size < live.tokens(), "of what went out"
        assert live.note_usage(Usage(prompt_tokens=2 * size)) == 2 * size
        assert live.is_counted and live.scale_tokens(0) == 2_000  # estimates are twice as large from now on
        live.note_usage(Usage(prompt_tokens=9 * size))
        assert live.scale_tokens(0) == 4_000  # at most four times
        live.outgoing()
        live.note_usage(Usage(prompt_tokens=1))
        assert live.is_counted and live.tokens() == 1 and live.scale_tokens(0) == 250
