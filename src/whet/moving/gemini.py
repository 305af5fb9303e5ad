"""Read Gemini CLI's chats, `~/.gemini/tmp/<project>/chats/session-*.jsonl`, and `.json` of earlier versions.

Each line is a JSON object: a header, a message (which replaces an earlier one of the same id), `$set` with a
new list of messages, or `$rewindTo` with the id of the first message to remove. A resumed chat has its
results twice, in the API's form and in its own; each is read once. An earlier version's file is one object,
the header with the list of messages. Source: files of version 0.61.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.contract.messages import ImagePart, Message, ToolCall, Usage, image_in
from whet.contract.texts import from_values, shared_decoder
from whet.moving.lines import JsonLines, read_json_file
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

ORIGIN = "gemini"
_MAX_ROOT_BYTES = 4_096
_CONTEXT_PREFIX = "<session_context>"  # begins a message that the program added


class _Line(msgspec.Struct):
    """The fields of a line that are read, whatever its type."""

    id: Any = None
    type: Any = None
    timestamp: Any = None
    content: Any = None
    tokens: Any = None
    model: Any = None
    calls: Any = msgspec.field(default=None, name="toolCalls")
    session_id: Any = msgspec.field(default=None, name="sessionId")
    kind: Any = None
    all_messages: Any = msgspec.field(default=None, name="messages")
    changes: Any = msgspec.field(default=None, name="$set")
    rewound_to: Any = msgspec.field(default=None, name="$rewindTo")


class _Tokens(msgspec.Struct):
    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0


_lines = shared_decoder(_Line, strict=False)


def files(folder: Path) -> list[Path]:
    """Return the chats below `folder`, or the file itself; sorted. Chats of helpers are left out."""
    if folder.is_file():
        return [folder]
    paths = set(folder.rglob("chats/session-*.jsonl"))
    earlier = folder.rglob("chats/session-*.json")  # a resumed one goes on as .jsonl
    return sorted(paths | {path for path in earlier if path.with_suffix(".jsonl") not in paths})


def read(path: Path) -> tuple[PastSession | None, int]:
    """Read a chat and count its unreadable lines. The session is None if it has no user message."""
    lines = _WholeChat(path) if path.suffix == ".json" else JsonLines(path, _lines)
    messages: dict[str, _Line] = {}
    session_id = path.stem
    is_helper = False
    for line in lines:
        if session := text_in(line.session_id):
            session_id = session
            is_helper = is_helper or line.kind == "subagent"
        elif line.rewound_to is not None:
            _rewind(messages, text_in(line.rewound_to))
        elif isinstance(line.changes, dict):
            _replace_all(messages, dicts_in(line.changes.get("messages")))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        elif message_id := text_in(line.id):
            messages[message_id] = line
    if is_helper:
        return None, lines.bad
    transcript = _Transcript()
    for line in messages.values():
        transcript.add(line)
    return transcript.session(
        NewSession(id=session_id, source=ORIGIN, workspace=_read_workspace(path))
    ), lines.bad


class _WholeChat:
    """The header and the messages of an earlier version's file, as lines. `bad` counts unreadable ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bad: int = 0

    def __iter__(self) -> Iterator[_Line]:
        chat = read_json_file(self._path, _lines)
        if chat is None:
            self.bad += 1
            return
        yield chat
        values: object = chat.all_messages
        rows = cast("list[Any]", values) if isinstance(values, list) else []
        for row in rows:
            try:
                yield from_values(row, _Line)
            except msgspec.ValidationError:
                self.bad += 1


def _rewind(messages: dict[str, _Line], message_id: str) -> None:
    """Remove a message and all later ones, or all messages if the id is unknown."""
    ids = list(messages)
    for later_id in ids[ids.index(message_id) :] if message_id in messages else ids:
        del messages[later_id]


def _replace_all(messages: dict[str, _Line], rows: list[dict[str, Any]]) -> None:
    """Replace all messages. Those that stay keep their earlier form, which has the time, tokens and calls."""
    if not rows:
        return
    known = dict(messages)
    messages.clear()
    for row in rows:
        line = from_values(row, _Line)
        messages[text_in(line.id)] = known.get(text_in(line.id), line)


def _read_workspace(path: Path) -> str:
    """Return the folder of a chat's project, or "" if unknown."""
    try:
        with (path.parents[1] / ".project_root").open("rb") as file:
            return file.read(_MAX_ROOT_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


class _Transcript(TranscriptBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._model = ""
        self._answered_call_ids = set[str]()

    def add(self, line: _Line) -> None:
        at_ms, parts = parse_ms(line.timestamp), _read_parts(line.content)
        text = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
        if line.type == "user":
            images = _read_images(parts)
            if (text or images) and not text.startswith(_CONTEXT_PREFIX):
                message = Message(role="user", content=join_images(text, images))
                self.messages.append(PastMessage(message, at_ms))
            self._add_results([{"result": parts}], at_ms)
        elif line.type == "gemini":
            self._model = text_in(line.model) or self._model
            calls = [_read_call(call) for call in dicts_in(line.calls)]
            calls += [
                _read_call(part["functionCall"])
                for part in parts
                if isinstance(part.get("functionCall"), dict)
            ]
            message = Message(role="assistant", content=text, tool_calls=tuple(calls))
            self.messages.append(PastMessage(message, at_ms, _read_usage(line.tokens), self._model))
            self._add_results(dicts_in(line.calls), at_ms)

    def session(self, new_session: NewSession) -> PastSession | None:
        """Return the session, or None if it has no user message."""
        return self.build_session(msgspec.structs.replace(new_session, provider="google", model=self._model))

    def _add_results(self, calls: list[dict[str, Any]], at_ms: int) -> None:
        for call in calls:
            failed = call.get("status") in ("error", "cancelled")
            for part in dicts_in(call.get("result")):
                response = part.get("functionResponse")
                if isinstance(response, dict):
                    self._add_result(response, at_ms, failed=failed)  # pyright: ignore[reportUnknownArgumentType]

    def _add_result(self, response: dict[str, Any], at_ms: int, *, failed: bool) -> None:
        call_id = text_in(response.get("id"))
        if call_id in self._answered_call_ids:
            return
        self._answered_call_ids.add(call_id)
        bodies = dicts_in([response.get("response")])
        body: dict[str, Any] = bodies[0] if bodies else {}
        text = text_in(body.get("output")) or text_in(body.get("error"))
        text = text or (msgspec.json.encode(body).decode() if body else "")
        name = text_in(response.get("name"))
        message = Message(role="tool", content=text, tool_call_id=call_id, tool_name=name)
        self.messages.append(build_result(message, at_ms, is_error=failed or "error" in body))


def _read_parts(content: Any) -> list[dict[str, Any]]:
    return [{"text": content}] if isinstance(content, str) and content else dicts_in(content)


def _read_images(parts: list[dict[str, Any]]) -> list[ImagePart]:
    files = dicts_in([part.get("inlineData") for part in parts])
    return [image for file in files if (image := image_in(text_in(file.get("data")))) is not None]


def _read_call(call: dict[str, Any]) -> ToolCall:
    arguments = msgspec.json.encode(call.get("args") or {}).decode()
    return ToolCall(text_in(call.get("id")), text_in(call.get("name")) or "unknown", arguments)


def _read_usage(values: Any) -> Usage | None:
    try:
        used = from_values(values, _Tokens)
    except msgspec.ValidationError:
        return None
    fresh = max(0, used.input - used.cached)
    return build_usage(fresh, used.output + used.thoughts, read_tokens=used.cached, reasoning=used.thoughts)
