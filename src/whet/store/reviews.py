"""Store reviews: the counters that make one due, its progress and result, and read the turns for it.

Every function takes a connection inside a transaction. The folder `review` decides when a review is due and
carries it out. Only it knows the format of a job's payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from whet.contract.messages import Usage
from whet.store import jobs, rows, sessions, turns
from whet.store.sessions import NewSession, SessionRow
from whet.store.turns import ERROR_CHARS, TurnCall, TurnRecord

KIND = "review"
SHORT_TURNS = 2
"""Conversations of at most this many turns are reviewed together with the others of their folder."""


class Counters(msgspec.Struct, frozen=True):
    """A conversation's counts since it was last reviewed or learned from.

    `runtime` is JSON of the model that answered last, which only the folder `review` reads.
    """

    turns: int = 0
    steps: int = 0
    reasons: tuple[str, ...] = ()
    runtime: str = ""


class ReviewedTurn(msgspec.Struct, frozen=True):
    """One turn's data for a review.

    `said` are the person's texts. `context_tokens` is the size of the last request with its answer.
    `is_cached`: the server read a part of one of the turn's requests from its cache.
    """

    said: tuple[str, ...]
    calls: tuple[TurnCall, ...]
    context_tokens: int
    is_cached: bool = False

    @classmethod
    def of_memory(cls, turn: TurnRecord) -> ReviewedTurn:
        """Build the data from the record of a turn that ran in this process."""
        calls = tuple(turn.calls[seq] for seq in sorted(turn.calls))
        return cls(tuple(turn.said), calls, turn.context_tokens, bool(turn.usage.cache_read_tokens))


class DaySpending(msgspec.Struct, frozen=True):
    """The tokens of reviews and of everything else in one day. `usd` is the reviews' cost, None while a price
    is unknown."""

    review_tokens: int
    other_tokens: int
    usd: float | None


class DayUsage(msgspec.Struct, frozen=True):
    """The usage of reviews and of everything else in one day."""

    reviews: Usage
    others: Usage


class ReviewRow(msgspec.Struct, frozen=True):
    """One review, from its job and its own session. `state` is the job's."""

    id: str
    session_id: str
    review_session_id: str
    state: jobs.JobState
    payload: str
    created: str
    finished: str
    summary: str
    note: str
    attempts: int
    failures: int
    model: str
    usage: Usage


_MESSAGE_BEFORE = (
    "coalesce((SELECT id FROM messages WHERE id > ?1 AND id < ?2 AND turn < ?3 ORDER BY id DESC LIMIT 1), ?1)"
)
# A result may be large, and its text is not needed here.
_MESSAGES = (
    f"SELECT id, turn, role, CASE WHEN role <> {rows.TOOL} THEN content END, extra FROM messages"
    f" WHERE id > {_MESSAGE_BEFORE} AND id < ?2 ORDER BY id DESC"
)
_CALLS = (
    f"SELECT c.turn, c.seq, c.step, c.name, c.error_kind, coalesce(substr(m.content, 1, {ERROR_CHARS}), '')"
    " FROM tool_calls c LEFT JOIN messages m ON c.error_kind <> '' AND m.id = ?1 + c.seq"
    f" WHERE c.session = ?4 AND c.seq > {_MESSAGE_BEFORE} - ?1 ORDER BY c.seq"
)


def read_turn(connection: apsw.Connection, key: int, turn: int) -> ReviewedTurn:
    """Return one turn."""
    return select_turns(connection, key, turn, 1)()[0]


def select_turns(
    connection: apsw.Connection, key: int, last: int, count: int
) -> Callable[[], list[ReviewedTurn]]:
    """Query `count` turns up to `last`, and return the function that reads them, newest first."""
    values = (*rows.ids_of(key), last - count + 1)
    messages, calls = connection.execute(_MESSAGES, values), connection.execute(_CALLS, (*values, key))

    def read() -> list[ReviewedTurn]:
        message_rows, call_rows = messages.fetchall(), calls.fetchall()
        return [
            _build_turn(
                [(*row[2:], row[0] & (rows.SEQ_LIMIT - 1)) for row in message_rows if row[1] == number],
                [row[1:] for row in call_rows if row[0] == number],
            )
            for number in range(last, last - count, -1)
        ]

    return read


