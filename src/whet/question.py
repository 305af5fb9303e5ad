"""Turn an approval request into text for a person: what would be written or run, why the person is asked, and
what an approval would cover.

A terminal colours the rows, a page marks them up, and a chat quotes them. The text can be shown whole, or
folded if there is little room. It is exact, except that values of secrets are masked, and characters that
hide or reorder text are written as codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from whet.contract.changes import REPLACES, FileEdit, TextChange, split_lines
from whet.contract.protocols import ApprovalRequest, GrantScope
from whet.contract.tags import BUILT_IN
from whet.contract.texts import plural
from whet.contract.tools import tags_of
from whet.contract.wildcards import has_wildcard, unescape
from whet.late import late_pattern
from whet.visible import visible_line

RowKind = Literal[
    "title",
    "file",
    "hunk",
    "added",
    "removed",
    "same",
    "exact",
    "fold",
    "note",
    "folder",
    "reason",
    "undo",
    "scope",
]
_CONTEXT = 3
_LINE_CHARS, _FOLDED_CHARS, _END_CHARS = 2_000, 400, 80
_COMPARED_LINES = 4_000
_EDIT_CHARS = 6_000
HUNK = late_pattern(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_FOLD = late_pattern(r"… ([\d,]+) more lines?")
_OUTPUT = late_pattern(r"\d*[<>&|]+ ")
_TAIL_SHARE = 4
_MAX_NAMED_FILES, _MAX_QUOTED_CHARS = 3, 60
FOLDED_ROWS = 40
TAKE_BACK = "take back: whet approvals"
"""How to revoke an "always"; shown next to that choice."""
NO_COMMANDS = " (covers no shell commands)"
"""The end of the scope of a lasting yes to files."""
ANY_ARGUMENTS = " with any arguments"
"""Follows the first words of a command in the scope of a lasting yes to them."""
IN_WORKSPACE = " in the workspace"
"""Where a lasting yes to a command holds. One to a dangerous command holds in its own folder only."""
NOTHING_ELSE = " (covers nothing else that a command does)"
"""The end of the scope of a lasting yes to a part of a command."""
LABELS: dict[RowKind, str] = {"folder": "Runs in", "reason": "Why asked", "undo": "To undo"}
"""The label in front of a note of each kind."""


class Row(msgspec.Struct, frozen=True):
    """One line of a question. Diff rows have their sign in front of the text."""

    kind: RowKind
    text: str


class QuestionText(msgspec.Struct, frozen=True):
    """A question in parts: its title, the action, and the facts that a person should know for the answer."""

    title: str
    body: tuple[Row, ...]
    notes: tuple[Row, ...]

    def fold_rows(self, max_rows: int = FOLDED_ROWS) -> tuple[Row, ...]:
        """Return at most `max_rows` rows of the body: its beginning, a row that counts the omitted ones, and
        its end. The middle of a long row is replaced by a count of its characters."""
        rows = tuple(map(_fold_text, self.body))
        if len(rows) <= max_rows:
            return rows
        tail = len(rows) - max_rows // _TAIL_SHARE
        header = _continue_hunk(rows[: tail + 1])
        head = max_rows - (len(rows) - tail) - len(header) - 1
        return (*rows[:head], fold_row(tail - head), *header, *rows[tail:])


def build_question(request: ApprovalRequest) -> QuestionText:
    """Build the question for a request."""
    if request.changes:
        body = tuple(row for change in request.changes for row in diff_rows(change))
        title = _describe_changes(request.changes)
    else:
        body = tuple(Row("exact", line) for line in request.subject.split("\n"))
        title = f"Whet wants to {visible_line(request.intent or f'use the tool {request.tool}')}:"
    return QuestionText(title, body, tuple(_list_notes(request)))


def label_note(row: Row) -> str:
    """Return a note's text with the label of its kind in front."""
    return f"{LABELS[row.kind]}: {row.text}" if row.kind in LABELS else row.text


