"""Store a session's compactions, report on them, and rebuild the message list of a past request.

A compaction replaces old messages in requests by fewer ones; the old rows stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from whet.clock import iso
from whet.contract.messages import Message
from whet.contract.texts import to_json
from whet.store import rows, sessions
from whet.store.live import LiveList, list_decoder, read_list
from whet.store.transcript import Transcript, TurnRecord
from whet.store.turns import UndoneParts, select_undone_parts

REPAIR = "repair"
"""The engine of a compaction that left out content which a server had refused."""


class CompactionSums(msgspec.Struct, frozen=True):
    """A session's number of compactions, the tokens they saved, the engine of the last one, and the number of
    repairs, which left out content that a server had refused."""

    count: int
    saved_tokens: int
    engine: str
    repairs: int = 0


class NewCompaction(msgspec.Struct, frozen=True):
    """A compaction made in `turn` whose `live` replaces the messages up to `after_seq`."""

    turn: int
    after_seq: int
    live: LiveList
    engine: str
    tokens_before: int
    tokens_after: int
    at: str


def insert_compaction(connection: apsw.Connection, key: int, new: NewCompaction) -> None:
    """Store a compaction of the session with this key."""
    connection.execute(
        "INSERT INTO compactions (session, turn, after_seq, live, engine, tokens_before, tokens_after, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            key,
            new.turn,
            new.after_seq,
            to_json(new.live),
            new.engine,
            new.tokens_before,
            new.tokens_after,
            new.at,
        ),
    )


async def record(
    log: Transcript,
    turn: TurnRecord | None,
    compacted: Sequence[Message],
    engine: str,
    tokens_before: int,
    tokens_after: int,
) -> None:
    """Make `compacted` the list that requests are made from. The old rows stay and can still be found.

    Messages of the present list are stored as references and stay the same objects. Without `turn` the
    compaction belongs to the open turn or, between turns, to the last one. Between turns, raises StoreBusy
    if another process holds the session or has changed it.
    """
    live, writer = log.live, log.writer
    if turn is not None:
        live.fold_results()
    between = turn is None and live.open_turn is None
    number = turn.number if turn is not None else live.turn_number or live.last_turn
    seq_by_id = {id(message): seq for message, seq in zip(live.messages, live.seqs, strict=True) if seq}
    stored_messages = [rows.to_storable(message) for message in compacted]
    seqs = [seq_by_id.get(id(message), 0) for message in stored_messages]
    references: LiveList = [seq or message for seq, message in zip(seqs, stored_messages, strict=True)]
    now = iso(writer.clock.now())
    new = NewCompaction(number, live.next_seq - 1, references, engine, tokens_before, tokens_after, now)

    def work(connection: apsw.Connection) -> None:
        if between:
            writer.require_no_change(connection)
        else:
            writer.renew(connection)
        insert_compaction(connection, live.key, new)
        connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (live.key,))

    def apply(_: None) -> None:
        live.messages[:] = stored_messages
        live.seqs[:] = seqs
        live.epoch += 1
        live.step = None

    await writer.commit(work, apply)


async def list_whole(log: Transcript, limit: int) -> list[tuple[int, Message]]:
    """Return all messages of a session with their numbers, without undone ones; an empty list if there are
    more than `limit`. Messages that a compaction replaced are included."""

    def read(connection: apsw.Connection) -> list[tuple[int, Message]]:
        hidden = select_undone_parts(connection, log.live.key)()
        records = connection.execute(
            "SELECT id, turn, role, content, extra FROM messages WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
            (*rows.ids_of(log.live.key), limit + 1),
        ).fetchall()
        if len(records) > limit:
            return []
        numbered = ((id_ & (rows.SEQ_LIMIT - 1), turn, row) for id_, turn, *row in records)
        return [(seq, rows.unpack(*row)) for seq, turn, row in numbered if not hidden.has(turn, seq)]

    return await log.writer.db.read(read)


async def last_counts(log: Transcript) -> list[int]:
    """Return the server's token counts of the first requests after the last two compactions, oldest first."""
    return await log.writer.db.read(lambda connection: counts_after(connection, log.live.key, 2))


def sum_compactions(connection: apsw.Connection, session_id: str) -> CompactionSums:
    """Sum up a session's compactions that were not undone. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    row = connection.execute(
        "SELECT count(*), coalesce(sum(max(tokens_before - tokens_after, 0)), 0), coalesce(max(engine), '')"
        " FROM (SELECT tokens_before, tokens_after,"
        "  last_value(engine) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
        "  AS engine FROM compactions WHERE session = ? AND undone = '' AND engine <> ?) AS counted",
        (key, REPAIR),
    ).fetchone()
    repairs = connection.execute(
        "SELECT count(*) FROM compactions WHERE session = ? AND undone = '' AND engine = ?", (key, REPAIR)
    ).fetchone()
    assert row is not None and repairs is not None  # an aggregate always has a row
    return CompactionSums(int(row[0]), int(row[1]), str(row[2]), int(repairs[0]))


def counts_after(connection: apsw.Connection, key: int, limit: int) -> list[int]:
    """Return the prompt tokens of the first answer after each of the last `limit` compactions, oldest first.

    Undone compactions and those without a later answer are left out.
    """
    token_counts: list[int] = []
    end = rows.ids_of(key)[1]
    last = (
        "SELECT after_seq FROM compactions WHERE session = ? AND undone = '' AND engine <> ?"
        " ORDER BY id DESC LIMIT ?"
    )
    for (after_seq,) in connection.execute(last, (key, REPAIR, limit)).fetchall():
        row = connection.execute(
            "SELECT content, extra FROM messages WHERE id > ? AND id < ? AND role = ? ORDER BY id LIMIT 1",
            (rows.row_id(key, after_seq), end, rows.ASSISTANT),
        ).fetchone()
        usage = None if row is None else rows.unpack_with_usage(rows.ASSISTANT, *row)[1]
        if usage is not None and usage.prompt_tokens:
            token_counts.append(usage.prompt_tokens)
    return token_counts[::-1]


def view_after(connection: apsw.Connection, key: int, turn: int, first_turn: int = 0) -> str:
    """Return the message list at the end of `turn` as JSON, without messages older than `first_turn`.

    It is the list of the turn's last request and the messages after it. A compaction made by hand afterwards
    is left out, because no request has shown its list yet.
    """
    hidden, last = select_undone_parts(connection, key)(), 0
    visible_rows: list[tuple[int, int]] = []
    for id_, number, role in connection.execute(
        "SELECT id, turn, role FROM messages WHERE id > ? AND id < ? AND turn BETWEEN ? AND ? ORDER BY id",
        (*rows.ids_of(key), first_turn, turn),
    ):
        if not hidden.has(number, id_ & (rows.SEQ_LIMIT - 1)):
            visible_rows.append((id_ & (rows.SEQ_LIMIT - 1), role))
            last = visible_rows[-1][0] if role == rows.ASSISTANT else last
    row = connection.execute(
        "SELECT live, after_seq FROM compactions WHERE session = ? AND undone = '' AND after_seq < ?"
        " ORDER BY id DESC LIMIT 1",
        (key, last),
    ).fetchone()
    live, after = (list_decoder.decode(row[0]), row[1]) if row and not first_turn else (LiveList(), 0)
    return to_json([*live, *(seq for seq, _ in visible_rows if seq > after)])


def read_view(connection: apsw.Connection, key: int, text: str) -> list[Message]:
    """Return the messages of a list written by `view_after`."""
    return read_list(connection, key, text, UndoneParts(), {})[0]
