"""Claude Code's transcripts, `~/.claude/projects/<folder>/<session>.jsonl`, as values.

One JSON object a line; `user` and `assistant` lines hold the vendor's content blocks, tool results stand in
user lines. An answer of several blocks is written as several lines with one message id; they are joined.
Sidechains (helpers) and lines that the program added for itself (`isMeta`) are left out. What a line is not
readable as is counted, not fatal. Source: transcripts as written by version 2 of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.contract.messages import ImagePart, Message, Part, TextPart, ToolCall, Usage
from whet.moving.pairing import pair
from whet.moving.results import ending_of
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession

ORIGIN = "claude-code"


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class _Said(msgspec.Struct):
    id: str = ""
    content: Any = ""
    model: str = ""
    usage: _Usage | None = None


class _Line(msgspec.Struct):
    """What is read of a line; all else is passed over."""

    type: str = ""
    message: _Said | None = None
    timestamp: str = ""
    session_id: str = msgspec.field(default="", name="sessionId")
    cwd: str = ""
    is_sidechain: bool = msgspec.field(default=False, name="isSidechain")
    is_meta: bool = msgspec.field(default=False, name="isMeta")
    summary: str = ""


_lines = msgspec.json.Decoder(_Line, strict=False)


def files(folder: Path) -> list[Path]:
    """Give the transcripts below `folder`, one or all projects', or that one file; sorted."""
    if folder.is_file():
        return [folder]
    root = folder / "projects" if (folder / "projects").is_dir() else folder
    return sorted(path for path in root.rglob("*.jsonl") if not path.name.startswith("agent-"))


def read(path: Path) -> tuple[PastSession | None, int]:
    """Read a transcript; None where nobody said anything. Also counts the lines that can't be read."""
    said, bad = list[PastMessage](), 0
    first: _Line | None = None
    title, last_id = "", ""
    with path.open("rb") as lines:
        for raw in lines:
            try:
                line = _lines.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                bad += bool(raw.strip())
                continue
            if line.type == "summary":
                title = title or line.summary
            if line.message is None or line.is_sidechain or line.is_meta:
                continue
            if line.type == "assistant":
                _add_answer(said, line, joined=bool(line.message.id) and line.message.id == last_id)
                last_id = line.message.id
            elif line.type == "user":
                said.extend(_from_user(line.message, _ms(line.timestamp)))
            else:
                continue
            first = first or line
    paired = pair(said)
    if first is None or not any(row.message.role == "user" for row in paired.messages):
        return None, bad
    words = next(row.message.text for row in paired.messages if row.message.role == "user")
    about = NewSession(
        id=first.session_id or path.stem,
        source=ORIGIN,
        provider="anthropic",
        model=next((row.model for row in paired.messages if row.model), ""),
        workspace=first.cwd,
        title=" ".join((title or words).split())[:120],
    )
    times = [row.at_ms for row in paired.messages if row.at_ms] or [0]
    return PastSession(about, paired.messages, min(times), max(times), "completed"), bad


def _add_answer(said: list[PastMessage], line: _Line, *, joined: bool) -> None:
    """Add an answer's line; one that goes on with the answer before it joins that."""
    assert line.message is not None
    text, calls, reasoning = _blocks(line.message.content)
    usage = None if line.message.usage is None else _usage(line.message.usage)
    if joined and said and said[-1].message.role == "assistant":
        before = said[-1].message
        text = "\n\n".join(filter(None, (before.text, text)))
        calls = (*before.tool_calls, *calls)
        reasoning = "\n\n".join(filter(None, (before.reasoning, reasoning)))
        said.pop()
    message = Message(role="assistant", content=text, tool_calls=calls, reasoning=reasoning)
    said.append(PastMessage(message, _ms(line.timestamp), usage, line.message.model))


def _blocks(content: Any) -> tuple[str, tuple[ToolCall, ...], str]:
    """Give an answer's text, calls and reasoning."""
    if isinstance(content, str):
        return content, (), ""
    texts, calls, thoughts = list[str](), list[ToolCall](), list[str]()
    for block in _dicts(content):
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text", "")))
            case "thinking":
                thoughts.append(str(block.get("thinking", "")))
            case "tool_use":
                arguments = msgspec.json.encode(block.get("input") or {}).decode()
                calls.append(ToolCall(str(block.get("id", "")), str(block.get("name", "")), arguments))
            case _:
                pass
    return "\n\n".join(filter(None, texts)), tuple(calls), "\n\n".join(filter(None, thoughts))


def _from_user(said: _Said, at_ms: int) -> Iterator[PastMessage]:
    """Give the results in a user line, then what the person said in it."""
    if isinstance(said.content, str):
        if said.content.strip():
            yield PastMessage(Message(role="user", content=said.content), at_ms)
        return
    parts: list[Part] = []
    for block in _dicts(said.content):
        if block.get("type") == "tool_result":
            yield _result(block, at_ms)
        elif part := _part(block):
            parts.append(part)
    if parts:
        only = parts[0]
        plain = len(parts) == 1 and isinstance(only, TextPart)
        content = only.text if plain and isinstance(only, TextPart) else tuple(parts)
        yield PastMessage(Message(role="user", content=content), at_ms)


def _result(block: dict[str, Any], at_ms: int) -> PastMessage:
    inner = block.get("content")
    parts = [part for piece in _dicts(inner) if (part := _part(piece))]
    text = inner if isinstance(inner, str) else "\n".join(p.text for p in parts if isinstance(p, TextPart))
    ending = ending_of(text, is_error=block.get("is_error") is True)
    images = [part for part in parts if isinstance(part, ImagePart)]
    message = Message(
        role="tool",
        content=(TextPart(text), *images) if images else text,
        tool_call_id=str(block.get("tool_use_id", "")),
        is_error=bool(ending.error_kind),
    )
    return PastMessage(message, at_ms, error_kind=ending.error_kind, exit_code=ending.exit_code)


def _part(block: dict[str, Any]) -> Part | None:
    if block.get("type") == "text":
        return TextPart(str(block.get("text", "")))
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, dict):
        kind, data = source.get("media_type"), source.get("data")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] foreign JSON
        if isinstance(kind, str) and isinstance(data, str):
            return ImagePart(kind, data)
    return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    items = cast(list[Any], value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _usage(used: _Usage) -> Usage:
    read, wrote = used.cache_read_input_tokens, used.cache_creation_input_tokens
    prompt = used.input_tokens + read + wrote
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=used.output_tokens,
        total_tokens=prompt + used.output_tokens,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=wrote,
        cost_usd=None,
    )


def _ms(stamp: str) -> int:
    try:
        return round(datetime.fromisoformat(stamp).timestamp() * 1000)
    except ValueError:
        return 0
