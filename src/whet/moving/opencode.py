"""Read opencode's sessions, `~/.local/share/opencode/opencode.db`.

A message's row has its role and usage. Its text, tool calls and results are in the rows of its parts.
Reverted messages are skipped. All others are imported, although after a compaction the model saw only the
summary (an answer that is marked as one) and later messages. A child session names its parent. Source:
databases of version 1.18.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from whet.contract.messages import ImagePart, Message, Part, TextPart, ToolCall, Usage
from whet.contract.texts import NOT_JSON, from_foreign_json, from_values
from whet.moving.pairing import TranscriptBuilder, build_result, build_usage, parse_image_url, text_in
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession

ORIGIN = "opencode"
_NAME = "opencode.db"


def database(path: Path) -> Path:
    """Return the path of the database in a folder, or the file itself."""
    return path / _NAME if path.is_dir() else path


def count(connection: apsw.Connection) -> int:
    """Return the number of sessions."""
    return int(connection.execute("SELECT count(*) FROM session").fetchall()[0][0])


def sessions(connection: apsw.Connection) -> Iterator[PastSession]:
    """Yield the sessions with user messages, parents before their children."""
    rows = connection.execute(
        "SELECT id, coalesce(parent_id, ''), directory, title, coalesce(model, ''), coalesce(revert, '')"
        " FROM session ORDER BY time_created, id"
    ).fetchall()
    for id_, parent, folder, title, model, revert in rows:
        model_fields = _parse_fields(model)
        new_session = NewSession(
            id=id_,
            parent_session_id=parent,
            source=ORIGIN,
            provider=text_in(model_fields.get("providerID")),
            model=text_in(model_fields.get("id")),
            workspace=folder,
            title="" if title.startswith(("New session - ", "Child session - ")) else title,
        )
        past = _read_session(connection, new_session, text_in(_parse_fields(revert).get("messageID")))
        if past is not None:
            yield past


def _read_session(connection: apsw.Connection, new_session: NewSession, reverted: str) -> PastSession | None:
    transcript = TranscriptBuilder()
    rows = connection.execute(
        "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id",
        (new_session.id,),
    ).fetchall()
    for id_, at_ms, data in rows:
        if id_ == reverted:
            break
        message = _parse_fields(data)
        parts = connection.execute(
            "SELECT data FROM part WHERE message_id = ? ORDER BY id", (id_,)
        ).fetchall()
        fields = [_parse_fields(part) for (part,) in parts]
        if message.get("role") == "user":
            if content := _read_user_content(fields):
                transcript.messages.append(PastMessage(Message(role="user", content=content), at_ms))
        elif message.get("role") == "assistant":
            if message.get("summary") is True:
                transcript.mark_summary()
            transcript.messages += _read_answer(message, fields, at_ms)
    return transcript.build_session(new_session)


def _read_user_content(parts: list[dict[str, Any]]) -> str | tuple[Part, ...]:
    texts = [
        part["text"]
        for part in parts
        if part.get("type") == "text" and not part.get("synthetic") and text_in(part.get("text"))
    ]
    images = [
        image
        for part in parts
        if part.get("type") == "file" and (image := parse_image_url(part.get("url"))) is not None
    ]
    text = "\n".join(texts)
    image_parts: list[ImagePart] = [image for image in images if image.media_type.startswith("image/")]
    return (TextPart(text), *image_parts) if image_parts else text


def _read_answer(message: dict[str, Any], parts: list[dict[str, Any]], at_ms: int) -> list[PastMessage]:
    """Return an answer with its calls, followed by their results."""
    texts = [text_in(part.get("text")) for part in parts if part.get("type") == "text"]
    tool_parts = [
        part for part in parts if part.get("type") == "tool" and isinstance(part.get("state"), dict)
    ]
    calls = tuple(
        ToolCall(
            text_in(part.get("callID")),
            text_in(part.get("tool")) or "unknown",
            msgspec.json.encode(part["state"].get("input") or {}).decode(),
        )
        for part in tool_parts
    )
    text = "\n".join(filter(None, texts))
    answer = Message(role="assistant", content=text, tool_calls=calls)
    model = text_in(message.get("modelID"))
    return [
        PastMessage(answer, at_ms, _read_usage(message.get("tokens")), model),
        *(_read_result(part, at_ms) for part in tool_parts),
    ]


def _read_result(part: dict[str, Any], at_ms: int) -> PastMessage:
    state = part["state"]
    is_error = state.get("status") == "error"
    text = text_in(state.get("error" if is_error else "output"))
    result = Message(role="tool", content=text, tool_call_id=text_in(part.get("callID")))
    past = build_result(result, at_ms, is_error=is_error)
    metadata = state.get("metadata")
    code = metadata.get("exit") if isinstance(metadata, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(code, int) or isinstance(code, bool) or is_error:
        return past
    message = msgspec.structs.replace(past.message, is_error=code != 0)
    return msgspec.structs.replace(past, message=message, exit_code=code, error_kind="exit" if code else "")


def _read_usage(tokens: Any) -> Usage | None:
    counts = _read_counts(tokens)
    cache = _read_counts(tokens.get("cache")) if isinstance(tokens, dict) else {}  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    cache_read, cache_write = cache.get("read", 0), cache.get("write", 0)
    fresh, output = counts.get("input", 0), counts.get("output", 0) + counts.get("reasoning", 0)
    if not fresh + cache_read + cache_write + output:
        return None
    return build_usage(
        fresh,
        output,
        read_tokens=cache_read,
        written_tokens=cache_write,
        reasoning=counts.get("reasoning", 0),
    )


def _read_counts(values: Any) -> dict[str, int]:
    try:
        return {
            key: number
            for key, number in from_values(values, dict[str, Any]).items()
            if isinstance(number, int)
        }
    except msgspec.ValidationError:
        return {}


def _parse_fields(data: str) -> dict[str, Any]:
    """Parse a JSON column, or return an empty dict if it is not an object."""
    try:
        return from_foreign_json(data, dict[str, Any])
    except NOT_JSON:
        return {}
