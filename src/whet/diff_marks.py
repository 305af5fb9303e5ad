"""Find line numbers, changed words and kinds of source code in the rows of a diff, for a display to mark.

The terminal and the web page both use these marks, so that they show the same. Pygments splits source code;
it is imported with the first text that needs it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias

from whet.question import HUNK, Row

if TYPE_CHECKING:
    from pygments.lexer import Lexer

CodeKind: TypeAlias = Literal["keyword", "comment", "string", "number", "function", "class"]
Stretch: TypeAlias = tuple[int, int]
"""A part of a text: the index of its first character and the index after its last."""
CodeStretch: TypeAlias = tuple[int, int, CodeKind]

_WORDS = re.compile(r"\w+|\s+|.")
_MIN_ALIKE = 0.4
_MAX_MARKED_CHARS, _MAX_PAIRS = 400, 200
_MAX_CODE_LINES, _MAX_CODE_CHARS = 600, 60_000
_DIFF = ("added", "removed", "same")
_KINDS: tuple[tuple[str, CodeKind], ...] = (
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Name.Tag", "keyword"),
    ("Token.Literal.String.Doc", "comment"),
    ("Token.Literal.String", "string"),
    ("Token.Comment", "comment"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "function"),
    ("Token.Name.Attribute", "function"),
    ("Token.Name.Builtin", "class"),
    ("Token.Name.Class", "class"),
    ("Token.Name.Decorator", "class"),
)


def number_rows(rows: Sequence[Row]) -> list[int]:
    """Return each row's line number: in the old file if it was removed, else in the new file; 0 if it has
    none."""
    numbers: list[int] = []
    old = new = 0
    for row in rows:
        if row.kind == "hunk" and (match := HUNK.match(row.text)):
            old, new = int(match[1]), int(match[2])
        if row.kind not in _DIFF or not (old or new):
            numbers.append(0)
            continue
        numbers.append(old if row.kind == "removed" else new)
        old += row.kind != "added"
        new += row.kind != "removed"
    return numbers


def find_changed_words(rows: Sequence[Row]) -> dict[int, list[Stretch]]:
    """Return the words that differ between a removed line and the line that takes its place, by row."""
    stretches: dict[int, list[Stretch]] = {}
    at = pairs = 0
    while at < len(rows) and pairs < _MAX_PAIRS:
        first_added = _find_run_end(rows, at, "removed")
        end = _find_run_end(rows, first_added, "added")
        for removed, added in zip(range(at, first_added), range(first_added, end), strict=False):
            pairs += 1
            old, new = rows[removed].text, rows[added].text
            if max(len(old), len(new)) <= _MAX_MARKED_CHARS:
                stretches[removed], stretches[added] = _compare_words(old, new)
        at = max(end, at + 1)
    return stretches


def find_row_code(rows: Sequence[Row], path: str) -> dict[int, list[CodeStretch]]:
    """Return the kinds of source code by row. The old and the new side of a hunk are read separately.

    `path` names the file of rows before the first row of kind "file".
    """
    stretches: dict[int, list[CodeStretch]] = {}
    old: list[int] = []
    new: list[int] = []

    def read_hunk() -> None:
        for side in (old, new):
            _read_side(rows, side, path, stretches)
            side.clear()

    for at, row in enumerate(rows):
        if row.kind in ("file", "hunk", "fold"):
            read_hunk()
            path = _parse_path(row.text, path) if row.kind == "file" else path
        if row.kind in ("removed", "same", "exact"):
            old.append(at)
        if row.kind in ("added", "same"):
            new.append(at)
    read_hunk()
    return stretches


def find_code(text: str, *, path: str = "", language: str = "") -> list[CodeStretch]:
    """Return the kinds of source code in a text, in order. The language follows from the file name `path`, or
    is the one that a Markdown fence names. Returns nothing for an unknown language or a very long text."""
    if not text or len(text) > _MAX_CODE_CHARS or text.count("\n") >= _MAX_CODE_LINES:
        return []
    if max(map(len, text.split("\n"))) > 10 * _MAX_MARKED_CHARS:
        return []
    lexer = _find_lexer(path, language) if path or language else None
    if lexer is None:
        return []
    stretches: list[CodeStretch] = []
    for begin, token, value in lexer.get_tokens_unprocessed(text):
        if value and (kind := _kind_of(str(token))) is not None:
            stretches.append((begin, begin + len(value), kind))
    return stretches


def _find_lexer(path: str, language: str) -> Lexer | None:
    from pygments.lexers import find_lexer_class_by_name, find_lexer_class_for_filename  # noqa: PLC0415 - 20 ms
    from pygments.util import ClassNotFound  # noqa: PLC0415 - as above

    try:
        lexer_class = find_lexer_class_for_filename(path) if path else find_lexer_class_by_name(language)
    except ClassNotFound:
        return None
    return None if lexer_class is None else lexer_class()


def _parse_path(text: str, path: str) -> str:
    """Return the path in a row of kind "file": `PATH  (...)`, or the `+++` line of a unified diff."""
    if text.startswith("+++ "):
        return text[4:].partition("\t")[0].removeprefix("b/")
    return path if text.startswith("--- ") else text.rpartition("  (")[0]


def _read_side(
    rows: Sequence[Row], lines: Sequence[int], path: str, stretches: dict[int, list[CodeStretch]]
) -> None:
    texts = [rows[at].text[rows[at].kind != "exact" :] for at in lines]
    code = find_code("\n".join(texts), path=path) if path else []
    if not code:
        return
    starts = [0, *accumulate(len(line) + 1 for line in texts)]
    by_row: dict[int, list[CodeStretch]] = {at: [] for at in lines}
    for begin, end, kind in code:
        line = bisect_right(starts, begin) - 1
        while line < len(texts) and starts[line] < end:
            shift = (rows[lines[line]].kind != "exact") - starts[line]
            first, last = max(begin, starts[line]), min(end, starts[line] + len(texts[line]))
            if first < last:
                by_row[lines[line]].append((first + shift, last + shift, kind))
            line += 1
    stretches.update(by_row)


def _find_run_end(rows: Sequence[Row], at: int, kind: str) -> int:
    while at < len(rows) and rows[at].kind == kind:
        at += 1
    return at


def _compare_words(old: str, new: str) -> tuple[list[Stretch], list[Stretch]]:
    old_words, new_words = _WORDS.findall(old[1:]), _WORDS.findall(new[1:])
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    if matcher.ratio() < _MIN_ALIKE:
        return [], []
    old_at = [1, *accumulate(map(len, old_words), initial=1)][1:]
    new_at = [1, *accumulate(map(len, new_words), initial=1)][1:]
    opcodes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    removed = [(old_at[i1], old_at[i2]) for _, i1, i2, _, _ in opcodes if i1 < i2]
    added = [(new_at[j1], new_at[j2]) for _, _, _, j1, j2 in opcodes if j1 < j2]
    return removed, added


def _kind_of(token: str) -> CodeKind | None:
    return next((kind for prefix, kind in _KINDS if token.startswith(prefix)), None)
