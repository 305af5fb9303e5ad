"""Merges what two sides made of one text, line by line; none where both changed the same lines."""

from __future__ import annotations

from difflib import SequenceMatcher

_LARGEST_BYTES = 2_000_000


def merged(base: bytes, mine: bytes, other: bytes) -> bytes | None:
    """Give a text with both sides' changes of `base`; None where they touch each other, or it is no text."""
    if mine == other or other == base:
        return mine
    if mine == base:
        return other
    if max(len(base), len(mine), len(other)) > _LARGEST_BYTES or any(
        b"\0" in text for text in (base, mine, other)
    ):
        return None
    lines = base.splitlines(keepends=True)
    edits = sorted([*_edits(lines, mine), *_edits(lines, other)], key=lambda edit: (edit[0], edit[1]))
    made: list[bytes] = []
    at = 0
    last: tuple[int, int, list[bytes]] | None = None
    for edit in edits:
        first, end, text = edit
        if edit == last:
            continue  # both sides did the same
        if last is not None and first <= last[1]:
            return None
        made += [*lines[at:first], *text]
        at, last = end, edit
    return b"".join([*made, *lines[at:]])


def _edits(lines: list[bytes], text: bytes) -> list[tuple[int, int, list[bytes]]]:
    theirs = text.splitlines(keepends=True)
    matcher = SequenceMatcher(None, lines, theirs, autojunk=False)
    return [
        (low, high, theirs[first:last])
        for tag, low, high, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]
