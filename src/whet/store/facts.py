"""Store the effects of tool calls ("facts": edited files, commands, test results), and sum them up as
receipts of turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import apsw
import msgspec

from whet.contract.receipts import (
    CallEffects,
    CommandRun,
    FileLines,
    ReceiptState,
    SentOut,
    TestCounts,
    TurnReceipt,
)
from whet.contract.tags import tags_of
from whet.contract.texts import from_json
from whet.store import rows

_MAY_BE_DONE = ("interrupted", "timeout")
"""The kinds of error after which a call may have had its effect all the same."""


class FactRow(msgspec.Struct, frozen=True):
    """A stored call that had an effect."""

    seq: int
    turn: int
    step: int
    call_id: str
    name: str
    error_kind: str
    exit_code: int | None
    facts: CallEffects


def list_turn_facts(connection: apsw.Connection, key: int, turn: int) -> list[FactRow]:
    """Return the calls of a turn that had effects, in order."""
    return _list_rows(connection, "session = ? AND turn = ? AND facts <> ''", (key, turn))


def list_session_facts(connection: apsw.Connection, key: int, *, since_turn: int = 0) -> list[FactRow]:
    """Return a session's calls that had effects, in order, from `since_turn` on and without undone turns."""
    return _list_rows(
        connection,
        "session = ? AND turn >= ? AND facts <> '' AND turn NOT IN"
        " (SELECT number FROM turns WHERE turns.session = tool_calls.session AND undone <> '')",
        (key, since_turn),
    )


def _list_rows(connection: apsw.Connection, where: str, values: tuple[int, ...]) -> list[FactRow]:
    cursor = connection.execute(
        "SELECT seq, turn, step, call_id, name, error_kind, exit_code, facts FROM tool_calls"
        f" WHERE {where} ORDER BY seq",
        values,
    )
    return [
        FactRow(seq, turn, step, call_id, name, kind, exit_code, from_json(text, CallEffects))
        for seq, turn, step, call_id, name, kind, exit_code, text in cursor
    ]


class ShellFolder(msgspec.Struct, frozen=True):
    """The folder in which the command after call `through` begins, relative to the workspace.

    It is valid while the session's `epoch` is the same.
    """

    folder: str = ""
    epoch: int = -1
    through: int = 0

    def covers(self, epoch: int, seq: int) -> bool:
        """Return whether this is the folder of the call with result `seq`: no call comes in between."""
        return self.epoch == epoch and self.through >= seq - 1


def select_shell_folder(
    connection: apsw.Connection, key: int, previous: ShellFolder, through: int
) -> Callable[[], ShellFolder]:
    """Query the folder of a session's next command, and return the function that reads the result.

    Calls that `previous` covers are not read again. The result covers the calls up to `through`, which have
    all ended.
    """
    cursor = connection.execute(
        "SELECT s.epoch, (SELECT facts FROM tool_calls c WHERE session = s.key"
        " AND seq > CASE s.epoch WHEN ?2 THEN ?3 ELSE 0 END AND facts LIKE '%\"folder\":%' AND NOT EXISTS"
        " (SELECT 1 FROM turns t WHERE t.session = c.session AND t.number = c.turn"
        " AND (t.undone <> '' OR (t.cut > 0 AND c.seq >= t.cut))) ORDER BY seq DESC LIMIT 1)"
        " FROM sessions s WHERE s.key = ?1",
        (key, previous.epoch, previous.through),
    )

    def read() -> ShellFolder:
        row = cursor.fetchone()
        if row is None:
            return ShellFolder()
        epoch, text = row
        folder = previous.folder if epoch == previous.epoch else ""
        if text is not None:
            folder = from_json(text, CallEffects).folder or ""
        return ShellFolder(folder, epoch, through)

    return read


def store_changed_files(
    connection: apsw.Connection, step: tuple[int, int, int], tools: list[str], changed: list[FileLines]
) -> None:
    """Store the files that a step changed, except those that its calls edited, with its last call of `tools`.

    `step` is (session key, turn, number of the step). Without such a call nothing is stored.
    """
    condition = "session = ? AND turn = ? AND step = ?"
    records = connection.execute(
        f"SELECT seq, name, facts FROM tool_calls WHERE {condition} AND error_kind <> 'denied' ORDER BY seq",
        step,
    ).fetchall()
    calls = [(seq, name, from_json(text or "{}", CallEffects)) for seq, name, text in records]
    edited = {edit.path for _, _, facts in calls for edit in facts.edits}
    touched = tuple(file for file in changed if file.path not in edited)
    for seq, name, facts in reversed(calls):
        if name in tools:
            if touched or facts.touched:
                _store_facts(connection, step[0], seq, msgspec.structs.replace(facts, touched=touched))
            return


def _store_facts(connection: apsw.Connection, key: int, seq: int, facts: CallEffects) -> None:
    connection.execute(
        "UPDATE tool_calls SET facts = ? WHERE session = ? AND seq = ?",
        (msgspec.json.encode(facts).decode(), key, seq),
    )


