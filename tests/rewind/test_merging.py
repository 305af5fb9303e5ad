"""Two changes of one file are merged line by line, or not at all."""

from __future__ import annotations

import pytest

from whet.rewind.planning import merge_texts

BASE = b"".join(b"line %d\n" % number for number in range(1, 10))


def changed(**lines: str) -> bytes:
    """Return the base with some lines replaced: `changed(l2="two")`."""
    rows = BASE.splitlines(keepends=True)
    for name, text in lines.items():
        rows[int(name[1:]) - 1] = text.encode()
    return b"".join(rows)


def test_edits_after_one_that_both_sides_made_are_kept() -> None:
    mine, other = changed(l2="two\n", l5="five\n"), changed(l2="two\n", l8="eight\n")
    assert merge_texts(BASE, mine, other) == changed(l2="two\n", l5="five\n", l8="eight\n")
    assert merge_texts(BASE, other, mine) == changed(l2="two\n", l5="five\n", l8="eight\n")


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (changed(l2="two\n"), changed(l2="zwei\n")),
        (changed(l2="two\n"), changed(l3="three\n")),
        (changed(l2=""), changed(l2="zwei\n")),
        (changed(l2="two\0\n"), changed(l8="eight\n")),
    ],
)
def test_edits_that_touch_and_binary_texts_are_not_merged(mine: bytes, other: bytes) -> None:
    assert merge_texts(BASE, mine, other) is None


def test_lines_that_one_side_adds_or_removes_move_the_others_edits() -> None:
    mine, other = changed(l1="", l2="two\nand a half\n"), changed(l9="the end")
    assert merge_texts(BASE, mine, other) == changed(l1="", l2="two\nand a half\n", l9="the end")