def _build_turn(message_rows: list[tuple[Any, ...]], call_rows: list[tuple[Any, ...]]) -> ReviewedTurn:
    """Build a turn from its messages, the last one first, and its calls."""
    user_texts: list[str] = []
    arguments: dict[int, str] = {}
    context_tokens, is_cached = 0, False
    for role, content, extra, seq in message_rows:
        if role == rows.TOOL:
            continue
        message, usage = rows.unpack_with_usage(role, content, extra)
        context_tokens = context_tokens or (usage.total_tokens if usage else 0)
        is_cached = is_cached or bool(usage and usage.cache_read_tokens)
        user_texts += [message.text] if role == rows.USER else []
        arguments |= {seq + 1 + at: call.arguments for at, call in enumerate(message.tool_calls)}
    calls = tuple(
        TurnCall(step, name, arguments.get(seq, ""), error_kind, error)
        for seq, step, name, error_kind, error in call_rows
    )
    return ReviewedTurn(tuple(reversed(user_texts)), calls, context_tokens, is_cached)


def get_counters(connection: apsw.Connection, conversation_id: str) -> Counters:
    """Return a conversation's counters."""
    row = connection.execute(
        "SELECT turns, steps, reasons, runtime FROM review_counters WHERE conversation = ?",
        (conversation_id,),
    ).fetchone()
    return _read_counters(row)


def _read_counters(row: tuple[Any, ...] | None) -> Counters:
    if row is None or row[0] is None:
        return Counters()
    return Counters(row[0], row[1], tuple(msgspec.json.decode(row[2])), row[3])


_WITH_COUNTERS = sessions.COLUMNS + "".join(
    f", (SELECT {column} FROM review_counters WHERE conversation = sessions.conversation_id)"
    for column in ("turns", "steps", "reasons", "runtime")
)


def select_counted_session(
    connection: apsw.Connection, session_id: str
) -> Callable[[], tuple[SessionRow, Counters]]:
    """Query a session and its conversation's counters, and return the function that reads them.

    That function raises NotFound.
    """
    read = sessions.select_columns(connection, _WITH_COUNTERS, session_id)

    def read_both() -> tuple[SessionRow, Counters]:
        row = read()
        return sessions.read_row(row[:-4]), _read_counters(row[-4:])

    return read_both


def set_counters(connection: apsw.Connection, conversation_id: str, new: Counters) -> None:
    """Store a conversation's counters."""
    connection.execute(
        "INSERT OR REPLACE INTO review_counters (conversation, turns, steps, reasons, runtime)"
        " VALUES (?, ?, ?, ?, ?)",
        (conversation_id, new.turns, new.steps, msgspec.json.encode(new.reasons).decode(), new.runtime),
    )


def spent_since(connection: apsw.Connection, since: str) -> DaySpending:
    """Sum up the usage of sessions that were active since `since` (ISO), including running reviews."""
    records = connection.execute(
        "SELECT kind = 'review', coalesce(sum(total_tokens), 0), coalesce(sum(cost_usd), 0),"
        " count(*) = count(cost_usd) FROM sessions WHERE last_active >= ? GROUP BY 1",
        (since,),
    ).fetchall()
    tokens = {bool(is_review): total for is_review, total, _, _ in records}
    usd: float | None = 0.0
    for is_review, _, cost, is_known in records:
        usd = (cost if is_known else None) if is_review else usd
    review_tokens = tokens.get(True, 0)
    for child in _list_running_keys(connection):
        unfinished = turns.find_open_turn(connection, child)
        if unfinished is not None:
            review_tokens += unfinished.usage.total_tokens
            cost = unfinished.usage.cost_usd
            usd = None if usd is None or cost is None else usd + cost
    return DaySpending(review_tokens, tokens.get(False, 0), usd)


