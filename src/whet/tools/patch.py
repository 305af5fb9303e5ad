"""The `patch` tool: change parts of files, by a replacement or by a unified diff of several files.

All changes are computed in memory before the first byte is written. Text is matched by `edits.py` and
`diffs.py`, files are replaced by `atomic.py`.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.contract.changes import TextChange
from whet.contract.errors import BadInput
from whet.contract.texts import clean
from whet.contract.tools import Buffers, ToolContext, ToolOutput, clip
from whet.tools import atomic, diffs, editor_files, edits
from whet.tools.encoding import Encoding, decode, encode, keep_last_newline
from whet.tools.output import size
from whet.tools.paths import ConfinedPath, FileAccess, kind, open_file
from whet.tools.preview import change_of, require_approved
from whet.tools.seen import READ_VERSIONS

FILE_BYTES = 50_000_000
_SHOWN_CHARS = 3_000
_SHOWN_LINES = 600


class _File(msgspec.Struct):
    """A file being changed: its old content (None: it does not exist) and its new text (None: deleted)."""

    target: ConfinedPath
    old: bytes | None
    old_text: str
    encoding: Encoding
    seen: atomic.Fingerprint | None
    text: str | None
    notes: list[str] = []


class Replacement(msgspec.Struct, frozen=True):
    """Text that replaces other text, once or everywhere."""

    old: str
    new: str | None
    every: bool


def plan_changes(
    ctx: ToolContext, path: str, strings: Replacement, diff: str, access: FileAccess
) -> tuple[TextChange, ...]:
    """Return the changes of each file. Raises ToolError if they can't be made."""
    files = _plan_files(ctx, path, strings, diff, access)
    for file in files:
        _change(file)
    return _changes(files)


def edit(
    ctx: ToolContext,
    path: str,
    strings: Replacement,
    diff: str,
    access: FileAccess,
    stop: threading.Event,
) -> ToolOutput:
    """Make all changes or none and report each file. Durable on return. Raises ToolError."""
    files = _plan_files(ctx, path, strings, diff, access)
    changes = _changes(files)
    require_approved(changes, ctx)
    for file in files:
        READ_VERSIONS.check(ctx, file.target)
    write_notes = editor_files.write_all([_change(file) for file in files], ctx.buffers, stop.is_set)
    for file, note in zip(files, write_notes, strict=True):
        file.notes = [*file.notes, note] if note else file.notes
        READ_VERSIONS.note_edit(ctx, file.target)
    return ToolOutput("\n".join(_report(file) for file in files), changes=changes)


def _changes(files: Sequence[_File]) -> tuple[TextChange, ...]:
    return tuple(change_of(file.target, file.old, file.text) for file in files)


def _plan_files(
    ctx: ToolContext, path: str, strings: Replacement, diff: str, access: FileAccess
) -> list[_File]:
    if diff and (strings.old or strings.new):
        raise BadInput("give either diff or old_string and new_string, not both")
    if diff:
        return _from_diff(diff, path, ctx, access)
    if not path or strings.new is None:
        raise BadInput("patch needs path, old_string and new_string, or diff")
    file = _load(access.resolve(path, ctx.workspace, writes=True), ctx.buffers)
    replaced = edits.replace(file.old_text, strings.old, strings.new, every=strings.every)
    is_newline_alone = strings.old.removesuffix("\n") == strings.new  # its removal is meant, not a slip
    file.text = replaced.text if is_newline_alone else keep_last_newline(replaced.text, file.old_text)
    file.notes = [note for note in (replaced.how, _describe_lines(replaced.lines)) if note]
    return [file]


