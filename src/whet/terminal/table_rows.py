"""Change the rows of Markdown tables so that a renderer shows all of their text.

GitHub's rules end a cell at each `|`, in a code span too, and drop the cells that the header does not have.
Models write `a|b` in code spans nevertheless. (GFM 0.29, 4.10)
"""

from __future__ import annotations

import re

_DELIMITER_ROW = re.compile(r"(?=.*\|)\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_CODE = re.compile(r"(?<![`\\])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_PIPE = re.compile(r"(?<!\\)\|")


def keep_cells(markdown: str) -> str:
    """Return Markdown in which no row of a table has more cells than its table. A `|` too many, first of all
    one in a code span, is escaped, so that it is text."""
    if "|" not in markdown:
        return markdown
    lines, columns, fence = markdown.split("\n"), 0, ""
    for number, line in enumerate(lines):
        if match := _FENCE.match(line):
            fence = "" if fence and line.strip().startswith(fence) else fence or match[1]
        if fence or "|" not in line:
            columns = 0
        elif number + 1 < len(lines) and not columns and _DELIMITER_ROW.fullmatch(lines[number + 1]):
            columns = len(_separators(lines[number + 1])) + 1
        if columns:
            lines[number] = _fit_row(line, columns)
    return "\n".join(lines)


def _fit_row(row: str, columns: int) -> str:
    """Return a row with at most as many cells as its table has columns."""
    if len(_separators(row)) < columns:
        return row
    escaped = _CODE.sub(lambda match: _PIPE.sub(r"\\|", match[0]), row)
    row = escaped if len(_separators(escaped)) >= columns - 1 else row
    for at in reversed(_separators(row)[columns - 1 :]):
        row = f"{row[:at]}\\{row[at:]}"
    return row


def _separators(row: str) -> list[int]:
    """Return the positions of the pipes between a row's cells, without those at its edges."""
    first, last = len(row) - len(row.lstrip()), len(row.rstrip()) - 1
    return [match.start() for match in _PIPE.finditer(row) if match.start() not in (first, last)]