def usage_since(connection: apsw.Connection, since: str) -> DayUsage:
    """Sum up the tokens of sessions that were active since `since` (ISO), running reviews included."""
    columns = rows.USAGE_COLUMNS[:-2]
    sums = ", ".join(f"coalesce(sum({column}), 0)" for column in columns)
    records = connection.execute(
        f"SELECT kind = 'review', {sums} FROM sessions WHERE last_active >= ? GROUP BY 1", (since,)
    ).fetchall()
    used = {bool(row[0]): Usage(*row[1:]) for row in records}
    reviewed = used.get(True, Usage())
    for child in _list_running_keys(connection):
        unfinished = turns.find_open_turn(connection, child)
        reviewed += unfinished.usage if unfinished is not None else Usage()
    return DayUsage(reviewed, used.get(False, Usage()))


def _list_running_keys(connection: apsw.Connection) -> list[int]:
    """Return the session keys of the reviews that run."""
    records = connection.execute(
        "SELECT r.child FROM jobs j CROSS JOIN reviews r ON r.job = j.id"
        f" WHERE j.kind = ? AND {jobs.OPEN} AND j.state = 'running' AND r.child <> 0",
        (KIND,),
    ).fetchall()
    return [row[0] for row in records]


def payloads_since(connection: apsw.Connection, since: str) -> list[str]:
    """Return the payloads of the reviews that were queued since `since` (ISO)."""
    records = connection.execute("SELECT payload FROM jobs WHERE kind = ? AND created >= ?", (KIND, since))
    return [row[0] for row in records.fetchall()]


_LOOKS = (
    "SELECT count(*) FROM jobs j JOIN reviews r ON r.job = j.id JOIN sessions s ON s.key = r.session"
    " LEFT JOIN sessions c ON c.key = r.child WHERE j.kind = ? AND j.created >= ?"
    " AND (s.conversation_id = ? OR s.workspace = ?) AND c.total_tokens > 0"
)


def count_looks(connection: apsw.Connection, conversation_id: str, workspace: str | None, since: str) -> int:
    """Count the reviews by a model since `since` (ISO) of a conversation or of any in the folder."""
    return rows.number(connection, _LOOKS, KIND, since, conversation_id, workspace)


def list_done_payloads(connection: apsw.Connection, session_key: int) -> list[str]:
    """Return the payloads of the finished reviews that a model made of a session."""
    records = connection.execute(
        "SELECT j.payload FROM reviews r JOIN jobs j ON j.id = r.job JOIN sessions c ON c.key = r.child"
        " WHERE r.session = ? AND r.finished <> '' AND c.total_tokens > 0",
        (session_key,),
    )
    return [row[0] for row in records.fetchall()]


def list_open_payloads(connection: apsw.Connection) -> list[str]:
    """Return the payloads of the reviews that wait or run."""
    records = connection.execute(f"SELECT payload FROM jobs WHERE kind = ? AND {jobs.OPEN}", (KIND,))
    return [row[0] for row in records.fetchall()]


def list_unreviewed_ids(connection: apsw.Connection, session: SessionRow, limit: int) -> list[str]:
    """Return the ids of the short conversations before `session` to review with it, newest first.

    They have its folder, source and person, and are newer than the last review but one, because the next
    review may find what one missed. Reviews that asked no model do not count.
    """
    rows = connection.execute(
        "SELECT s.id, s.key FROM sessions s JOIN sessions mine ON mine.id = ?"
        " WHERE s.workspace = mine.workspace AND s.source = mine.source AND s.profile = mine.profile"
        " AND s.kind = 'chat' AND s.private = 0 AND s.key < mine.key"
        " AND s.key > coalesce((SELECT DISTINCT r.session FROM reviews r JOIN sessions o ON o.key = r.session"
        "  LEFT JOIN sessions c ON c.key = r.child WHERE (c.key IS NULL OR c.total_tokens > 0)"
        "  AND o.workspace = mine.workspace AND o.source = mine.source AND r.session < mine.key"
        "  ORDER BY r.session DESC LIMIT 1 OFFSET 1), 0)"
        " ORDER BY s.key DESC LIMIT ?",
        (session.id, limit),
    ).fetchall()
    return [id_ for id_, key in rows if turns.find_last_turn(connection, key) in range(1, SHORT_TURNS + 1)]


