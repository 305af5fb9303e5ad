"""Stream the tool calls of stored sessions, paired with their results, and store their outcomes.

A session of any size is read in constant memory: rows are streamed, and the database cuts long results.
Calls and results are paired by call id. A result without a call, before its call, or after an earlier
result is dropped. `whet.warm.outcome` judges the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import apsw
import msgspec

from whet.clock import iso
from whet.contract.messages import ToolCall
from whet.contract.receipts import CallEffects
from whet.contract.texts import NOT_JSON, shared_decoder
from whet.store import rows, sessions

POINTED = "a review has shown it"
"""The reason of an outcome that a review pointed at."""
UNMARKED = "ok"
"""Stored in place of such an outcome if a review read the call and did not point at it."""
_LONG_BYTES = 12_000
# An assistant's text is no evidence of an outcome, so it is not read.
_RESULT = (
    f"CASE WHEN m.role = {rows.ASSISTANT} THEN ''"
    f" WHEN octet_length(m.content) <= {_LONG_BYTES} THEN m.content"
    " ELSE substr(m.content, 1, 3000) || char(10) || substr(m.content, -5000) END"
)
_ROWS = (
    f"SELECT m.id, m.turn, m.role, {_RESULT}, m.extra, c.step, c.error_kind, c.exit_code, c.decided_by,"
    " m.at, c.facts, c.pointed FROM messages m"
    " LEFT JOIN tool_calls c ON m.role = 2 AND c.session = ?1 AND c.seq = m.id & ?2"
    # The turn's beginning is searched backwards, so that a long past costs nothing.
    " WHERE m.id > coalesce((SELECT b.id FROM messages b WHERE ?3 > 0 AND b.turn < ?3"
    f" AND b.id > ?1 << {rows.SEQ_BITS} AND b.id < (?1 + 1) << {rows.SEQ_BITS} ORDER BY b.id DESC LIMIT 1),"
    f" ?1 << {rows.SEQ_BITS}) AND m.id < (?1 + 1) << {rows.SEQ_BITS} ORDER BY m.id"
)
_GOOD_ENDS = "('', 'completed', 'user_exit', 'compression')"


class MinedSession(msgspec.Struct, frozen=True):
    """A finished session to learn from."""

    key: int
    id: str
    source: str
    model: str
    workspace: str
    last_active: str
    messages: int


class StoredCall(msgspec.Struct, gc=False):
    """A call and its result.

    `result` is None if the call has none; a long one lacks its middle. `seq` is the number of the result's
    message, `asked_seq` that of the call's message. `error_kind`, `exit_code` and `decided_by` are as in
    the table `tool_calls`. `effects` are None if none are stored. `pointed` is the outcome that a review has
    shown, `UNMARKED`, or an empty string if no review read the call.
    """

    seq: int
    asked_seq: int
    turn: int
    step: int
    name: str
    arguments: str
    result: str | None
    at_ms: int = 0
    error_kind: str = ""
    exit_code: int | None = None
    decided_by: str = ""
    effects: CallEffects | None = None
    pointed: str = ""


class UserWords(msgspec.Struct, frozen=True, gc=False):
    """A person's message, and the turn that it begins or belongs to."""

    turn: int
    text: str


class _CallsExtra(msgspec.Struct):
    c: tuple[ToolCall, ...] = ()


class _ResultExtra(msgspec.Struct, gc=False):
    i: str = ""
    e: bool = False


_calls_decoder = shared_decoder(_CallsExtra)
_result_decoder = shared_decoder(_ResultExtra)


def find_finished_sessions(
    connection: apsw.Connection,
    *,
    min_messages: int = 0,
    limit: int = 0,
    source: str = "",
    workspace: str = "",
) -> list[MinedSession]:
    """Return the owner's sessions that ended well, oldest first, and of more than `limit` the newest.

    Private sessions, reviews, and sessions with an open turn are left out.
    """
    where = ["NOT s.private", "s.profile = ''", "s.kind <> 'review'", "s.messages >= ?"]
    parameters: list[str | int] = [min_messages or 1]
    for column, value in (("source", source), ("workspace", workspace)):
        if value:
            where.append(f"s.{column} = ?")
            parameters.append(value)
    cursor = connection.execute(
        "SELECT s.key, s.id, s.source, s.model, s.workspace, s.last_active, s.messages FROM sessions s"
        f" WHERE {' AND '.join(where)} AND s.end_reason IN {_GOOD_ENDS}"
        " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session = s.key AND t.ended = '')"
        " AND coalesce((SELECT t.reason FROM turns t WHERE t.session = s.key ORDER BY t.number DESC LIMIT 1),"
        " '') NOT IN ('failed', 'crashed', 'refused')"
        " ORDER BY s.key DESC LIMIT ?",
        (*parameters, limit or -1),
    )
    return [MinedSession(*row) for row in cursor][::-1]


