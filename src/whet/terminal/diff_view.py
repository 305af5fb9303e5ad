"""Draw the rows of a question or an edit: line numbers, coloured rows, changed words, source code.

The text of a row is never changed: it is only coloured, and broken at the terminal's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from whet.contract.changes import FileEdit
from whet.diff_marks import find_changed_words, find_row_code, number_rows
from whet.question import Row, count_folded_lines, fold_row, parse_row
from whet.terminal import wording
from whet.terminal.themes import Theme

_GUTTER = 12  # of an edit: its indent, a line number of five digits, and the bar
_DIM = "2"
_RESET = "\x1b[0m"
Span = tuple[int, int, str]
"""A part of a row, from one index to another, and its SGR parameters (colours and attributes)."""


class PaintedRow(msgspec.Struct, frozen=True):
    """A row: the gutter in front of the text, the text, its SGR parameters, and those of its parts."""

    gutter: str
    text: str
    base: str = ""
    spans: tuple[Span, ...] = ()

    def to_line(self) -> str:
        """Return the row as one line of any length, coloured up to the right edge of the terminal."""
        end = "\x1b[K" if "48;" in self.base else ""
        body = self._paint(self.gutter, 0, len(self.text))
        return body.replace(_RESET, "") + end + _RESET if self._is_painted else body

    def to_lines(self, width: int) -> list[str]:
        """Return the row broken into lines of `width` columns. The gutter begins each of them."""
        room = max(width - wording.count_columns(self.gutter), 8)
        blank = " " * (len(self.gutter) - 2) + self.gutter[-2:]
        lines: list[str] = []
        for start, end in _break(self.text, room):
            filler = " " * (room - wording.count_columns(self.text[start:end])) if "48;" in self.base else ""
            gutter = self.gutter if not start else blank
            lines.append(self._paint(gutter, start, end, filler))
        return lines

    @property
    def _is_painted(self) -> bool:
        return bool(self.base or self.spans)

    def _paint(self, gutter: str, start: int, end: int, filler: str = "") -> str:
        if not self._is_painted:
            return gutter + self.text[start:end]
        parts = [_sgr(self.base), gutter]
        for first, last, codes in _flatten(self.spans, start, end):
            parts += [_sgr(self.base, codes), self.text[first:last]]
        return "".join((*parts, _sgr(self.base), filler, _RESET))


def paint_rows(rows: Sequence[Row], theme: Theme, path: str = "", indent: str = "  ") -> list[PaintedRow]:
    """Return the rows of diffs with line numbers in place of the hunks' headers, or the rows of a command.

    `path` names the file for rows before the first row of kind "file". It decides how source code is
    coloured; for a command it ends in .sh.
    """
    numbered = number_rows(rows)
    width = max((len(str(number)) for number in numbered if number), default=0)
    words = find_changed_words(rows)
    code = find_row_code(rows, path) if theme.syntax else {}
    painted: list[PaintedRow] = []
    has_hunk = False
    for at, (row, number) in enumerate(zip(rows, numbered, strict=True)):
        if row.kind == "hunk" and width:
            if has_hunk and rows[at - 1].kind != "fold":
                painted.append(PaintedRow(f"{indent}{'':>{width}} | ", "…", _DIM))
            has_hunk = True
            continue
        has_hunk = has_hunk and row.kind != "file"
        gutter = f"{indent}{number or '':>{width}} | " if width else f"{indent}| "
        spans = [(first, last, theme.syntax.get(kind, "")) for first, last, kind in code.get(at, ())]
        spans += [(first, last, theme.words.get(row.kind, "")) for first, last in words.get(at, ())]
        painted.append(PaintedRow(gutter, row.text, theme.rows.get(row.kind, ""), _visible_spans(spans)))
    return painted


def paint_edit(edit: FileEdit, theme: Theme, max_rows: int, width: int) -> list[PaintedRow]:
    """Return a finished edit as at most `max_rows` rows, each cut to a terminal of `width` columns."""
    rows = [
        Row(row.kind, wording.cut(wording.exact(row.text).expandtabs(4), width - _GUTTER))
        for row in diff_lines(edit.diff, max_rows)
    ]
    return paint_rows(rows, theme, edit.path, "    ")


def diff_lines(diff: str, max_rows: int) -> list[Row]:
    """Return a diff as at most `max_rows` rows. If it is longer, the last row counts the omitted lines,
    including those that were already omitted from the diff."""
    rows = [parse_row(line) for line in diff.split("\n")] if diff else []
    if len(rows) <= max_rows:
        return rows
    omitted = len(rows) - max_rows + 1 + max(count_folded_lines(rows[-1]) - 1, 0)
    return [*rows[: max_rows - 1], fold_row(omitted)]


def _sgr(*codes: str) -> str:
    return f"\x1b[{';'.join(('0', *filter(None, codes)))}m"


def _flatten(spans: Sequence[Span], start: int, end: int) -> Iterable[Span]:
    """Yield spans from `start` to `end` that do not overlap, each with the codes of all spans around it."""
    edges = {start, end, *(edge for first, last, _ in spans for edge in (first, last) if start < edge < end)}
    ordered = sorted(edges)
    for first, last in pairwise(ordered):
        yield first, last, ";".join(codes for begin, stop, codes in spans if begin <= first and last <= stop)


def _break(text: str, room: int) -> list[tuple[int, int]]:
    """Return the start and the end of each line of at most `room` columns."""
    if wording.count_columns(text) <= room:
        return [(0, len(text))]
    pieces: list[tuple[int, int]] = []
    start, used = 0, 0
    for at, character in enumerate(text):
        columns = wording.count_columns(character)
        if used + columns > room:
            pieces.append((start, at))
            start, used = at, 0
        used += columns
    return [*pieces, (start, len(text))]


def _visible_spans(spans: Sequence[Span]) -> tuple[Span, ...]:
    return tuple(span for span in spans if span[2])
