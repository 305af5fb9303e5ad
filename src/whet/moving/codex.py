"""Codex's transcripts, `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, as values.

One JSON object a line: `session_meta` first (in a fork its parent's again, later), then `response_item` with
messages, calls and their outputs; other lines are passed over. Messages that the program puts in for itself
(environment, instructions) are left out. After a compaction (`compacted`) the model saw the summary and what
came after it; all is kept. Source: rollout files as written since its version 0.40.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.contract.messages import ImagePart, Message, Part, TextPart, ToolCall
from whet.moving.lines import JsonLines
from whet.moving.pairing import live_from, pair
from whet.moving.results import ending_of
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession, title_of

ORIGIN = "codex"
_OWN = re.compile(r"\s*<(environment_context|user_instructions|permissions instructions|INSTRUCTIONS)\b")


class _Payload(msgspec.Struct):
    """What is read of a line's payload, whatever its type."""

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


class _Line(msgspec.Struct):
    type: str = ""
    timestamp: Any = None
    payload: _Payload | None = None


_lines = msgspec.json.Decoder(_Line, strict=False)


def files(folder: Path) -> list[Path]:
    """Give the transcripts below `folder`, or that one file; sorted."""
    if folder.is_file():
        return [folder]
    root = folder / "sessions" if (folder / "sessions").is_dir() else folder
    return sorted(root.rglob("rollout-*.jsonl"))


def read(path: Path) -> tuple[PastSession | None, int]:
    """Read a transcript; None where nobody said anything. Also counts the lines that can't be read."""
    transcript, lines = _Transcript(path.stem.removeprefix("rollout-")), JsonLines(path, _lines)
    for line in lines:
        if line.payload is not None:
            transcript.add(line.type, line.payload, _ms(line.timestamp))
    return transcript.session(), lines.bad


class _Transcript:
    """A session while its lines come in."""

    def __init__(self, name: str) -> None:
        self._said: list[PastMessage] = []
        self._id, self._is_named = name, False
        self._workspace = self._model = ""
        self._compacted_at = 0  # the index of the last summary
        self._summaries: set[int] = set()

    def add(self, kind: str, payload: _Payload, at_ms: int) -> None:
        if kind == "session_meta" and not self._is_named:
            self._id, self._is_named = payload.id or self._id, True
            self._workspace = _text(payload.cwd)
        elif kind == "turn_context":
            self._model = _text(payload.model) or self._model
            self._workspace = self._workspace or _text(payload.cwd)
        elif kind == "response_item":
            _add(self._said, payload, at_ms, self._model)
        elif kind == "compacted" and (summary := _text(payload.message).strip()):
            self._compacted_at = len(self._said)
            self._summaries.add(len(self._said))
            self._said.append(PastMessage(Message(role="user", content=summary), at_ms))

    def session(self) -> PastSession | None:
        """Give the session, None where nobody said anything."""
        paired = pair(self._said)
        rows = paired.messages
        own = [
            row.message.text
            for row, source in zip(rows, paired.sources, strict=True)
            if row.message.role == "user" and source not in self._summaries
        ]
        if not own and not self._summaries:
            return None
        about = NewSession(
            id=self._id,
            source=ORIGIN,
            provider="openai",
            model=self._model,
            workspace=self._workspace,
            title=title_of((own or [""])[0]),
        )
        times = [row.at_ms for row in rows if row.at_ms] or [0]
        live = live_from(self._compacted_at, paired)
        return PastSession(about, rows, min(times), max(times), "completed", live)


def _add(said: list[PastMessage], item: _Payload, at_ms: int, model: str) -> None:
    match item.type:
        case "message" if item.role in ("user", "assistant"):
            _add_message(said, item, at_ms, model)
        case "function_call":
            _add_call(said, item, item.arguments, at_ms, model)
        case "custom_tool_call":
            _add_call(said, item, {"input": item.input}, at_ms, model)
        case "local_shell_call":
            named = msgspec.structs.replace(item, name="shell")
            _add_call(said, named, item.action, at_ms, model)
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            said.append(_result(item, at_ms))
        case _:
            pass


def _add_message(said: list[PastMessage], item: _Payload, at_ms: int, model: str) -> None:
    parts = [part for block in _dicts(item.content) if (part := _part(block))]
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    images = [part for part in parts if isinstance(part, ImagePart)]
    if item.role == "user":
        if (text.strip() or images) and not _OWN.match(text):
            content = (TextPart(text), *images) if images else text
            said.append(PastMessage(Message(role="user", content=content), at_ms))
    elif text.strip():
        said.append(PastMessage(Message(role="assistant", content=text), at_ms, model=model))


def _add_call(said: list[PastMessage], item: _Payload, given: Any, at_ms: int, model: str) -> None:
    """Add a call to the answer that is being given: calls of one step come one after the other."""
    arguments = given if isinstance(given, str) else msgspec.json.encode(given or {}).decode()
    call = ToolCall(item.call_id or item.id or f"call_{len(said)}", item.name or "unknown", arguments)
    if said and said[-1].message.role == "assistant":
        before = said.pop()
        message = msgspec.structs.replace(before.message, tool_calls=(*before.message.tool_calls, call))
        said.append(msgspec.structs.replace(before, message=message))
    else:
        said.append(PastMessage(Message(role="assistant", tool_calls=(call,)), at_ms, model=model))


def _result(item: _Payload, at_ms: int) -> PastMessage:
    output = item.output
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    ending = ending_of(text)
    message = Message(
        role="tool", content=text, tool_call_id=item.call_id or "", is_error=bool(ending.error_kind)
    )
    return PastMessage(message, at_ms, error_kind=ending.error_kind, exit_code=ending.exit_code)


def _part(block: dict[str, Any]) -> Part | None:
    url = block.get("image_url")
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(";base64,")
        return ImagePart(head.removeprefix("data:"), data)
    text = block.get("text")
    return TextPart(text) if isinstance(text, str) else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    items = cast(list[Any], value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _ms(stamp: Any) -> int:
    try:
        return round(datetime.fromisoformat(_text(stamp)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