def stream_calls(
    connection: apsw.Connection, key: int, from_turn: int = 0
) -> Iterator[StoredCall | UserWords]:
    """Yield a session's calls and the person's messages, in order. A call is yielded when its result is read.

    Calls that never received a result come at the end of their step.
    """
    pending: dict[str, StoredCall] = {}
    parameters = (key, rows.SEQ_LIMIT - 1, from_turn)
    cursor = connection.execute(_ROWS, parameters)
    for id_, turn, role, content, extra, step, kind, exit_code, decided_by, at_ms, facts, pointed in cursor:
        seq = id_ & (rows.SEQ_LIMIT - 1)
        if role == rows.TOOL:
            call = _pair_result(pending, extra)
            if call is not None:
                call.seq, call.result, call.at_ms = seq, content, at_ms
                if step is not None:
                    call.error_kind, call.exit_code, call.decided_by = kind, exit_code, decided_by
                    call.effects = _facts.decode(facts) if facts else None
                    call.pointed = pointed
                yield call
            continue
        if pending:
            yield from pending.values()
            pending.clear()
        if role == rows.USER:
            yield UserWords(turn, content or "")
        elif extra is not None and '"c":' in extra:
            for position, request in enumerate(_decode_calls(extra), 1):
                pending[request.id] = StoredCall(
                    seq + position, seq, turn, seq, request.name, request.arguments, None, at_ms
                )
    yield from pending.values()


def _decode_calls(extra: str) -> tuple[ToolCall, ...]:
    try:
        return _calls_decoder.decode(extra).c
    except NOT_JSON:
        return ()


def _pair_result(pending: dict[str, StoredCall], extra: str | None) -> StoredCall | None:
    try:
        answer = _result_decoder.decode(extra or "{}")
    except NOT_JSON:
        return None
    call = pending.pop(answer.i, None)
    if call is not None and answer.e:
        call.error_kind = "failed"
    return call


def list_undone_turns(connection: apsw.Connection, key: int) -> set[int]:
    """Return the numbers of the turns that the person undid."""
    cursor = connection.execute("SELECT number FROM turns WHERE session = ? AND undone <> ''", (key,))
    return {row[0] for row in cursor}


def read_tools_json(connection: apsw.Connection, key: int) -> str:
    """Return the JSON of the tool array that a session sends."""
    row = connection.execute(
        "SELECT t.text FROM sessions s JOIN frozen_texts t ON t.id = s.tools_text WHERE s.key = ?", (key,)
    ).fetchone()
    return row[0] if row else "[]"


class _NamedTool(msgspec.Struct):
    name: str = ""


_names_decoder = shared_decoder(tuple[_NamedTool, ...])
_facts = shared_decoder(CallEffects)


def list_tool_names(connection: apsw.Connection, key: int) -> frozenset[str]:
    """Return the names of a session's tools, or an empty set if they are unknown."""
    return _read_names(read_tools_json(connection, key))


def _read_names(tools_json: str) -> frozenset[str]:
    try:
        return frozenset(tool.name for tool in _names_decoder.decode(tools_json))
    except NOT_JSON:
        return frozenset()


def read_latest_tools_json(connection: apsw.Connection) -> str:
    """Return the JSON of the tool array of the newest session that has one, or "[]".

    Sessions imported from other programs have none.
    """
    row = connection.execute(
        "SELECT t.text FROM sessions s JOIN frozen_texts t ON t.id = s.tools_text"
        " WHERE s.kind = 'chat' AND t.text NOT IN ('', '[]') ORDER BY s.key DESC LIMIT 1"
    ).fetchone()
    return row[0] if row else "[]"