def add(connection: apsw.Connection, job_id: str, session_id: str) -> None:
    """Record that a job reviews a session."""
    connection.execute(
        "INSERT INTO reviews (job, session) VALUES (?, ?)", (job_id, sessions.key_of(connection, session_id))
    )


def begin_review(
    connection: apsw.Connection, job_id: str, new: NewSession, view: str, now: str
) -> SessionRow:
    """Create the review's own session, and store the message list that it begins with. Raises NotFound."""
    child = sessions.create(connection, new, now)
    connection.execute(
        "UPDATE reviews SET child = ?, view = ? WHERE job = ?",
        (sessions.key_of(connection, child.id), view, job_id),
    )
    return child


def read_view(connection: apsw.Connection, job_id: str) -> tuple[str, str]:
    """Return the id of the review's own session, or "" if it has not begun, and the list it began with."""
    row = connection.execute(
        "SELECT s.id, r.view FROM reviews r LEFT JOIN sessions s ON s.key = r.child WHERE r.job = ?",
        (job_id,),
    ).fetchone()
    return (row[0] or "", row[1]) if row else ("", "[]")


def start_over(connection: apsw.Connection, job_id: str, view: str) -> None:
    """Forget the review's own session (its transcript stays), so that the next attempt creates another."""
    connection.execute("UPDATE reviews SET child = 0, view = ? WHERE job = ?", (view, job_id))


def finish(connection: apsw.Connection, job_id: str, summary: str, note: str, now: str) -> None:
    """Store the result of a review."""
    connection.execute(
        "UPDATE reviews SET finished = ?, summary = ?, note = ? WHERE job = ?", (now, summary, note, job_id)
    )


def count_failure(connection: apsw.Connection, job_id: str, note: str) -> int:
    """Count one more failed attempt and return the number of failures."""
    connection.execute("UPDATE reviews SET failures = failures + 1, note = ? WHERE job = ?", (note, job_id))
    row = connection.execute("SELECT failures FROM reviews WHERE job = ?", (job_id,)).fetchone()
    return row[0] if row else 1


def list_reviews(
    connection: apsw.Connection, limit: int = 50, *, session_id: str = "", review_id: str = ""
) -> list[ReviewRow]:
    """Return reviews, newest first: of one session, or with this beginning of their id or session id."""
    where = [f"j.kind = '{KIND}'"]  # the words of the index on their time
    values: list[str] = []
    if session_id:
        key = "(SELECT key FROM sessions WHERE id = ?)"
        where = ["j.kind = ?", f"j.id IN (SELECT job FROM reviews WHERE session = {key})"]
        values = [KIND, session_id]
    if review_id:
        where.append("(substr(j.id, 1, length(?)) = ? OR substr(c.id, 1, length(?)) = ?)")
        values += [review_id] * 4
    cursor = connection.execute(
        "SELECT j.id, coalesce(p.id, ''), coalesce(c.id, ''), j.state, j.payload, j.created,"
        " coalesce(nullif(r.finished, ''), j.finished), coalesce(r.summary, ''),"
        " coalesce(nullif(r.note, ''), j.error),"
        f" j.attempts, coalesce(r.failures, 0), coalesce(c.model, ''), {_USAGE}"
        " FROM jobs j LEFT JOIN reviews r ON r.job = j.id LEFT JOIN sessions p ON p.key = r.session"
        f" LEFT JOIN sessions c ON c.key = r.child WHERE {' AND '.join(where)}"
        " ORDER BY j.created DESC, j.id DESC LIMIT ?",
        (*values, limit),
    )
    return [ReviewRow(*row[:12], Usage(*row[12:])) for row in cursor]  # pyright: ignore[reportCallIssue] the columns are the fields


# An unknown price stays NULL; a review that has not begun has cost nothing.
_USAGE = ", ".join(map("CASE WHEN c.key IS NULL THEN 0 ELSE c.{} END".format, rows.USAGE_COLUMNS))
