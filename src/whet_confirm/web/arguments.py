"""Shows the details of a request as rows that are quick to read: changes as diffs, long texts folded.

All characters are made visible. Secrets and texts that are too long to read are hidden at first; a
`Disclosure` with `is_whole` hides nothing.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from whet.contract.texts import plural
from whet.log import mask
from whet.visible import visible
from whet_confirm.shown import MAX_SHOWN, format_json, redact

DiffKind = Literal["added", "removed", "same", "place"]

_SHORT_CHARS, _SHORT_LINES = 600, 14
_MAX_DIFF_LINES = 4_000
_PAIRS = (
    ("before", "after"),
    ("old", "new"),
    ("old_string", "new_string"),
    ("old_text", "new_text"),
    ("old_value", "new_value"),
)
_PATCHES = ("patch", "diff")
_FIRST_NAMES = (
    "command",
    "cmd",
    "sql",
    "query",
    "code",
    "path",
    "file",
    "file_path",
    "url",
    "to",
    "amount",
    "table",
)
_MARKS: Mapping[str, DiffKind] = {"+": "added", "-": "removed", "@": "place", " ": "same"}


class ArgumentDiffLine(msgspec.Struct, frozen=True):
    """One line of a diff. `mark` is the character that repeats the meaning of the colour."""

    kind: DiffKind
    mark: str
    text: str


class ArgumentRow(msgspec.Struct, frozen=True):
    """One argument: its name and its value as text, or as a diff."""

    name: str
    text: str = ""
    is_block: bool = False
    is_folded: bool = False
    size: str = ""
    diff: tuple[ArgumentDiffLine, ...] = ()
    added: int = 0
    removed: int = 0


class Disclosure(msgspec.Struct, frozen=True):
    """How much is shown: everything (`is_whole`), or all but secrets, `redacted` values and long texts."""

    redacted: Sequence[str] = ()
    is_whole: bool = False

    def show(self, text: str, limit: int = MAX_SHOWN) -> str:
        """Return a text as it is shown."""
        return visible(text, len(text), masking=None) if self.is_whole else visible(text, limit, masking=mask)

    def show_line(self, text: str) -> str:
        """Return a text as it is shown, on one line."""
        return self.show(text.replace("\n", "⏎"))

    def show_details(self, details: Mapping[str, Any]) -> dict[str, Any]:
        """Return the details as they are shown."""
        return (
            dict(details) if self.is_whole else cast("dict[str, Any]", redact(dict(details), self.redacted))
        )


def build_rows(details: Mapping[str, Any], disclosure: Disclosure) -> list[ArgumentRow]:
    """Return the arguments, the most important first: changes, then commands and paths, then the others."""
    visible_details = disclosure.show_details(details)
    result: list[ArgumentRow] = []
    used: set[str] = set()
    for before, after in _PAIRS:
        old, new = visible_details.get(before), visible_details.get(after)
        if not isinstance(old, str) or not isinstance(new, str):
            continue
        # All unchanged lines are shown too: only the agent claims that they are unchanged, and they may run.
        if lines := diff_lines(old, new, disclosure, around=_MAX_DIFF_LINES):
            result.append(_diff_row(f"{before} → {after}", lines))
            used |= {before, after}
    for name in _PATCHES:
        value = visible_details.get(name)
        if isinstance(value, str) and ("\n+" in value or "\n-" in value):
            result.append(_diff_row(name, _parse_patch(value, disclosure)))
            used.add(name)
    order = sorted((name for name in visible_details if name not in used), key=_rank)
    return result + [_build_row(name, visible_details[name], disclosure) for name in order]


def diff_lines(
    old: str, new: str, disclosure: Disclosure, *, around: int = 3
) -> tuple[ArgumentDiffLine, ...]:
    """Return the differing lines, with `around` lines of context."""
    before, after = disclosure.show(old).split("\n"), disclosure.show(new).split("\n")
    if len(before) + len(after) > _MAX_DIFF_LINES:
        # Comparing is quadratic at worst, so a very long change is shown whole, old then new.
        removed = [ArgumentDiffLine("removed", "-", line) for line in before]
        return (*removed, *(ArgumentDiffLine("added", "+", line) for line in after))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=around))[2:]
    return tuple(_parse_diff_line(line) for line in lines)


def format_document(details: Mapping[str, Any], disclosure: Disclosure) -> str:
    """Return all details as indented JSON."""
    return disclosure.show(format_json(disclosure.show_details(details)))


def _rank(name: str) -> int:
    return _FIRST_NAMES.index(name) if name in _FIRST_NAMES else len(_FIRST_NAMES)


def _build_row(name: str, value: object, disclosure: Disclosure) -> ArgumentRow:
    text = value if isinstance(value, str) else _format_value(value)
    visible_text = disclosure.show(text)
    lines = visible_text.count("\n") + 1
    is_long = len(visible_text) > _SHORT_CHARS or lines > _SHORT_LINES
    is_block = lines > 1 or len(visible_text) > 70 or name in ("command", "cmd", "sql", "query", "code")
    size = f"{plural(lines, 'line')}, {plural(len(text), 'character')}" if is_long else ""
    return ArgumentRow(disclosure.show(name), visible_text, is_block=is_block, is_folded=is_long, size=size)


def _format_value(value: object) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    return flat if len(flat) <= 70 else format_json(value)


def _diff_row(name: str, lines: tuple[ArgumentDiffLine, ...]) -> ArgumentRow:
    added = sum(line.kind == "added" for line in lines)
    removed = sum(line.kind == "removed" for line in lines)
    return ArgumentRow(
        visible(name, 200),
        is_folded=len(lines) > 60,
        size=plural(len(lines), "line"),
        diff=lines,
        added=added,
        removed=removed,
    )


def _parse_patch(text: str, disclosure: Disclosure) -> tuple[ArgumentDiffLine, ...]:
    lines: list[ArgumentDiffLine] = []
    for line in disclosure.show(text).split("\n"):
        is_head = line.startswith(("+++", "---", "diff ", "index "))
        lines.append(ArgumentDiffLine("place", " ", line) if is_head else _parse_diff_line(line))
    return tuple(lines)


def _parse_diff_line(line: str) -> ArgumentDiffLine:
    kind = _MARKS.get(line[:1], "same")
    if kind == "place":
        return ArgumentDiffLine("place", " ", line)
    return ArgumentDiffLine(
        kind, line[:1] if line[:1] in _MARKS else " ", line[1:] if line[:1] in _MARKS else line
    )
