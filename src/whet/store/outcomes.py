"""Store people's verdicts on turns, and list the outcomes of turns and the learned items of their sessions.

Every function takes a connection inside a transaction. Lists cover one person (`profile`, empty for the
owner) and leave out private sessions. Other modules judge from them whether an item helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.store import sessions
from whet.store.learned import ContextItem, ItemKind

Rating = Literal["good", "bad"]
Signal = Literal["good", "bad", "retry", "correction"]


class TurnOutcome(msgspec.Struct, frozen=True):
    """How one turn went, its steps and its cost.

    The signals of trouble are correction, retry, undo, bad and failed. A person's praise is the signal good.
    """

    session_id: str
    turn: int
    calls: int
    failed_calls: int
    signals: frozenset[str]
    steps: int = 0
    cost_usd: float = 0.0

    @property
    def had_trouble(self) -> bool:
        """Whether a signal says that the turn went wrong. A person's good outweighs the others."""
        return "good" not in self.signals and bool(self.signals)


class ItemUse(msgspec.Struct, frozen=True):
    """One item in one session: present from the beginning, or left out by chance (`held_out`)."""

    item: ContextItem
    session_id: str
    held_out: bool
    randomised: bool


_FAILED_END = ("failed", "crashed", "budget")
_NOT_FAILED = ("", "denied", "interrupted", "cancelled")


def record_signal(
    connection: apsw.Connection, session_id: str, signal: Signal, now: str, *, turn: int | None = None
) -> int:
    """Store a person's verdict on a turn, by default the last one, and return its number.

    good and bad replace each other. Raises NotFound if there is no such session or turn.
    """
    key = sessions.key_of(connection, session_id)
    # Undone turns count, because the verdict may be about a turn that /retry has just undone.
    row = connection.execute(
        "SELECT max(number) FROM turns WHERE session = ?1 AND (CAST(?2 AS bigint) IS NULL OR number = ?2)",
        (key, turn),
    ).fetchone()
    number = row[0] if row else None
    if number is None:
        raise NotFound(
            f"session {session_id} has no turn {turn}" if turn else f"session {session_id} has no turn yet",
            hint=f"whet sessions show {session_id}",
        )
    if signal in ("good", "bad"):
        connection.execute(
            "DELETE FROM turn_signals WHERE session = ? AND turn = ? AND signal IN ('good', 'bad')",
            (key, number),
        )
    connection.execute("INSERT OR REPLACE INTO turn_signals VALUES (?, ?, ?, ?)", (key, number, signal, now))
    return number


def list_item_uses(
    connection: apsw.Connection, kinds: Sequence[ItemKind], profile: str = ""
) -> list[ItemUse]:
    """Return the items of these kinds in every chat that has a turn, in the order of the sessions."""
    marks = ", ".join("?" * len(kinds))
    cursor = connection.execute(
        "SELECT i.kind, i.name, i.hash, i.label, s.id, u.held_out, u.randomised"
        " FROM session_items u JOIN context_items i ON i.id = u.item JOIN sessions s ON s.key = u.session"
        f" WHERE i.kind IN ({marks}) AND s.kind = 'chat' AND NOT s.private AND s.turns > 0"
        " AND s.profile = ? ORDER BY s.key, i.id",
        (*kinds, profile),
    )
    return [ItemUse(ContextItem(*row[:4]), row[4], bool(row[5]), bool(row[6])) for row in cursor]


def list_turn_outcomes(connection: apsw.Connection, profile: str = "") -> list[TurnOutcome]:
    """Return the outcomes of each ended turn of each chat."""
    calls = _count_calls(connection)
    outcomes: list[TurnOutcome] = []
    for key, session_id, number, reason, undone, steps, cost_usd, signals in connection.execute(
        "SELECT t.session, s.id, t.number, t.reason, t.undone <> '', t.steps,"
        " CASE WHEN t.usage = '' THEN NULL ELSE json_extract(t.usage, '$.cost_usd') END,"
        " (SELECT group_concat(signal) FROM turn_signals g WHERE g.session = t.session AND g.turn = t.number)"
        " FROM turns t JOIN sessions s ON s.key = t.session"
        " WHERE s.kind = 'chat' AND NOT s.private AND s.profile = ? AND t.ended <> ''"
        " ORDER BY t.session, t.number",
        (profile,),
    ):
        turn_signals = set((signals or "").split(",")) - {""}
        if reason in _FAILED_END:
            turn_signals.add("failed")
        if undone and "retry" not in turn_signals:
            turn_signals.add("undo")
        total, failed = calls.get((key, number), (0, 0))
        outcomes.append(
            TurnOutcome(session_id, number, total, failed, frozenset(turn_signals), steps, cost_usd or 0.0)
        )
    return outcomes


def _count_calls(
    connection: apsw.Connection, only_session: int | None = None
) -> dict[tuple[int, int], tuple[int, int]]:
    """Count finished and failed calls by (session's key, turn), of all sessions or one."""
    where, values = ("", ()) if only_session is None else (" AND session = ?", (only_session,))
    not_failed = ", ".join(f"'{kind}'" for kind in _NOT_FAILED)
    cursor = connection.execute(
        f"SELECT session, turn, count(*), sum(error_kind NOT IN ({not_failed})) FROM tool_calls"
        f" WHERE finished IS NOT NULL{where} GROUP BY session, turn",
        values,
    )
    return {(session, turn): (total, failed or 0) for session, turn, total, failed in cursor}


def count_session_calls(connection: apsw.Connection, session_id: str) -> tuple[int, int]:
    """Return the numbers of a session's finished and failed tool calls. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    counts = _count_calls(connection, key).values()
    return sum(total for total, _ in counts), sum(failed for _, failed in counts)


def count_loading_sessions(connection: apsw.Connection, profile: str) -> dict[tuple[str, str], int]:
    """Count the chats in which a skill's SKILL.md was opened, by (name, hash of the text shown)."""
    cursor = connection.execute(
        "SELECT u.name, u.hash, count(DISTINCT u.session_id) FROM skill_uses u"
        " JOIN sessions s ON s.id = u.session_id WHERE u.profile = ?1 AND u.file = 'SKILL.md'"
        " AND s.kind = 'chat' AND NOT s.private AND s.profile = ?1 GROUP BY u.name, u.hash",
        (profile,),
    )
    return {(name, hash_): count for name, hash_, count in cursor}