def _from_diff(diff: str, path: str, ctx: ToolContext, access: FileAccess) -> list[_File]:
    patches = diffs.parse(diff, path)
    files: dict[Path, _File] = {}
    named = access.resolve(path, ctx.workspace, writes=True) if path and len(patches) == 1 else None
    only_path = path if named is not None and kind(named) != "folder" else ""
    for file_patch in patches:
        target = access.resolve(only_path or file_patch.new or file_patch.old, ctx.workspace, writes=True)
        file = files.get(target.path)
        if file is None:
            is_new = not file_patch.old and not kind(target)
            file = _File(target, None, "", Encoding(), None, "") if is_new else _load(target, ctx.buffers)
            files[target.path] = file
        if not file_patch.old and (file.old or file.text):
            raise BadInput(f"{target.shown} exists already", hint="make the diff against what it holds")
        try:
            file.text, notes = diffs.apply(file.text or "", file_patch.hunks)
        except BadInput as error:
            raise BadInput(
                f"{target.shown}: {error.message}; nothing was changed", hint=error.hint
            ) from error
        file.notes = file.notes + notes
        if not file_patch.new:
            if file.text and file_patch.hunks:
                raise BadInput(f"{target.shown} holds more than the diff deletes; nothing was changed")
            file.text = None
    return list(files.values())


def _load(target: ConfinedPath, buffers: Buffers | None) -> _File:
    if kind(target) == "folder":
        raise BadInput(f"{target.shown} is a folder", hint="name a file in it")
    unsaved = editor_files.read_unsaved(buffers, target)
    if unsaved is not None and not kind(target):
        text, encoding = decode(unsaved) or ("", Encoding())
        return _File(target, unsaved, text, encoding, None, text)
    with os.fdopen(open_file(target), "rb") as stream:
        fingerprint = atomic.fingerprint_of(os.fstat(stream.fileno()))
        data = stream.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise BadInput(f"{target.shown} is larger than {size(FILE_BYTES)}", hint="use the terminal (sed)")
    data = data if unsaved is None else unsaved
    decoded = decode(data)
    if decoded is None:
        raise BadInput(f"{target.shown} is binary", hint="use the terminal")
    text, encoding = decoded
    return _File(target, data, text, encoding, fingerprint, text)


def _change(file: _File) -> atomic.PendingWrite:
    data = None
    if file.text is not None:
        try:
            data = encode(file.text, file.encoding)
        except UnicodeEncodeError as error:
            raise BadInput(
                f"{file.target.shown} is {file.encoding.name}, which can't hold {file.text[error.start]!r}"
            ) from error
    return atomic.PendingWrite(file.target, data, file.seen, file.old, file.text)


def _describe_lines(lines: tuple[int, ...]) -> str:
    return f"{len(lines)} places, at lines {edits.format_numbers(lines)}" if len(lines) > 1 else ""


def _report(file: _File) -> str:
    verb = "deleted" if file.text is None else "patched" if file.old is not None else "created"
    notes = f" ({'; '.join(file.notes)})" if file.notes else ""
    diff_text = _short_diff(file.old_text, file.text or "") if verb == "patched" else ""
    return f"{verb} {file.target.shown}{notes}" + (f"\n{diff_text}" if diff_text else "")


def _short_diff(old: str, new: str) -> str:
    """Return the changed lines with two lines of context, or a one-line summary if the change spans too many
    lines."""
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    note = ""
    if old and new and old.endswith("\n") != new.endswith("\n"):
        change = "added" if new.endswith("\n") else "removed"
        note = f"[a newline was {change} at the end]"
    before, after = (text.removesuffix("\n").split("\n") if text else [] for text in (old, new))
    head = edits.count_common_start(before, after)
    tail = edits.count_common_start(before[head:][::-1], after[head:][::-1])
    head, tail = max(0, head - 2), max(0, tail - 2)
    before, after = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(before) + len(after) > _SHOWN_LINES:
        return f"[{len(before):,} lines became {len(after):,}, from line {head + 1}]"
    rows = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    diff_text = clip(clean("\n".join(_shift_header(row, head) for row in rows)), _SHOWN_CHARS)
    return "\n".join(filter(None, (diff_text, note)))


def _shift_header(row: str, by: int) -> str:
    if not row.startswith("@@ "):
        return row
    _, old, new, _ = row.split(" ")
    return f"@@ {_shift_range(old, by)} {_shift_range(new, by)} @@"


def _shift_range(range_text: str, by: int) -> str:
    start, comma, count = range_text[1:].partition(",")
    return f"{range_text[0]}{int(start) + by}{comma}{count}"
