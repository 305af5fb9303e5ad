"""Split each turn of a session into spans of the model, of its tools and of waiting for a person.

The spans are computed from the times at which messages were stored and calls began and ended. A model's span
begins when its input was stored, so it includes retries.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import apsw
import msgspec

from whet.contract.messages import Usage
from whet.store import rows, sessions

SpanKind = Literal["model", "tool", "wait"]
_ASKED_DECIDERS = ("person", "service", "nobody")
_NEWEST = "number > (SELECT max(number) - ? FROM turns WHERE session = ?)"


class TurnSpan(msgspec.Struct, frozen=True):
    """One span of a turn. `seq` is the message that it produced, `usage` that of a model's span."""

    kind: SpanKind
    name: str
    begun_ms: int
    ended_ms: int
    seq: int
    usage: Usage | None = None
    error_kind: str = ""

    @property
    def duration_s(self) -> float:
        """The length in seconds."""
        return max(0, self.ended_ms - self.begun_ms) / 1000


class TurnSpans(msgspec.Struct, frozen=True):
    """A turn with its spans in order. `ended_ms` is None if it has not ended."""

    number: int
    begun_ms: int
    ended_ms: int | None
    reason: str
    is_undone: bool
    spans: tuple[TurnSpan, ...]

    @property
    def last_ms(self) -> int:
        """The end of the last span, or of the turn."""
        return max([self.ended_ms or 0, self.begun_ms, *(span.ended_ms for span in self.spans)])

    def spent_s(self, kind: SpanKind) -> float:
        """Return the seconds spent on a kind, counting overlaps once."""
        total, until = 0, 0
        for span in sorted((one for one in self.spans if one.kind == kind), key=lambda one: one.begun_ms):
            total += max(0, span.ended_ms - max(span.begun_ms, until))
            until = max(until, span.ended_ms)
        return total / 1000


class WindowMark(msgspec.Struct, frozen=True):
    """The tokens of the context window that a request used.

    For a compaction, these are the tokens before it (`tokens`) and `after` it.
    """

    seq: int
    tokens: int
    cached: int = 0
    after: int | None = None


def list_turn_spans(connection: apsw.Connection, session_id: str, newest: int) -> list[TurnSpans]:
    """Return the spans of a session's `newest` turns, ascending. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    records = connection.execute(
        f"SELECT number, started, ended, reason, undone FROM turns WHERE session = ? AND {_NEWEST}"
        " ORDER BY number",
        (key, newest, key),
    ).fetchall()
    turns = [
        TurnSpans(number, _ms(begun), _ms(ended) if ended else None, reason, bool(undone), ())
        for number, begun, ended, reason, undone in records
    ]
    spans: dict[int, list[TurnSpan]] = {turn_spans.number: [] for turn_spans in turns}
    at = {turn_spans.number: turn_spans.begun_ms for turn_spans in turns}
    step = dict(at)
    first = turns[0].number if turns else 0
    for id_, turn, role, at_ms, extra, name, begun, ended, decided_by, kind in connection.execute(
        "SELECT m.id, m.turn, m.role, m.at, m.extra,"
        " c.name, c.started, c.finished, c.decided_by, c.error_kind FROM messages m"
        " LEFT JOIN tool_calls c ON c.session = ?1 AND c.seq = m.id & ?2 AND m.role = ?3"
        " WHERE m.id > ?4 AND m.id < ?5 AND m.turn >= ?6 ORDER BY m.id",
        (key, rows.SEQ_LIMIT - 1, rows.TOOL, *rows.ids_of(key), first),
    ):
        if turn not in spans:
            continue
        seq = id_ & (rows.SEQ_LIMIT - 1)
        if role == rows.ASSISTANT:
            usage = rows.unpack_with_usage(role, "", extra)[1]
            spans[turn].append(TurnSpan("model", "model", at[turn], at_ms, seq, usage))
            at[turn] = step[turn] = at_ms
        elif role == rows.TOOL and name is not None:
            spans[turn] += _call_spans(name, seq, (step[turn], begun, ended, at_ms), decided_by, kind)
            at[turn] = max(at[turn], ended or at_ms)
        else:
            at[turn] = max(at[turn], at_ms)
    return [
        msgspec.structs.replace(turn_spans, spans=tuple(spans[turn_spans.number])) for turn_spans in turns
    ]


def _call_spans(
    name: str, seq: int, times: tuple[int, int | None, int | None, int], decided_by: str, kind: str
) -> list[TurnSpan]:
    """Return a call's spans: waiting for a decision, then the call itself.

    `times` are those at which its step was stored, it began, it ended, and its result was stored.
    """
    asked_ms, begun, ended, stored_ms = times
    result: list[TurnSpan] = []
    if decided_by in _ASKED_DECIDERS or (kind == "denied" and begun is None):
        result.append(TurnSpan("wait", name, asked_ms, begun or stored_ms, seq, error_kind=kind))
    if begun is not None:
        result.append(TurnSpan("tool", name, begun, max(begun, ended or stored_ms), seq, error_kind=kind))
    return result


def read_window(connection: apsw.Connection, session_id: str, limit: int = 400) -> list[WindowMark]:
    """Return marks of the newest `limit` requests and the compactions since, in order. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    marks: list[WindowMark] = []
    for id_, extra in connection.execute(
        "SELECT id, extra FROM messages WHERE id > ? AND id < ? AND role = ? AND extra IS NOT NULL"
        " ORDER BY id DESC LIMIT ?",
        (*rows.ids_of(key), rows.ASSISTANT, limit),
    ):
        usage = rows.unpack_with_usage(rows.ASSISTANT, "", extra)[1]
        if usage is not None and usage.prompt_tokens:
            seq = id_ & (rows.SEQ_LIMIT - 1)
            marks.append(WindowMark(seq, usage.prompt_tokens, usage.cache_read_tokens))
    marks.reverse()
    first = marks[0].seq if marks else 0
    marks += [
        WindowMark(seq, before, after=after)
        for seq, before, after in connection.execute(
            "SELECT after_seq, tokens_before, tokens_after FROM compactions"
            " WHERE session = ? AND after_seq >= ? AND undone = ''",
            (key, first),
        )
    ]
    return sorted(marks, key=lambda mark: (mark.seq, mark.after is not None))


def _ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
