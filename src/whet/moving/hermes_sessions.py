"""Read the sessions in Hermes Agent's `state.db`.

The tables are `sessions` and `messages` of schema version 22, or of earlier ones with the same columns. A
compacted message has `active` 0 and `compacted` 1. Rewound messages are skipped. If a compaction continued a
session in another one, the first is the parent of the other. Source: the table definitions of hermes-agent
0.19.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import apsw
import msgspec

from whet.contract.messages import Message, Part, TextPart, ToolCall
from whet.contract.texts import NOT_JSON, from_json, shared_decoder
from whet.moving.pairing import build_usage, pair, parse_ending, parse_image_url
from whet.moving.tables import ForeignTable, check_columns
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession, SessionKind, make_title

ORIGIN = "hermes"
KNOWN_SCHEMA = 22
_MAX_NUMBER = 250_000_000_000.0  # as seconds since 1970, in the year 9892
_JSON_MARK = "\0json:"
_REQUIRED_COLUMNS = {
    "sessions": ("id", "source", "started_at"),
    "messages": ("id", "session_id", "role", "content", "tool_calls", "tool_call_id", "timestamp"),
}
_MESSAGE_COLUMNS = (
    *("role", "content", "tool_calls", "tool_call_id", "timestamp"),
    *("tool_name", "reasoning", "reasoning_content", "active", "compacted"),
)
_ENDINGS = {
    "cli_close": "user_exit",
    "new_session": "user_exit",
    "session_reset": "user_exit",
    "session_switch": "user_exit",
    "resumed_other": "user_exit",
    "agent_close": "user_exit",
    "cron_complete": "completed",
    "orphaned_compression": "compression",
}
_CONTINUED = ("compression", "branched")


class _Function(msgspec.Struct):
    name: str = ""
    arguments: Any = ""


class _Call(msgspec.Struct):
    """A stored call. `arguments` is JSON text, or an object in old rows."""

    id: str = ""
    call_id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _Row(msgspec.Struct):
    """A row of `sessions`. Missing columns have their defaults."""

    id: str
    source: str | None = None
    model: str | None = None
    parent_session_id: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    end_reason: str | None = None
    cwd: str | None = None
    title: str | None = None
    billing_provider: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    actual_cost_usd: float | None = None
    estimated_cost_usd: float | None = None
    cost_status: str | None = None


_calls = shared_decoder(list[_Call], strict=False)


def _to_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _to_number(value: Any) -> float | None:
    """Return a number that can be a time or an amount, or None for any other value."""
    return value if isinstance(value, int | float) and 0 <= value <= _MAX_NUMBER else None


def _to_count(value: Any) -> int | None:
    number = _to_number(value)
    return None if number is None else int(number)


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("started_at", "ended_at", "actual_cost_usd", "estimated_cost_usd"), _to_number),
    **dict.fromkeys((name for name in _Row.__struct_fields__ if name.endswith("_tokens")), _to_count),
}


class HermesSessions:
    """The sessions of one open database. Raises ConfigError if its tables are not those of Hermes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        check_columns(
            connection,
            "this state.db is not one of Hermes Agent",
            _REQUIRED_COLUMNS,
            hint="name the folder that Hermes Agent uses, ~/.hermes by default",
        )
        self._sessions = ForeignTable(connection, "sessions", _Row.__struct_fields__)
        self._message_rows = ForeignTable(connection, "messages", _MESSAGE_COLUMNS)
        self._endings: dict[Any, Any] = {}
        if "sessions.end_reason" not in self._sessions.missing:
            self._endings = {row["id"]: row["end_reason"] for row in self._sessions.rows()}

    @property
    def schema(self) -> int:
        """The version of its schema, or 0 if it has none."""
        try:
            row = self._db.execute("SELECT max(version) FROM schema_version").fetchone()
        except apsw.SQLError:
            return 0
        return (_to_count(row[0]) or 0) if row else 0

    def count(self) -> tuple[int, int]:
        """Return the number of sessions and messages."""
        row = self._db.execute(
            "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"
        ).fetchone()
        return (row[0], row[1]) if row else (0, 0)

    def sessions(self) -> Iterator[PastSession]:
        """Yield every session that has messages, one at a time, parents first."""
        yielded: set[str] = set()
        # A child usually starts after its parent. Rows that come before their parent wait for another round.
        pending = list(self._sessions.rows("ORDER BY started_at, id"))
        while pending:
            later: list[dict[str, Any]] = []
            for cells in pending:
                row = _convert_row(cells)
                parent = row.parent_session_id or ""
                if parent and parent not in yielded and parent in self._endings:
                    later.append(cells)
                    continue
                yielded.add(row.id)
                if past := self._session(row):
                    yield past
            if len(later) == len(pending):  # parents in a circle: take the rows as they are
                self._endings = {}
            pending = later

    def _session(self, row: _Row) -> PastSession | None:
        messages_read, live_indices = self._messages(row.id)
        paired = pair(messages_read)
        if not paired.messages:
            return None
        live: tuple[int, ...] | None = None
        if len(live_indices) < len(messages_read):
            where = {source: number for number, source in enumerate(paired.sources) if source >= 0}
            live = _complete_pairs([where[i] for i in live_indices if i in where], paired.messages)
        messages = list(paired.messages)
        _set_usage(row, messages)
        new_session = NewSession(
            id=row.id,
            parent_session_id=row.parent_session_id or "",
            kind=self._kind(row),
            source=row.source or "",
            provider=row.billing_provider or "",
            model=row.model or "",
            workspace=row.cwd or "",
            title=make_title(row.title or _first_words(messages)),
        )
        reason = row.end_reason or ""
        return PastSession(
            new_session,
            messages,
            started_ms=_to_ms(row.started_at),
            ended_ms=_to_ms(row.ended_at),
            end_reason=_ENDINGS.get(reason, reason),
            live=live,
        )

    def _kind(self, row: _Row) -> SessionKind:
        if not row.parent_session_id:
            return "chat"
        return "chat" if self._endings.get(row.parent_session_id) in _CONTINUED else "child"

    def _messages(self, session_id: str) -> tuple[list[PastMessage], list[int]]:
        """Return the messages, and the indices of those that the model still saw, in its order.

        A message that a compaction has written again is returned once.
        """
        messages: list[PastMessage] = []
        live_indices: list[int] = []
        archived: dict[tuple[str, ...], int] = {}
        for row in self._message_rows.rows("WHERE session_id = ? ORDER BY id", (session_id,)):
            is_active = row.get("active") in (None, 1)
            if row["role"] not in ("user", "assistant", "tool") or not (is_active or row.get("compacted")):
                continue
            message = _convert_message(row)
            key = (str(row["role"]), message.message.text, str(row["tool_calls"]), str(row["tool_call_id"]))
            if is_active and key in archived:
                live_indices.append(archived.pop(key))
                continue
            if is_active:
                live_indices.append(len(messages))
            else:
                archived[key] = len(messages)
            messages.append(message)
        return messages, live_indices