def list_changed_files(
    connection: apsw.Connection, session_id: str, turn: int, step: int
) -> list[tuple[int, int, str]]:
    """Return turn, step and path of the files that a session's calls changed from a step on."""
    calls = connection.execute(
        "SELECT c.turn, c.step, c.facts FROM tool_calls c JOIN sessions s ON s.key = c.session"
        " WHERE s.id = ? AND (c.turn, c.step) >= (?, ?)"
        " AND (c.facts LIKE '%\"edits\":%' OR c.facts LIKE '%\"touched\":%') ORDER BY c.seq",
        (session_id, turn, step),
    ).fetchall()
    files: list[tuple[int, int, str]] = []
    for call_turn, call_step, text in calls:
        facts = from_json(text, CallEffects)
        files += [(call_turn, call_step, file.path) for file in (*facts.edits, *facts.touched)]
    return files


def list_edited_files(connection: apsw.Connection, session_id: str, turn: int, step: int) -> list[str]:
    """Return the files that the calls of a step edited, or an empty list if a call may have changed
    others."""
    calls = connection.execute(
        "SELECT c.name, c.facts FROM tool_calls c JOIN sessions s ON s.key = c.session"
        " WHERE s.id = ? AND c.turn = ? AND c.step = ? AND c.error_kind <> 'denied'",
        (session_id, turn, step),
    ).fetchall()
    if not all(_edits_or_reads(tags_of(name)) for name, _ in calls):
        return []
    return [edit.path for _, text in calls if text for edit in from_json(text, CallEffects).edits]


def _edits_or_reads(tags: frozenset[str]) -> bool:
    """Return whether a tool with these tags is quick and changes no file that its calls do not name."""
    return "edits" in tags or "own" in tags or {"looks", "local"} <= tags


def find_last_tests(connection: apsw.Connection, key: int, turn: int) -> FactRow | None:
    """Return the call of a turn that ran tests last, or None if a later call changed files."""
    last = None
    for row in list_turn_facts(connection, key, turn):
        if row.facts.tests is not None:
            last = row
        elif row.facts.edits or row.facts.touched:
            last = None
    return last


def store_later_changes(connection: apsw.Connection, key: int, row: FactRow, later: Sequence[str]) -> None:
    """Store, with a call that ran tests, the files that something other than a call has changed since."""
    _store_facts(connection, key, row.seq, msgspec.structs.replace(row.facts, later=tuple(later)))


def store_marks(
    connection: apsw.Connection, turn: tuple[int, int], marked: Sequence[str], unmarked: str
) -> None:
    """Store, with the last call of a turn (session key, number), the sentences of its answer that a judging
    model marked."""
    row = list_turn_facts(connection, *turn)[-1]
    facts = msgspec.structs.replace(row.facts, marked=tuple(marked), unmarked=unmarked)
    _store_facts(connection, turn[0], row.seq, facts)


def build_receipt(connection: apsw.Connection, key: int, turn: int) -> TurnReceipt | None:
    """Sum up the effects of a turn, or return None if it had none."""
    fact_rows = list_turn_facts(connection, key, turn)
    if not fact_rows:
        return None
    summary = sum_up(fact_rows)
    if summary.state == "never" and _has_earlier_tests(connection, key, turn):
        return msgspec.structs.replace(summary, state="stale")
    return summary


def sum_up(fact_rows: Iterable[FactRow]) -> TurnReceipt:
    """Sum up the effects of calls, which come in order."""
    files: dict[str, FileLines] = {}
    commands: list[CommandRun] = []
    sent: list[SentOut] = []
    tests: TestCounts | None = None
    state: ReceiptState = "none"
    later: tuple[str, ...] = ()
    marked: list[str] = []
    unmarked = ""
    for row in fact_rows:
        facts = row.facts
        marked += facts.marked
        unmarked = facts.unmarked or unmarked
        for change in (*facts.edits, *facts.touched):
            before = files.get(change.path, FileLines(change.path, 0, 0))
            files[change.path] = FileLines(
                change.path, before.added + change.added, before.removed + change.removed
            )
        if facts.edits or facts.touched:
            state = "stale" if tests is not None else "never"
        if facts.command:
            how = "" if row.error_kind in ("", "exit") else row.error_kind
            commands.append(CommandRun(facts.command, row.exit_code, how, facts.tests))
        if facts.tests is not None:
            tests, later = facts.tests, facts.later
            state = "stale" if later else "mixed" if facts.touched and not tests.direct else "fresh"
        if facts.sent:
            how = row.error_kind if row.error_kind in _MAY_BE_DONE else ""
            sent.append(SentOut(row.name, facts.sent, not row.error_kind, how))
    return TurnReceipt(
        tuple(files.values()), tuple(commands), tuple(sent), tests, state, later, tuple(marked), unmarked
    )


def _has_earlier_tests(connection: apsw.Connection, key: int, turn: int) -> bool:
    sql = "SELECT 1 FROM tool_calls WHERE session = ? AND turn < ? AND facts LIKE '%\"tests\":{%' LIMIT 1"
    return rows.read_value(connection, sql, key, turn) is not None