def read_result_text(connection: apsw.Connection, key: int, seq: int) -> str:
    """Return a result's whole text, without its images. An empty string if there is no such message."""
    row = connection.execute(
        "SELECT role, content, extra FROM messages WHERE id = ?", (rows.row_id(key, seq),)
    ).fetchone()
    return rows.unpack(*row).text if row else ""


def list_unjudged_sessions(connection: apsw.Connection, *, again: bool = False) -> list[str]:
    """Return the ids of the sessions with turns that are not judged yet, or (`again`) with any turns."""
    where = "turns > 0" if again else "judged_turn < turns"
    return [row[0] for row in connection.execute(f"SELECT id FROM sessions WHERE {where} ORDER BY key")]


class JudgingState(msgspec.Struct, frozen=True):
    """A session's data for judging its calls.

    Calls up to `judged_turn` have outcomes. `last_turn` is the last turn that has ended, or 0.
    `tool_names` is empty if they are unknown. `has_start` tells whether a warm start was considered.
    """

    key: int
    judged_turn: int
    last_turn: int
    undone_turns: set[int]
    tool_names: frozenset[str]
    has_start: bool


def read_judging_state(connection: apsw.Connection, session_id: str) -> JudgingState:
    """Return a session's data for judging its calls. Raises NotFound."""
    columns = (
        "key, judged_turn, coalesce((SELECT number FROM turns WHERE session = sessions.key AND ended <> ''"
        " ORDER BY number DESC LIMIT 1), 0), (SELECT text FROM frozen_texts WHERE id = tools_text),"
        " (SELECT group_concat(number) FROM turns WHERE session = sessions.key AND undone <> ''),"
        " EXISTS (SELECT 1 FROM warm_starts WHERE session = sessions.key)"
    )
    key, judged_turn, last_turn, tools_json, undone, has_start = sessions.select_columns(
        connection, columns, session_id
    )()
    undone_turns = {int(number) for number in (undone or "").split(",") if number}
    names = _read_names(tools_json or "[]")
    return JudgingState(key, judged_turn, last_turn, undone_turns, names, bool(has_start))


def store_outcomes(
    connection: apsw.Connection, key: int, turn: int, outcomes: Iterable[tuple[int, str, str]]
) -> None:
    """Store (seq, outcome, reason) of a session's calls and record that they are judged up to `turn`."""
    if rows.is_team(connection):
        columns = [*zip(*outcomes, strict=True)] or [(), (), ()]
        connection.execute(_JUDGE, (*columns, key, turn, key))  # pyright: ignore[reportArgumentType] a team's database takes lists
        return
    connection.executemany(
        "UPDATE tool_calls SET outcome = ?, outcome_reason = ? WHERE session = ? AND seq = ?",
        ((outcome, reason, key, seq) for seq, outcome, reason in outcomes),
    )
    connection.execute(_SET_JUDGED, (turn, key))


def store_pointed(
    connection: apsw.Connection, key: int, outcomes: Mapping[int, str], read_ids: Collection[str] = ()
) -> None:
    """Store the outcomes that a review has shown, by the calls' seq, and which other calls (ids) it has read.
    The session will be judged again with them."""
    connection.executemany(
        "UPDATE tool_calls SET pointed = ?1, outcome = ?1, outcome_reason = ?2"
        " WHERE session = ?3 AND seq = ?4",
        [(outcome, POINTED, key, seq) for seq, outcome in outcomes.items()],
    )
    if read_ids:
        connection.execute(
            "UPDATE tool_calls SET pointed = ? WHERE session = ? AND pointed = ''"
            " AND call_id IN (SELECT value FROM json_each(?))",
            (UNMARKED, key, msgspec.json.encode(sorted(read_ids)).decode()),
        )
        connection.execute("UPDATE sessions SET judged_turn = 0 WHERE key = ?", (key,))


_SET_JUDGED = "UPDATE sessions SET judged_turn = ? WHERE key = ?"
_JUDGE = (
    "WITH judged AS (UPDATE tool_calls c SET outcome = n.outcome, outcome_reason = n.reason"
    " FROM unnest(CAST(? AS bigint[]), CAST(? AS text[]), CAST(? AS text[])) AS n (seq, outcome, reason)"
    f" WHERE c.session = ? AND c.seq = n.seq) {_SET_JUDGED}"
)


