"""Split source code and diffs into runs, which a template turns into elements.

A run is a piece of text with its marks: the kind of code, and whether a diff changed it. The marks are those
of the terminal (`diff_marks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

from whet.diff_marks import CodeKind, find_changed_words, find_code, find_row_code, number_rows
from whet.question import Row, RowKind


class CodeRun(msgspec.Struct, frozen=True, gc=False):
    """A piece of source code. `kind` is empty for plain code. `is_changed`: a word of a diff that differs
    from the other side."""

    text: str
    kind: CodeKind | str = ""
    is_changed: bool = False


class MarkedRow(msgspec.Struct, frozen=True):
    """A row of a diff: its line number or 0, its sign, and its text in runs."""

    kind: RowKind
    number: int
    sign: str
    runs: tuple[CodeRun, ...]


@lru_cache(maxsize=256)
def mark_code(text: str, language: str) -> tuple[CodeRun, ...]:
    """Return the runs of a code block in Markdown."""
    spans = [(first, last, kind) for first, last, kind in find_code(text, language=language)]
    return _split(text, spans, ()) if text else ()


@lru_cache(maxsize=64)
def mark_file(text: str, path: str) -> tuple[tuple[CodeRun, ...], ...]:
    """Return the lines of a file, each in runs."""
    lines: list[list[CodeRun]] = [[]]
    for run in _split(text, find_code(text, path=path), ()):
        first, *others = run.text.split("\n")
        pieces = [first, *others]
        for number, piece in enumerate(pieces):
            if number:
                lines.append([])
            if piece:
                lines[-1].append(CodeRun(piece, run.kind))
    return tuple(map(tuple, lines))


def mark_rows(rows: Sequence[Row], path: str = "") -> tuple[MarkedRow, ...]:
    """Return rows of diffs with their marks. `path` names the file if no row does.

    A hunk's header is replaced by a gap, because the rows have line numbers.
    """
    numbers, words, code = number_rows(rows), find_changed_words(rows), find_row_code(rows, path)
    marked: list[MarkedRow] = []
    for at, (row, number) in enumerate(zip(rows, numbers, strict=True)):
        sign = row.text[:1] if row.kind in ("added", "removed", "same") else ""
        if row.kind == "hunk":
            if marked and marked[-1].kind != "file":
                marked.append(MarkedRow("hunk", 0, "", (CodeRun("⋯"),)))
            continue
        runs = _split(row.text, code.get(at, ()), words.get(at, ()))
        if sign:
            first = runs[0]
            runs = (CodeRun(first.text[1:], first.kind, first.is_changed), *runs[1:])
        marked.append(MarkedRow(row.kind, number, sign.strip(), tuple(run for run in runs if run.text)))
    return tuple(marked)


def _split(
    text: str, code: Sequence[tuple[int, int, str]], words: Sequence[tuple[int, int]]
) -> tuple[CodeRun, ...]:
    """Split a text where a mark begins or ends. The spans in `code` are in order and do not overlap."""
    if not code and not words:
        return (CodeRun(text),)
    edges = {0, len(text), *(edge for span in (*code, *words) for edge in span[:2])}
    runs: list[CodeRun] = []
    at = 0
    for first, last in pairwise(sorted(edges)):
        while at < len(code) and code[at][1] <= first:
            at += 1
        kind = code[at][2] if at < len(code) and code[at][0] <= first else ""
        changed = any(begin <= first and last <= end for begin, end in words)
        runs.append(CodeRun(text[first:last], kind, changed))
    return tuple(runs)