def _continue_hunk(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the header of a hunk that begins with the last of `rows`, for the line numbers after a fold.
    Returns nothing if that row is not in a hunk."""
    first = next((at for at in range(len(rows) - 1, -1, -1) if rows[at].kind == "hunk"), len(rows) - 1)
    match = HUNK.match(rows[first].text)
    if match is None or rows[-1].kind not in _KINDS.values():
        return ()
    kinds = [row.kind for row in rows[first:-1]]
    old = int(match[1]) + kinds.count("removed") + kinds.count("same")
    new = int(match[2]) + kinds.count("added") + kinds.count("same")
    return (Row("hunk", f"@@ -{old} +{new} @@"),)


def describe_scope(scope: GrantScope) -> str:
    """Return what a lasting yes covers, as the end of the sentence "don't ask again to"."""
    if scope.words:
        return visible_line(scope.words)
    tags = tags_of(scope.tool)
    if "command" in tags:
        text = _describe_commands(scope.patterns, is_call=bool(scope.call))
    elif "path" in tags:
        verb = "create, change or delete" if "edits" in tags else "read"
        text = f"{verb} {_describe_files(scope.patterns)}"
        text += NO_COMMANDS if scope.tool in BUILT_IN else f" with the tool {scope.tool}"
    elif "url" in tags:
        text = " and ".join(
            "read exactly this page" if "://" in pattern else f"read any page of exactly {unescape(pattern)}"
            for pattern in scope.patterns
        )
        text += NO_COMMANDS
    else:
        with_what = "whatever it is given" if "*" in scope.patterns else "if it is given exactly the same"
        text = f"use the tool {scope.tool}, {with_what}"
    return visible_line(text)


def diff_rows(change: TextChange) -> list[Row]:
    """Return a change as rows of a whole unified diff. The first row names the file and counts the lines."""
    rows, added, removed = _compare(change, _CONTEXT)
    label = "deleted, " if _is_deleted(change) else "new file, " if _is_created(change) else ""
    head = Row("file", f"{visible_line(change.path)}  ({label}{_describe_counts(change, added, removed)})")
    return [head, *rows]


def count_changed_lines(changes: Sequence[TextChange]) -> tuple[int, int]:
    """Count the lines that changes add and remove."""
    counts = [_compare(change, 0)[1:] for change in changes]
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


def list_edits(changes: Sequence[TextChange]) -> tuple[FileEdit, ...]:
    """Return changes for an event, each with line counts and a diff, which is cut if it is long."""
    edits: list[FileEdit] = []
    for change in changes:
        rows, added, removed = _compare(change, 2)
        text = "\n".join(_clip_row(row).text for row in rows)
        if len(text) > _EDIT_CHARS:
            head = text[:_EDIT_CHARS].rpartition("\n")[0]
            text = f"{head}\n{fold_row(text.count(chr(10)) - head.count(chr(10))).text}"
        edits.append(FileEdit(visible_line(change.path), added, removed, text))
    return tuple(edits)


def parse_row(line: str) -> Row:
    """Parse a line of a diff into a row."""
    kinds: dict[str, RowKind] = {"+": "added", "-": "removed", "@": "hunk", "…": "fold", "\\": "note"}
    return Row(kinds.get(line[:1], "same"), line)


def fold_row(omitted: int) -> Row:
    """Return the row that counts omitted lines."""
    return Row("fold", f"… {omitted:,} more line{'' if omitted == 1 else 's'}")


def count_folded_lines(row: Row) -> int:
    """Return how many lines a `fold_row` counts; 0 for any other row."""
    match = _FOLD.fullmatch(row.text) if row.kind == "fold" else None
    return int(match[1].replace(",", "")) if match else 0


def _describe_commands(patterns: Sequence[str], *, is_call: bool) -> str:
    """Describe the commands that patterns cover, by their first words and their files of output. With
    `is_call`, they cover one folder, otherwise the workspace."""
    begins = [unescape(text.removesuffix(" *")) for text in patterns if has_wildcard(text)]
    same = [unescape(text) for text in patterns if not has_wildcard(text)]
    outputs = [text for text in same if _OUTPUT.match(text)]
    same = [text for text in same if not _OUTPUT.match(text)]
    parts = [f"run {' or '.join(f'“{text}”' for text in begins)}{ANY_ARGUMENTS}"] if begins else []
    if same:
        is_short = len(same) == 1 and len(same[0]) <= _MAX_QUOTED_CHARS
        text = f"exactly “{same[0]}”" if is_short else "exactly this command"
        parts.append(f"run {text}")
    if parts:
        parts[-1] += " in this folder" if is_call else IN_WORKSPACE
    if outputs:
        parts.append(_describe_outputs(outputs))
    return " and ".join(parts) + (NOTHING_ELSE if begins or outputs else "")


def _describe_outputs(outputs: Sequence[str]) -> str:
    """Describe the files that may get the output of any command."""
    verbs = dict.fromkeys("add to" if ">>" in text.partition(" ")[0] else "overwrite" for text in outputs)
    files = dict.fromkeys(text.partition(" ")[2] for text in outputs)
    return f"{' or '.join(verbs)} {' and '.join(files)} with any command's output"


def _describe_files(patterns: Sequence[str]) -> str:
    files = ", ".join(map(_describe_file, patterns))
    return f"any of {files}" if len(patterns) > 1 else files


def _describe_file(pattern: str) -> str:
    text = unescape(pattern)
    return f"any file below {text.removesuffix('*')}" if has_wildcard(pattern) else text


def _describe_changes(changes: Sequence[TextChange]) -> str:
    """Describe in one sentence what happens to which files."""
    added, removed = count_changed_lines(changes)
    if len(changes) > 1:
        return f"Whet wants to {_list_files(changes)} ({_describe_lines(added, removed)})"
    change = changes[0]
    verb, path = _verb_of(change), visible_line(change.path)
    if change.through:
        path += f" through the link {visible_line(change.through)}"
    if replaced := _describe_replaced(change, added, removed):
        return f"Whet wants to replace all of {path} ({replaced}) with {plural(added, 'line')} of text"
    where = f"{verb} the file {path}"
    lines = (
        plural(added + removed, "line") if verb in ("create", "delete") else _describe_lines(added, removed)
    )
    note = f", {visible_line(change.note)}" if change.note else ""
    return f"Whet wants to {where} ({lines}{note})"


def _describe_replaced(change: TextChange, added: int, removed: int) -> str:
    """Describe the content of a file that is replaced completely, or return an empty string."""
    if change.note.startswith(REPLACES) and change.new is not None:
        return visible_line(change.note.removeprefix(REPLACES))
    is_all = added and removed > 1 and removed == len(split_lines(change.old))
    return plural(removed, "line") if is_all else ""


def _describe_lines(added: int, removed: int) -> str:
    """Return how many lines a change adds and removes."""
    if added and removed:
        return f"{plural(added, 'line')} added, {removed:,} removed"
    return f"{plural(removed, 'line')} removed" if removed else f"{plural(added, 'line')} added"


def _list_files(changes: Sequence[TextChange]) -> str:
    """Describe what happens to several files, with their names if they are few, else with their number."""
    paths: dict[str, list[str]] = {}
    for change in changes:
        paths.setdefault(_verb_of(change), []).append(visible_line(change.path))
    has_names = len(changes) <= _MAX_NAMED_FILES
    return " and ".join(
        f"{verb} {' and '.join(names) if has_names else plural(len(names), 'file')}"
        for verb, names in paths.items()
    )


def _verb_of(change: TextChange) -> str:
    if _is_deleted(change):
        return "delete"
    if _is_created(change):
        return "create"
    return "empty" if change.new == "" and change.old != "" else "change"


def _is_created(change: TextChange) -> bool:
    return change.old is None and not change.note and not _is_deleted(change)


def _is_deleted(change: TextChange) -> bool:
    return change.new is None and not change.note


def _describe_counts(change: TextChange, added: int, removed: int) -> str:
    """Describe a change in brief: the link to the file, whether it is emptied, line counts, and the note."""
    parts = [f"through {visible_line(change.through)}"] if change.through else []
    if _verb_of(change) == "empty":
        parts.append("leaves it empty")
    parts.append(f"+{added:,} −{removed:,}")
    return ", ".join((*parts, visible_line(change.note)) if change.note else parts)


def _list_notes(request: ApprovalRequest) -> list[Row]:
    rows: list[Row] = []
    if any("\r\n" in text for change in request.changes for text in (change.old, change.new) if text):
        rows.append(Row("note", "\\r at the end of a line is a Windows line end"))
    if request.folder and "command" in tags_of(request.tool):
        rows.append(Row("folder", visible_line(request.folder)))
    rows += [Row("reason", visible_line(reason)) for reason in request.reasons]
    if request.undo:
        rows.append(Row("undo", visible_line(request.undo)))
    for scope in request.scopes:
        lasts = "this session or always" if scope.always else "this session"
        rows.append(Row("scope", f"{lasts}, don't ask again to {describe_scope(scope)}"))
    return rows


def _compare(change: TextChange, context: int) -> tuple[list[Row], int, int]:
    old, new = split_lines(change.old), split_lines(change.new)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start, end = max(0, head - context), max(0, tail - context)
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    if len(before) + len(after) > _COMPARED_LINES:  # the comparison takes quadratic time
        cores = old[head : len(old) - tail], new[head : len(new) - tail]
        rows = [Row("hunk", f"@@ -{head + 1},{len(cores[0])} +{head + 1},{len(cores[1])} @@")]
        rows += [_row("-", line) for line in cores[0]] + [_row("+", line) for line in cores[1]]
    else:
        rows = _compare_lines(before, after, start, context)
    added = sum(row.kind == "added" for row in rows)
    return rows, added, sum(row.kind == "removed" for row in rows)


def _compare_lines(before: list[str], after: list[str], start: int, context: int) -> list[Row]:
    from difflib import SequenceMatcher  # noqa: PLC0415 - .5 ms that only an edit needs

    rows: list[Row] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(context):
        first, last = group[0], group[-1]
        old, new = first[1] + start + 1, first[3] + start + 1
        counts = last[2] - first[1], last[4] - first[3]
        old, new = old - (not counts[0]), new - (not counts[1])  # an empty side refers to the line before it
        rows.append(Row("hunk", f"@@ -{old},{counts[0]} +{new},{counts[1]} @@"))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [_row(" ", line) for line in before[i1:i2]]
                continue
            rows += [_row("-", line) for line in before[i1:i2]]
            rows += [_row("+", line) for line in after[j1:j2]]
    return rows


_KINDS: dict[str, RowKind] = {"+": "added", "-": "removed", " ": "same"}


def _row(sign: str, line: str) -> Row:
    text = line.removesuffix("\n")
    ends = "" if line.endswith("\n") else "  (no newline at the end)"
    safe_text = visible_line(text.replace("\t", "→   "))
    return Row(_KINDS[sign], f"{sign}{safe_text}{ends}")


def _clip_row(row: Row) -> Row:
    omitted = len(row.text) - _LINE_CHARS
    return row if omitted <= 0 else Row(row.kind, f"{row.text[:_LINE_CHARS]} [… {omitted:,} more characters]")


def _fold_text(row: Row) -> Row:
    """Return a row; a long one without its middle."""
    omitted = len(row.text) - _FOLDED_CHARS
    if omitted <= 0:
        return row
    head, end = row.text[: _FOLDED_CHARS - _END_CHARS], row.text[-_END_CHARS:]
    return Row(row.kind, f"{head} [… {omitted:,} more characters …] {end}")