def visit_outcomes(connection: apsw.Connection, take: Callable[[int, str, int, str], None]) -> None:
    """Call `take(session key, tool, position, outcome)` for every judged call, in order.

    `position` counts a session's judged calls from 0. Reviews, private sessions and undone turns are left
    out.
    """
    last, position = 0, 0
    for key, name, outcome in connection.execute(
        "SELECT c.session, c.name, c.outcome FROM tool_calls c CROSS JOIN sessions s ON s.key = c.session"
        " WHERE s.kind <> 'review' AND NOT s.private AND c.outcome NOT IN ('', 'undone')"
        " ORDER BY c.session, c.seq"
    ):
        position = position + 1 if key == last else 0
        last = key
        take(key, name, position, outcome)


_SLACK_MS = 20
_DAY_MS = 86_400_000
# The call itself was running, or it may have left a process behind in a session that had not ended.
_RUNNING = (
    "SELECT c.session, c.seq, c.position, c.name, c.facts, c.finished"
    " FROM sessions s JOIN tool_calls c ON c.session = s.key"
    " WHERE s.started <= ?2 AND s.last_active >= ?3"
    f" AND c.started <= ?1 + {_SLACK_MS} AND (coalesce(c.finished, c.started + {_DAY_MS}) >= ?1 - {_SLACK_MS}"
    " OR (instr(c.facts, 'runs_on') AND (s.ended = '' OR s.ended >= ?2))) ORDER BY c.session, c.seq"
)
_ENDED = (
    "SELECT facts FROM tool_calls WHERE session = ? AND seq > ? AND finished < ? AND instr(facts, 'over')"
)
_CALLS_NAMING = (
    "SELECT c.session, c.seq, c.position, c.name, c.facts, c.finished"
    " FROM sessions s JOIN tool_calls c ON c.session = s.key"
    " WHERE s.workspace = ? AND instr(c.facts, ?) ORDER BY c.started DESC LIMIT 50"
)


class PastCall(msgspec.Struct, frozen=True):
    """A finished call: its session's key, its result's number, the tool, the arguments as JSON, and its
    recorded effects."""

    key: int
    seq: int
    name: str
    arguments: str
    effects: CallEffects


def find_running_calls(connection: apsw.Connection, at_ms: int) -> Iterator[PastCall]:
    """Yield the calls of any session that were running at a time, by session and in order.

    A call also counts as running while a process that it left behind runs, until a later call has seen
    the process end.
    """
    at, day_before = (iso(datetime.fromtimestamp(ms / 1000, UTC)) for ms in (at_ms, at_ms - _DAY_MS))
    for row in connection.execute(_RUNNING, (at_ms, at, day_before)).fetchall():
        session, seq, finished = row[0], row[1], row[5]
        is_over = finished is not None and finished < at_ms - _SLACK_MS
        for call in _read_calls(connection, [row]):
            ends = connection.execute(_ENDED, (session, seq, at_ms - _SLACK_MS)).fetchall() if is_over else []
            if all(_facts.decode(facts).over != call.effects.runs_on for (facts,) in ends):
                yield call


def find_calls_naming(connection: apsw.Connection, workspace: str, name: str) -> Iterator[PastCall]:
    """Yield the calls of a workspace whose commands, edits or changed files contain a text, newest first."""
    yield from _read_calls(connection, connection.execute(_CALLS_NAMING, (workspace, name)).fetchall())


def _read_calls(connection: apsw.Connection, records: Iterable[Sequence[Any]]) -> Iterator[PastCall]:
    for session, seq, position, name, facts, _ in records:
        row = connection.execute(
            "SELECT role, content, extra FROM messages WHERE id = ?",
            (rows.row_id(session, seq - 1 - position),),
        ).fetchone()
        if row is not None:
            calls = rows.unpack(*row).tool_calls
            effects = _facts.decode(facts) if facts else CallEffects()
            yield PastCall(session, seq, name, calls[int(position)].arguments, effects)


def read_next_folder(facts: str | None) -> str | None:
    """Return where a call's stored facts say that the next command begins, or None if it is as before."""
    return _facts.decode(facts).folder if facts else None


def has_received_bytes(facts: str | None) -> bool | None:
    """Return whether a call's stored facts say that it received bytes from the network, or None if they were
    not counted."""
    return _facts.decode(facts).received if facts else None
