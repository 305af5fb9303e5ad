"""Read pi's transcripts, `~/.pi/agent/sessions/*/*.jsonl`.

Each line is a JSON object: first `session`, then entries that each name their predecessor. A person who edits
an earlier prompt begins a branch; only the newest branch is read. All of its messages are imported, although
after a `compaction` the model saw only the summary and the entries from its first kept one on. OpenClaw has
the same entries. Source: session files of version 0.73.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from whet.contract.messages import NO_IMAGE, ImagePart, Message, Part, TextPart, ToolCall, Usage, image_in
from whet.contract.texts import from_values, shared_decoder
from whet.moving.lines import JsonLines
from whet.moving.pairing import (
    TranscriptBuilder,
    build_result,
    build_usage,
    dicts_in,
    join_images,
    parse_ms,
    text_in,
)
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession

ORIGIN = "pi"
_EXITED = re.compile(r"Command exited with code (\d{1,3})\s*\Z")


class Entry(msgspec.Struct):
    """The fields of an entry that are read, whatever its type."""

    type: Any = None
    id: Any = None
    parent: Any = msgspec.field(default=None, name="parentId")
    timestamp: Any = None
    cwd: Any = None
    name: Any = None
    summary: Any = None
    first_kept: Any = msgspec.field(default=None, name="firstKeptEntryId")
    target: Any = msgspec.field(default=None, name="targetId")
    message: dict[str, Any] | None = None


class _Usage(msgspec.Struct, rename="camel"):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


entry_decoder: msgspec.json.Decoder[Entry] = shared_decoder(Entry, strict=False)


def files(folder: Path) -> list[Path]:
    """Return the transcripts below `folder`, or the file itself; sorted."""
    if folder.is_file():
        return [folder]
    roots = (folder / "agent" / "sessions", folder / "sessions", folder)
    return sorted(next(root for root in roots if root.is_dir()).rglob("*.jsonl"))


def read(path: Path) -> tuple[PastSession | None, int]:
    """Read a transcript and count its unreadable lines. The session is None if it has no user message."""
    lines = JsonLines(path, entry_decoder)
    session_id = path.stem.rpartition("_")[2]
    return read_entries(list(lines), NewSession(id=session_id, source=ORIGIN)), lines.bad


def read_entries(entries: list[Entry], new_session: NewSession) -> PastSession | None:
    """Return the session of the entries, or None if it has no user message.

    The id, workspace and title in the entries replace those of `new_session`.
    """
    branches = list[Entry]()
    for entry in entries:
        if entry.type == "session":
            session_id, workspace = text_in(entry.id) or new_session.id, text_in(entry.cwd)
            new_session = msgspec.structs.replace(new_session, id=session_id, workspace=workspace)
            continue
        if entry.type == "session_info" and (title := text_in(entry.name)):
            new_session = msgspec.structs.replace(new_session, title=title)
        branches.append(entry)
    transcript = _Transcript()
    for entry in _find_branch(branches):
        transcript.add(entry)
    return transcript.session(new_session)


def _find_branch(entries: list[Entry]) -> list[Entry]:
    """Return the entries from the first to the newest one, without abandoned branches."""
    if not entries or not isinstance(entries[-1].id, str):
        return entries  # before version 2 there were no branches
    positions = {entry.id: number for number, entry in enumerate(entries) if isinstance(entry.id, str)}
    position = len(entries) - 1
    branch: list[Entry] = []
    if entries[-1].type == "leaf":  # the person went back to an earlier entry
        position = positions.get(text_in(entries[-1].target), -1)
    while position >= 0:
        entry = entries[position]
        branch.append(entry)
        parent = entry.parent
        # If the parent could not be read, the entry before this one in the file is probably next to it.
        position = min(positions.pop(parent, position - 1), position - 1) if isinstance(parent, str) else -1
    return branch[::-1]


class _Transcript(TranscriptBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._provider = self._model = ""
        self._indices: dict[str, int] = {}  # of the next message at each entry, by the entry's id

    def add(self, entry: Entry) -> None:
        self._indices[text_in(entry.id)] = len(self.messages)
        at_ms = parse_ms(entry.timestamp)
        if entry.type == "compaction" and (summary := text_in(entry.summary).strip()):
            self.mark_summary(self._indices.get(text_in(entry.first_kept)))
            self.messages.append(PastMessage(Message(role="user", content=summary), at_ms))
        elif entry.type == "reset":
            self.forget(self._indices.get(text_in(entry.first_kept)))
        elif entry.type == "message" and entry.message is not None:
            self._add_message(entry.message, at_ms)

    def session(self, new_session: NewSession) -> PastSession | None:
        """Return the session, or None if it has no user message."""
        new_session = msgspec.structs.replace(new_session, provider=self._provider, model=self._model)
        return self.build_session(new_session)

    def _add_message(self, body: dict[str, Any], at_ms: int) -> None:
        content = body.get("content")
        match body.get("role"):
            case "user":
                parts = _read_parts(content)
                if parts:
                    first = parts[0]
                    user_content = first.text if len(parts) == 1 and isinstance(first, TextPart) else parts
                    self.messages.append(PastMessage(Message(role="user", content=user_content), at_ms))
            case "assistant":
                self._model = text_in(body.get("model")) or self._model
                self._provider = text_in(body.get("provider")) or self._provider
                calls = tuple(
                    _read_call(block) for block in dicts_in(content) if block.get("type") == "toolCall"
                )
                text = "\n".join(part.text for part in _read_parts(content) if isinstance(part, TextPart))
                message = Message(role="assistant", content=text, tool_calls=calls)
                self.messages.append(PastMessage(message, at_ms, _read_usage(body.get("usage")), self._model))
            case "toolResult":
                self.messages.append(_read_result(body, at_ms))
            case _:
                pass


def _read_result(body: dict[str, Any], at_ms: int) -> PastMessage:
    parts = _read_parts(body.get("content"))
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    content = join_images(text, [part for part in parts if isinstance(part, ImagePart)])
    call_id, name, is_error = body.get("toolCallId"), body.get("toolName"), body.get("isError") is True
    message = Message(role="tool", content=content, tool_call_id=text_in(call_id), tool_name=text_in(name))
    past = build_result(message, at_ms, is_error=is_error)
    if is_error and (match := _EXITED.search(text)):
        return msgspec.structs.replace(past, error_kind="exit", exit_code=int(match[1]))
    for details in dicts_in([body.get("details")]):
        if isinstance(code := details.get("exitCode"), int) and code:
            return msgspec.structs.replace(past, error_kind="exit", exit_code=code)
    return past


def _read_parts(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    parts: list[Part] = []
    for block in dicts_in(content):
        if block.get("type") == "text" and text_in(block.get("text")):
            parts.append(TextPart(block["text"]))
        elif block.get("type") == "image" and text_in(block.get("data")):
            parts.append(image_in(block["data"]) or NO_IMAGE)
    return tuple(parts)


def _read_call(block: dict[str, Any]) -> ToolCall:
    arguments = msgspec.json.encode(block.get("arguments") or {}).decode()
    return ToolCall(text_in(block.get("id")), text_in(block.get("name")) or "unknown", arguments)


def _read_usage(values: Any) -> Usage | None:
    try:
        used = from_values(values, _Usage)
    except msgspec.ValidationError:
        return None
    return build_usage(used.input, used.output, read_tokens=used.cache_read, written_tokens=used.cache_write)
