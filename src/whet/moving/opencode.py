"""Read opencode's sessions, `~/.local/share/opencode/opencode.db`.

A message's row has its role and usage. Its text, tool calls and results are in the rows of its parts.
Reverted messages are skipped. All others are imported, although after a compaction the model saw only the
summary (an answer that is marked as one) and later messages. A child session names its parent. Source:
databases of version 1.18; earlier ones lack some columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from whet.contract.messages import ImagePart, Message, Part, ToolCall, Usage
from whet.contract.texts import NOT_JSON, from_foreign_json, from_values, plural
from whet.moving.pairing import (
    TranscriptBuilder,
    build_result,
    build_usage,
    dicts_in,
    join_images,
    parse_image_url,
    text_in,
)
from whet.moving.tables import ForeignTable, check_columns
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession

ORIGIN = "opencode"
_NAME = "opencode.db"
_MAX_TIME_MS = 250_000_000_000_000  # the year 9892
_REQUIRED_COLUMNS = {
    "session": ("id",),
    "message": ("id", "session_id", "data"),
    "part": ("id", "message_id", "data"),
}
_SESSION_COLUMNS = ("id", "parent_id", "directory", "title", "model", "revert", "time_created")
_ENDED = ("completed", "error")  # a call in any other state has no result yet


def database(path: Path) -> Path:
    """Return the path of the database in a folder, or the file itself."""
    return path / _NAME if path.is_dir() else path


class OpencodeDatabase:
    """The sessions of an open database. Raises ConfigError if its tables are not those of opencode."""

    def __init__(self, connection: apsw.Connection) -> None:
        check_columns(
            connection,
            "it is not a database of opencode",
            _REQUIRED_COLUMNS,
            hint="name the folder that holds its opencode.db, ~/.local/share/opencode by default",
        )
        self._sessions = ForeignTable(connection, "session", _SESSION_COLUMNS)
        self._messages = ForeignTable(connection, "message", ("id", "time_created", "data"))
        self._parts = ForeignTable(connection, "part", ("id", "data"))
        self._count: int = connection.execute("SELECT count(*) FROM session").fetchall()[0][0]
        self._unreadable: Counter[str] = Counter()  # by what it is

    def count(self) -> int:
        """Return the number of sessions."""
        return self._count

    def notice(self) -> str:
        """Return a line for the person about what the sessions read so far lack, or ""."""
        left_out = [plural(count, f"unreadable {noun}") for noun, count in sorted(self._unreadable.items())]
        missing = (*self._sessions.missing, *self._messages.missing)
        parts = [f"left out: {', '.join(left_out)}"] if left_out else []
        parts += [f"the database has no {', '.join(missing)}"] if missing else []
        return "; ".join(parts)

    def sessions(self) -> Iterator[PastSession]:
        """Yield the sessions with user messages, parents before their children."""
        for row in sorted(self._sessions.rows(), key=_order):
            model = self._parse_fields(row["model"], "model")
            title = text_in(row["title"])
            new_session = NewSession(
                id=str(row["id"]),
                parent_session_id=text_in(row["parent_id"]),
                source=ORIGIN,
                provider=text_in(model.get("providerID")),
                model=text_in(model.get("id")),
                workspace=text_in(row["directory"]),
                title="" if title.startswith(("New session - ", "Child session - ")) else title,
            )
            revert = self._parse_fields(row["revert"], "revert mark")
            past = self._read_session(new_session, text_in(revert.get("messageID")))
            if past is not None:
                yield past

    def _read_session(self, new_session: NewSession, reverted: str) -> PastSession | None:
        transcript = TranscriptBuilder()
        for row in sorted(self._messages.rows("WHERE session_id = ?", (new_session.id,)), key=_order):
            if row["id"] == reverted:
                break
            message = self._parse_fields(row["data"], "message")
            parts = [
                self._parse_fields(part["data"], "part")
                for part in self._parts.rows("WHERE message_id = ? ORDER BY id", (str(row["id"]),))
            ]
            shown = [part for part in parts if not part.get("ignored")]
            at_ms = _time_ms(row)
            if message.get("role") == "user":
                if content := _read_user_content(shown):
                    transcript.messages.append(PastMessage(Message(role="user", content=content), at_ms))
            elif message.get("role") == "assistant":
                if message.get("summary") is True:
                    transcript.mark_summary()
                transcript.messages += _read_answer(message, shown, at_ms)
        return transcript.build_session(new_session)

    def _parse_fields(self, data: Any, noun: str) -> dict[str, Any]:
        """Parse a cell of JSON. Counts a cell that is not an object as an unreadable `noun`."""
        if data is None or data == "":
            return {}
        try:
            return from_foreign_json(text_in(data), dict[str, Any])
        except NOT_JSON:
            self._unreadable[noun] += 1
            return {}


def _time_ms(row: dict[str, Any]) -> int:
    created_ms = row["time_created"]
    return created_ms if isinstance(created_ms, int) and 0 <= created_ms <= _MAX_TIME_MS else 0


def _order(row: dict[str, Any]) -> tuple[int, str]:
    return _time_ms(row), str(row["id"])


def _read_user_content(parts: list[dict[str, Any]]) -> str | tuple[Part, ...]:
    texts = [
        part["text"]
        for part in parts
        if part.get("type") == "text" and not part.get("synthetic") and text_in(part.get("text"))
    ]
    images = _read_images(parts)
    text = "\n".join(texts)
    return join_images(text, images)


def _read_images(parts: list[dict[str, Any]]) -> list[ImagePart]:
    files = (part for part in parts if part.get("type") == "file")
    return [image for part in files if (image := parse_image_url(part.get("url"))) is not None]


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
        *(_read_result(part, at_ms) for part in tool_parts if part["state"].get("status") in _ENDED),
    ]


def _read_result(part: dict[str, Any], at_ms: int) -> PastMessage:
    state = part["state"]
    is_error = state.get("status") == "error"
    text = text_in(state.get("error" if is_error else "output"))
    content = join_images(text, _read_images(dicts_in(state.get("attachments"))))
    result = Message(role="tool", content=content, tool_call_id=text_in(part.get("callID")))
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
