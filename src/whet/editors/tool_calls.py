"""Describe a tool call for an editor: its kind, its title, its files, and its changes.

Changes are the difference of the files' real contents before and after the call; only files in the workspace
are read. The diff of a question is computed from the call's arguments. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from acp import image_block, text_block, tool_content, tool_diff_content
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    PlanEntry,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolKind,
)

from whet.contract.errors import ToolError
from whet.contract.messages import ImagePart, Message
from whet.contract.protocols import ApprovalRequest
from whet.contract.texts import flat, short, subject_of
from whet.contract.tools import Buffers, Tag, tags_of
from whet.file_names import printable
from whet.markdown import code_block, escape_markdown
from whet.question import build_question, label_note
from whet.tools import diffs
from whet.tools.editor_files import read_unsaved
from whet.tools.encoding import decode
from whet.tools.paths import resolve
from whet.tools.todo import TodoItem
from whet.visible import MAX_CHARS, WHOLE, find_odd_characters, visible

Content: TypeAlias = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent
Files: TypeAlias = dict[str, str | None]
"""Texts by absolute path, None if the file does not exist or is not text."""

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
    """Return the kind of a tool, from which an editor chooses an icon."""
    tags = tags_of(name)
    for tag, kind in _KINDS.items():
        if tag in tags:
            return kind
    return "other"


def title_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a one-line title: the tool and its subject."""
    return short(visible(flat(f"{name} {subject_of(arguments)}")), _TITLE_CHARS)


def locations(arguments: Mapping[str, Any], workspace: Path) -> list[ToolCallLocation] | None:
    """Return the file of a call, so that an editor can follow along, or None if it names no file."""
    path, line = arguments.get("path"), arguments.get("offset")
    if not isinstance(path, str) or not path:
        return None
    number = line if isinstance(line, int) and line >= 0 else None
    return [ToolCallLocation(path=str(workspace / path), line=number)]


def files_before(
    name: str, arguments: Mapping[str, Any], workspace: Path, buffers: Buffers | None = None
) -> Files:
    """Read the files that an edit names, from `buffers` or else from disk. Returns {} for other calls."""
    if "edits" not in tags_of(name):
        return {}
    named_path = arguments.get("path")
    paths = [named_path] if isinstance(named_path, str) and named_path else []
    if isinstance(text := arguments.get("diff"), str) and text:
        try:
            paths += [change.new or change.old for change in diffs.parse(text, str(named_path or ""))]
        except ToolError:
            return {}
    files: Files = {}
    for path in paths:
        try:
            resolved = resolve(path, workspace, ())
        except ToolError:
            continue
        buffered = read_unsaved(buffers, resolved) if resolved.path.exists() else None
        files[str(resolved.path)] = _read_text(resolved.path) if buffered is None else _decode(buffered)
    return files


def changes(before: Files, replaced: Mapping[str, tuple[str | None, str]]) -> list[Content]:
    """Return the changes of the files in `before`.

    `replaced` has the old and the new text of files that the editor has written, by path.
    """
    content: list[Content] = []
    for path, on_disk in before.items():
        old, new = replaced.get(path) or (on_disk, _read_text(Path(path)))
        if new != old:
            content.append(tool_diff_content(printable(path), new or "", old))
    return content


def question_content(request: ApprovalRequest) -> list[Content]:
    """Return the content of a question: the proposed writes as diffs or the exact text to run, and reasons.

    A write is also shown as text if it has characters that an editor's diff does not show.
    """
    diff_content: list[Content] = [
        tool_diff_content(printable(change.absolute_path), change.new or "", change.old)
        for change in request.changes
    ]
    question = build_question(request)
    texts = [text for change in request.changes for text in (change.old, change.new) if text]
    is_readable = bool(diff_content) and not any(map(find_odd_characters, texts))
    # A diff shows neither deletions of files nor notes.
    rows = [row for row in question.body if not is_readable or row.kind == "file"]
    lines = [escape_markdown(question.title), code_block("\n".join(row.text for row in rows))]
    notes = [label_note(row) for row in question.notes if row.kind in ("reason", "note", "undo")]
    texts = ("\n".join(lines), *map(escape_markdown, notes))
    return [*(text_content(text, WHOLE) for text in texts), *diff_content]


def text_content(text: str, limit: int = MAX_CHARS) -> Content:
    """Return text as a call's content, with hidden characters spelled out."""
    return tool_content(text_block(visible(text, limit)))


def image_contents(result: Message) -> list[Content]:
    """Return the images of a result as a call's content."""
    parts = () if isinstance(result.content, str) else result.content
    images = [part for part in parts if isinstance(part, ImagePart)]
    return [tool_content(image_block(image.data_base64, image.media_type)) for image in images]


def plan(items: list[TodoItem]) -> list[PlanEntry]:
    """Return a todo list as the editor's plan."""
    return [
        PlanEntry(
            content=visible(item.content),
            priority="medium",
            status=_PLAN.get(item.status or "pending", "pending"),
        )
        for item in items
    ]


def _read_text(path: Path) -> str | None:
    """Read a text file. Returns None if it does not exist, is not text, or is too large to show."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
            return None
        return _decode(path.read_bytes())
    except OSError:
        return None


def _decode(data: bytes) -> str | None:
    decoded = decode(data)
    return None if decoded is None else decoded[0]