def _convert_row(cells: dict[str, Any]) -> _Row:
    """Convert a row. A cell of the wrong type, which SQLite allows, must not lose the session."""
    values: dict[str, Any] = {name: _READ.get(name, _to_text)(value) for name, value in cells.items()}
    values["id"] = values["id"] or ""
    return _Row(**values)


def _convert_message(row: dict[str, Any]) -> PastMessage:
    at_ms = _to_ms(row["timestamp"])
    content = _read_content(row["content"])
    if row["role"] == "tool":
        ending = parse_ending(content if isinstance(content, str) else "")
        message = Message(
            role="tool",
            content=content,
            tool_call_id=_to_text(row["tool_call_id"]) or "",
            tool_name=_to_text(row.get("tool_name")) or "",
            is_error=bool(ending.error_kind),
        )
        return PastMessage(message, at_ms, error_kind=ending.error_kind, exit_code=ending.exit_code)
    calls = _tool_calls(row["tool_calls"]) if row["role"] == "assistant" else ()
    reasoning = _to_text(row.get("reasoning")) or _to_text(row.get("reasoning_content")) or ""
    message = Message(role=row["role"], content=content, tool_calls=calls, reasoning=reasoning)
    return PastMessage(message, at_ms)


def _read_content(value: Any) -> str | tuple[Part, ...]:
    value = _to_text(value) or ""
    if not value.startswith(_JSON_MARK):
        return value
    try:
        parts = from_json(value[len(_JSON_MARK) :], list[dict[str, Any]])
    except NOT_JSON:
        return value[len(_JSON_MARK) :]
    return tuple(_read_part(part) for part in parts)


def _read_part(part: dict[str, Any]) -> Part:
    url = part.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] foreign JSON
    return parse_image_url(cast(object, url)) or TextPart(
        str(part.get("text") or (f"[image: {url}]" if url else ""))
    )


def _tool_calls(text: str | None) -> tuple[ToolCall, ...]:
    if not text:
        return ()
    try:
        calls = _calls.decode(text)
    except NOT_JSON:
        return ()
    return tuple(
        ToolCall(
            call.id or call.call_id or f"call_{number}", call.function.name, _read_arguments(call.function)
        )
        for number, call in enumerate(calls)
        if call.function.name
    )


def _read_arguments(function: _Function) -> str:
    arguments = function.arguments
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def _set_usage(row: _Row, messages: list[PastMessage]) -> None:
    """Store the usage of the session, for which Hermes counts tokens, with its last answer."""
    for number in range(len(messages) - 1, -1, -1):
        if messages[number].message.role == "assistant":
            cache_read_tokens, cache_write_tokens = row.cache_read_tokens or 0, row.cache_write_tokens or 0
            input_tokens, output_tokens = row.input_tokens or 0, row.output_tokens or 0
            usage = build_usage(
                input_tokens,
                output_tokens,
                read_tokens=cache_read_tokens,
                written_tokens=cache_write_tokens,
                reasoning=row.reasoning_tokens or 0,
            )
            usage = msgspec.structs.replace(usage, cost_usd=_cost_usd(row))
            messages[number] = msgspec.structs.replace(messages[number], usage=usage, model=row.model or "")
            return


def _cost_usd(row: _Row) -> float | None:
    """Return the session's cost, or None if it is unknown, for which Hermes may write 0."""
    cost = row.actual_cost_usd if row.actual_cost_usd is not None else row.estimated_cost_usd
    return cost if cost or row.cost_status not in (None, "", "unknown") else None


def _complete_pairs(live: Sequence[int], messages: Sequence[PastMessage]) -> tuple[int, ...]:
    """Return the live indices, with all results of each answer and no result without its answer."""
    indices: dict[int, None] = {}
    for index in live:
        message = messages[index].message
        if message.role != "tool":
            indices.update(dict.fromkeys(range(index, index + 1 + len(message.tool_calls))))
    return tuple(indices)


def _first_words(messages: Sequence[PastMessage]) -> str:
    return next((past.message.text for past in messages if past.message.role == "user"), "")


def _to_ms(seconds: Any) -> int:
    number = _to_number(seconds)
    return 0 if number is None else round(number * 1000)
