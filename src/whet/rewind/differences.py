"""The changes between two versions as unified diffs with line counts. Files that are not text are only
named."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Literal

import apsw
import msgspec

from whet.rewind import database
from whet.rewind.contents import read_content
from whet.rewind.database import Record
from whet.rewind.ownership import EditedPaths, find_own_paths
from whet.rewind.states import PathState, printable_path, why_left_out
from whet.tools.encoding import decode

_LARGEST_BYTES = 1_000_000
_CONTEXT = 3
_HEADER = re.compile(r"(?<=[-+])\d+")
"""The numbers of the first lines in "@@ -1,5 +1,6 @@"."""
_LINE_END = re.compile("\r?\n")


class FileDiff(msgspec.Struct, frozen=True):
    """The difference of one path.

    `lines` is a unified diff without line ends. It is empty if `note` describes the change instead: a
    binary file, a folder, a mode.
    """

    path: str
    what: Literal["added", "removed", "changed"]
    added: int = 0
    removed: int = 0
    note: str = ""
    lines: list[str] = []


def list_differences(
    connection: apsw.Connection,
    records: Sequence[Record],
    others: Sequence[Record] = (),
    edited: EditedPaths = MappingProxyType({}),
) -> list[FileDiff]:
    """Return the changes of `records` (oldest first) by path, from before the first record that touched it to
    after the last. Files that only the tools of `others` `edited` are left out."""
    spans: dict[str, tuple[int, int]] = {}
    for record in records:
        for path in find_own_paths(connection, record, others, edited):
            first = spans[path][0] if path in spans else record.before
            spans[path] = (first, record.after)
    diffs: list[FileDiff] = []
    for path in sorted(spans):
        first, last = spans[path]
        old = database.state_at(connection, path, first)
        new = database.state_at(connection, path, last)
        if old != new:
            diffs.append(diff_states(connection, path, old, new))
    return diffs


def diff_states(
    connection: apsw.Connection, path: str, old: PathState | None, new: PathState | None
) -> FileDiff:
    """Return the difference between two states of a path."""
    action: Literal["added", "removed", "changed"] = (
        "added" if old is None else "removed" if new is None else "changed"
    )
    name = printable_path(path)
    if note := _note(old, new):
        return FileDiff(name, action, note=note)
    before, after = _text(connection, old), _text(connection, new)
    if before is None or after is None:
        size = f"{old.size if old else 0:,} → {new.size if new else 0:,} bytes"
        return FileDiff(name, action, note=f"binary or large file, {size}")
    names = (f"a/{name}" if old else "/dev/null", f"b/{name}" if new else "/dev/null")
    lines = _diff_lines(before, after, names)
    body = lines[2:]
    if not lines:
        return FileDiff(name, action, note=_mode_note(old, new) or "line ends, encoding or last newline")
    return FileDiff(
        name,
        action,
        sum(line.startswith("+") for line in body),
        sum(line.startswith("-") for line in body),
        _mode_note(old, new),
        lines,
    )


def _diff_lines(before: list[str], after: list[str], names: tuple[str, str]) -> list[str]:
    """Return a unified diff. Lines that are equal at both ends are not compared again."""
    shortest = min(len(before), len(after))
    pairs = enumerate(zip(before, after, strict=False))
    first = next((number for number, (old, new) in pairs if old != new), shortest)
    pairs = enumerate(zip(reversed(before[first:]), reversed(after[first:]), strict=False))
    last = next((number for number, (old, new) in pairs if old != new), shortest - first)
    skipped, tail = max(0, first - _CONTEXT), max(0, last - _CONTEXT)
    old, new = (lines[skipped : len(lines) - tail] for lines in (before, after))
    diff = difflib.unified_diff(old, new, *names, n=_CONTEXT, lineterm="")
    return [
        _HEADER.sub(lambda at: str(int(at[0]) + skipped), line) if line[:2] == "@@" else line for line in diff
    ]


def _note(old: PathState | None, new: PathState | None) -> str:
    for state in (new, old):
        if state is not None and state.kind == "left_out":
            return f"not recorded: {why_left_out(state)}"
    kinds = [state.kind if state else "" for state in (old, new)]
    if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
        return f"a {kinds[0]} became a {kinds[1]}"
    kind = kinds[0] or kinds[1]
    if kind == "link":
        targets = [state.content.decode("utf-8", "backslashreplace") if state else "" for state in (old, new)]
        return "link " + " → ".join(f"to {target}" for target in targets if target)
    if old is not None and new is not None and old.content == new.content:
        return _mode_note(old, new)
    return "folder" if kind == "folder" else ""


def _mode_note(old: PathState | None, new: PathState | None) -> str:
    if old is None or new is None or old.mode == new.mode:
        return ""
    return f"mode {old.mode:o} → {new.mode:o}"


def _text(connection: apsw.Connection, state: PathState | None) -> list[str] | None:
    if state is None:
        return []
    data = read_content(connection, state) if state.size <= _LARGEST_BYTES else None
    decoded = decode(data) if data is not None else None
    if decoded is None:
        return None
    lines = _LINE_END.split(decoded[0])
    return lines if lines[-1] else lines[:-1]
