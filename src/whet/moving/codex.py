"""Codex's transcripts, `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, as values.

One JSON object a line: `session_meta` first, then `response_item` with messages, calls and their outputs;
other lines are passed over. Messages that the program puts in for itself (environment, instructions) are
left out. Source: rollout files as written since its version 0.40.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.contract.messages import ImagePart, Message, Part, TextPart, ToolCall
from whet.moving.pairing import pair
from whet.moving.results import ending_of
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession

ORIGIN = "codex"
_OWN = re.compile(r"\s*<(environment_context|user_instructions|permissions instructions|INSTRUCTIONS)\b")


class _Payload(msgspec.Struct):
    """What is read of a line's payload, whatever its type."""

    type: str = ""
    id: str | None = None
    cwd: str | None = None
    model: str | None = None
    role: str = ""
    content: Any = None
    name: str = ""
    arguments: Any = None
    input: Any = None
    action: Any = None
    call_id: str | None = None
    output: Any = None
    summary: Any = None


class _Line(msgspec.Struct):
    type: str = ""
    timestamp: str = ""
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
    said, bad = list[PastMessage](), 0
    session_id, cwd, model = path.stem.removeprefix("rollout-"), "", ""
    with path.open("rb") as lines:
        for raw in lines:
            try:
                line = _lines.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                bad += bool(raw.strip())
                continue
            payload = line.payload
            if payload is None:
                continue
            if line.type == "session_meta":
                session_id, cwd = payload.id or session_id, payload.cwd or cwd
            elif line.type == "turn_context":
                model, cwd = payload.model or model, cwd or payload.cwd or ""
            elif line.type == "response_item":
                _add(said, payload, _ms(line.timestamp), model)
    paired = pair(said)
    if not any(row.message.role == "user" for row in paired.messages):
        return None, bad
    words = next(row.message.text for row in paired.messages if row.message.role == "user")
    about = NewSession(
        id=session_id,
        source=ORIGIN,
        provider="openai",
        model=model,
        workspace=cwd,
        title=" ".join(words.split())[:120],
    )
    times = [row.at_ms for row in paired.messages if row.at_ms] or [0]
    return PastSession(about, paired.messages, min(times), max(times), "completed"), bad


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
    call = ToolCall(item.call_id or item.id or f"call_{len(said)}", item.name, arguments)
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


def _ms(stamp: str) -> int:
    try:
        return round(datetime.fromisoformat(stamp).timestamp() * 1000)
    except ValueError:
        return 0
