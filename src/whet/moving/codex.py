"""Read Codex's transcripts, `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, compressed (`.zst`) and archived
ones (`archived_sessions`) too.

Each line is a JSON object: first `session_meta` (a fork repeats its parent's later), then `response_item`
with messages, calls and their outputs. Other lines are skipped, and so are messages that the program added
(environment, instructions) and turns that were rolled back. All messages are imported, although after a
compaction (`compacted`) the model saw only the summary and later ones. Source: rollout files of version 0.40
and later, and older ones, whose lines are the items themselves.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from whet.contract.messages import NO_IMAGE, ImagePart, Message, Part, TextPart, ToolCall
from whet.contract.texts import shared_decoder
from whet.moving.lines import PACKED_SUFFIX, JsonLines
from whet.moving.pairing import (
    TranscriptBuilder,
    build_result,
    dicts_in,
    join_images,
    parse_image_url,
    parse_ms,
    text_in,
)
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession

ORIGIN = "codex"
_ADDED = re.compile(
    r"(?:\s*(?:# AGENTS\.md\b[^\n]*\s+)?"
    r"<(environment_context|user_instructions|permissions instructions|INSTRUCTIONS|skill|turn_aborted"
    r"|subagent_notification|recommended_plugins)(?:\s[^>]*)?>.*</\1>)+",
    re.DOTALL,
)
"""The elements that the program puts in front of a text of the user's role."""


class _Payload(msgspec.Struct):
    """The fields of a payload that are read, whatever its type."""

    type: Any = None
    id: str | None = None
    cwd: Any = None
    model: Any = None
    role: Any = None
    content: Any = None
    name: str | None = None
    arguments: Any = None
    input: Any = None
    action: Any = None
    call_id: str | None = None
    output: Any = None
    message: Any = None
    num_turns: Any = None


class _Line(_Payload):
    """One line. Before version 0.40 the payload's fields were in the line itself."""

    timestamp: Any = None
    payload: _Payload | None = None
    record_type: Any = None


_lines = shared_decoder(_Line, strict=False)


def files(folder: Path) -> list[Path]:
    """Return the transcripts below `folder`, or the file itself; sorted."""
    if folder.is_file():
        return [folder]
    roots = [root for name in ("sessions", "archived_sessions") if (root := folder / name).is_dir()]
    paths = {path for root in roots or [folder] for path in root.rglob("rollout-*.jsonl")}
    packed = {path for root in roots or [folder] for path in root.rglob(f"rollout-*.jsonl{PACKED_SUFFIX}")}
    return sorted(paths | {path for path in packed if path.with_suffix("") not in paths})


def read(path: Path) -> tuple[PastSession | None, int]:
    """Read a transcript and count its unreadable lines. The session is None if it has no user message."""
    transcript, lines = (
        _Transcript(path.name.partition(".")[0].removeprefix("rollout-")),
        JsonLines(path, _lines),
    )
    at_ms = 0
    for line in lines:
        at_ms = parse_ms(line.timestamp) or at_ms
        if line.payload is not None:
            transcript.add(text_in(line.type), line.payload, at_ms)
        elif line.type is not None:
            transcript.add("response_item", line, at_ms)
        elif line.id is not None and line.record_type is None:
            transcript.add("session_meta", line, at_ms)
    return transcript.session(), lines.bad


class _Transcript(TranscriptBuilder):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._id, self._is_named = name, False
        self._workspace = self._model = ""

    def add(self, kind: str, payload: _Payload, at_ms: int) -> None:
        if kind == "session_meta" and not self._is_named:
            self._id, self._is_named = payload.id or self._id, True
            self._workspace = text_in(payload.cwd)
        elif kind == "turn_context":
            self._model = text_in(payload.model) or self._model
            self._workspace = self._workspace or text_in(payload.cwd)
        elif kind == "response_item":
            _add_item(self.messages, payload, at_ms, self._model)
        elif kind == "event_msg" and payload.type == "thread_rolled_back":
            self.remove_turns(payload.num_turns if isinstance(payload.num_turns, int) else 0)
        elif kind == "compacted" and (summary := text_in(payload.message).strip()):
            self.mark_summary()
            self.messages.append(PastMessage(Message(role="user", content=summary), at_ms))

    def session(self) -> PastSession | None:
        """Return the session, or None if it has no user message."""
        new_session = NewSession(
            id=self._id, source=ORIGIN, provider="openai", model=self._model, workspace=self._workspace
        )
        return self.build_session(new_session)


def _add_item(messages: list[PastMessage], item: _Payload, at_ms: int, model: str) -> None:
    match item.type:
        case "message" if item.role in ("user", "assistant"):
            _add_message(messages, item, at_ms, model)
        case "function_call":
            _add_call(messages, item, item.arguments, at_ms, model)
        case "custom_tool_call":
            _add_call(messages, item, {"input": item.input}, at_ms, model)
        case "local_shell_call":
            shell_item = msgspec.structs.replace(item, name="shell")
            _add_call(messages, shell_item, item.action, at_ms, model)
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            messages.append(_read_result(item, at_ms))
        case _:
            pass


def _add_message(messages: list[PastMessage], item: _Payload, at_ms: int, model: str) -> None:
    parts = [part for block in dicts_in(item.content) if (part := _read_part(block))]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    images = [part for part in parts if isinstance(part, ImagePart)]
    if item.role == "user":
        text = "\n".join(filter(None, map(_find_typed, texts)))
        if text.strip() or images:
            message = Message(role="user", content=join_images(text, images))
            messages.append(PastMessage(message, at_ms))
    elif (text := "\n".join(texts)).strip():
        messages.append(PastMessage(Message(role="assistant", content=text), at_ms, model=model))


def _find_typed(text: str) -> str:
    """Return the part of a user text that the person wrote, or ""."""
    added = _ADDED.match(text)
    return text[added.end() :].strip() if added else text


def _add_call(
    messages: list[PastMessage], item: _Payload, raw_arguments: Any, at_ms: int, model: str
) -> None:
    """Add a call to the last message if that is an answer, else as a new answer.

    The calls of one step follow each other.
    """
    arguments = (
        raw_arguments if isinstance(raw_arguments, str) else msgspec.json.encode(raw_arguments or {}).decode()
    )
    call = ToolCall(item.call_id or item.id or f"call_{len(messages)}", item.name or "unknown", arguments)
    if messages and messages[-1].message.role == "assistant":
        previous = messages.pop()
        message = msgspec.structs.replace(previous.message, tool_calls=(*previous.message.tool_calls, call))
        messages.append(msgspec.structs.replace(previous, message=message))
    else:
        messages.append(PastMessage(Message(role="assistant", tool_calls=(call,)), at_ms, model=model))


def _read_result(item: _Payload, at_ms: int) -> PastMessage:
    """Return a result, whose output is a text, blocks, or an object with either and `success`."""
    output, is_error = item.output, False
    for fields in dicts_in([output]):
        is_error = fields.get("success") is False
        output = fields.get("content_items") or fields.get("content") or output
    parts = [part for block in dicts_in(output) if (part := _read_part(block))]
    if isinstance(output, str) or not parts:
        content = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    else:
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        content = join_images("\n".join(texts), [part for part in parts if isinstance(part, ImagePart)])
    message = Message(role="tool", content=content, tool_call_id=item.call_id or "")
    return build_result(message, at_ms, is_error=is_error)


def _read_part(block: dict[str, Any]) -> Part | None:
    if text_in(block.get("image_url")):
        return parse_image_url(block["image_url"]) or NO_IMAGE
    text = block.get("text")
    return TextPart(text) if isinstance(text, str) else None
