"""Which messages stay word for word, and where a list is cut."""

from __future__ import annotations

from typing import Any

import pytest

from whet.context.head_tail import KeepLimits, pair_results, split, split_groups
from whet.contract.context_engine import ChatRow


def said(role: str, text: str, seq: int = 0) -> ChatRow:
    return {"role": role, "content": text, **({"_seq": seq} if seq else {})}


def asks(*ids: str) -> ChatRow:
    calls = [{"id": id_, "function": {"name": "f", "arguments": "{}"}} for id_ in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def gives(id_: str, text: str = "ok") -> ChatRow:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def test_each_call_is_answered_right_after_it_by_its_next_result() -> None:
    first, second = asks("a", "b"), asks("a")
    rows = [gives("a", "early"), first, gives("x"), gives("b"), gives("a", "1"), second, gives("a", "2")]
    missing = "No result of this call was recorded."
    assert pair_results(rows) == [first, rows[4], rows[3], second, rows[6]]
    alone = {"role": "tool", "tool_call_id": "c", "name": "f", "tool_name": "f", "content": missing}
    assert pair_results([asks("c"), said("user", "x")]) == [asks("c"), alone, said("user", "x")]
    assert split_groups([gives("a"), first, gives("a"), gives("b"), said("user", "x")]) == [
        [gives("a")],
        [first, gives("a"), gives("b")],
        [said("user", "x")],
    ]


def row(role: str, tokens: int, seq: int) -> dict[str, Any]:
    return said(role, ("word" * tokens)[: (tokens - 4) * 4], seq)


def parts(rows: list[ChatRow], *limits: int) -> list[list[int]]:
    return [[fields["_seq"] for fields in part] for part in split(rows, KeepLimits(*limits))]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((0, 0, 100), [[], [1, 2, 3, 4, 5, 6, 7], [], [8, 9, 10]]),  # three messages at half as much again
        ((0, 0, 400), [[], [1, 2, 3, 4, 5, 6], [], [7, 8, 9, 10]]),
        ((0, 0, 50), [[], [1, 2, 3, 4, 5, 6, 7, 8], [9], [10]]),  # the person's last stays in any case
        ((4, 400, 100), [[1, 2, 3, 4], [5, 6, 7], [], [8, 9, 10]]),
        ((4, 399, 100), [[1, 2], [3, 4, 5, 6, 7], [], [8, 9, 10]]),  # never ends with a question
        ((3, 400, 100), [[1, 2], [3, 4, 5, 6, 7], [], [8, 9, 10]]),
        ((2, 99, 100), [[], [1, 2, 3, 4, 5, 6, 7], [], [8, 9, 10]]),
        ((20, 4_000, 10_000), [[1, 2, 3, 4, 5, 6, 7, 8], [], [9], [10]]),  # the tail wins over the head
    ],
)
def test_a_list_is_cut_into_head_middle_and_tail(limits: tuple[int, ...], expected: list[list[int]]) -> None:
    rows = [row(("user", "assistant")[at % 2], 100 if at < 7 else 50, at + 1) for at in range(10)]
    if limits[2] == 400:
        rows = [row(("user", "assistant")[at % 2], 100, at + 1) for at in range(10)]
    assert parts(rows, *limits) == expected


def test_a_head_begins_with_the_persons_words() -> None:
    rows = [row(("assistant", "user")[at % 2], 100, at + 1) for at in range(6)]
    assert parts(rows, 4, 4_000, 100)[0] == []
