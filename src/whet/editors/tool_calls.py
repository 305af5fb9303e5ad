"""A tool call as an editor shows it: its kind, title, the places that it touches, and what it changes.

Changes are what the files really held before and after, read within the workspace only; a diff that is only
proposed is worked out from the arguments. It sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from acp import text_block, tool_content, tool_diff_content
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    PlanEntry,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolKind,
)

from whet.contract.errors import ToolError
from whet.contract.protocols import ApprovalRequest
from whet.contract.texts import flat, short, subject_of
from whet.contract.tools import Buffers, Tag, tags_of
from whet.question import worded
from whet.tools import diffs
from whet.tools.held import unsaved
from whet.tools.paths import resolve
from whet.tools.todo import TodoItem
from whet.visible import MOST_CHARS, WHOLE, visible

Content: TypeAlias = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent
Files: TypeAlias = dict[str, str | None]
"""Texts by absolute path; None where there is no file."""

_KINDS: dict[Tag, ToolKind] = {
    "search": "search",
    "edits": "edit",
    "command": "execute",
    "background": "execute",
    "url": "fetch",
    "tasks": "think",
    "delegates": "think",
    "looks": "read",
}
_LARGEST_BYTES = 1_000_000
_TITLE_CHARS = 120
_PLAN: dict[str, Literal["pending", "in_progress", "completed"]] = {
    "in_progress": "in_progress",
    "completed": "completed",
    "cancelled": "completed",
}


def kind_of(name: str) -> ToolKind:
    """Give the kind by which an editor picks an icon."""
    tags = tags_of(name)
    for tag, kind in _KINDS.items():
        if tag in tags:
            return kind
    return "other"


def title_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Give one line: the tool and what it is about."""
    return short(visible(flat(f"{name} {subject_of(arguments)}")), _TITLE_CHARS)


def locations(arguments: Mapping[str, Any], workspace: Path) -> list[ToolCallLocation] | None:
    """Give the file that a call is about, so that an editor can follow; None without one."""
    path, line = arguments.get("path"), arguments.get("offset")
    if not isinstance(path, str) or not path:
        return None
    number = line if isinstance(line, int) and line >= 0 else None
    return [ToolCallLocation(path=str(workspace / path), line=number)]


def files_before(
    name: str, arguments: Mapping[str, Any], workspace: Path, buffers: Buffers | None = None
) -> Files:
    """Read the files that an edit names, as they are now, from `buffers` before the disk; empty for other
    calls."""
    if "edits" not in tags_of(name):
        return {}
    named = arguments.get("path")
    paths = [named] if isinstance(named, str) and named else []
    if isinstance(text := arguments.get("diff"), str) and text:
        try:
            paths += [one.new or one.old for one in diffs.parse(text, str(named or ""))]
        except ToolError:
            return {}
    found: Files = {}
    for path in paths:
        try:
            place = resolve(path, workspace, ())
        except ToolError:
            continue
        held = unsaved(buffers, place) if place.path.exists() else None
        found[str(place.path)] = _text(place.path) if held is None else held.decode("utf-8", "replace")
    return found


def changes(before: Files, replaced: Mapping[str, tuple[str | None, str]]) -> list[Content]:
    """Give what became of files that were read before; `replaced` has what the editor held of some."""
    found: list[Content] = []
    for path, on_disk in before.items():
        old, new = replaced.get(path) or (on_disk, _text(Path(path)))
        if new != old:
            found.append(tool_diff_content(path, new or "", old))
    return found


def asked(request: ApprovalRequest) -> list[Content]:
    """Give a question: what would be written as diffs, or the exact text that would run, and why."""
    found: list[Content] = [tool_diff_content(one.place, one.new or "", one.old) for one in request.changes]
    question = worded(request)
    rows = [
        row for row in question.body if not found or row.kind == "file"
    ]  # a diff tells no deletion, no note
    shown = [question.title, *(row.text for row in rows)]
    notes = [row.text for row in question.notes if row.kind in ("reason", "note")]
    return [said("\n".join(shown), WHOLE), *map(said, notes), *found]


def said(text: str, limit: int = MOST_CHARS) -> Content:
    """Give text as a call's content, nothing in it hidden."""
    return tool_content(text_block(visible(text, limit)))


def plan(items: list[TodoItem]) -> list[PlanEntry]:
    """Give a todo list as the editor's plan."""
    return [
        PlanEntry(
            content=visible(item.content),
            priority="medium",
            status=_PLAN.get(item.status or "pending", "pending"),
        )
        for item in items
    ]


def _text(path: Path) -> str | None:
    """Read a plain text file; None where there is none, or one that is no text or too large to show."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
            return None
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
