"""A review's staged changes come into force together, in the transaction that completes its job.

Each is made again on what is in force by then: an item that has changed since refuses it, with the reason.
It touches no file.
"""

from __future__ import annotations

from collections.abc import Mapping

import apsw
import msgspec

from whet.memory import merging, notes
from whet.memory.notes import EntryChange
from whet.memory.reader import MemoryReader, in_force
from whet.memory.requests import Refused, target_of
from whet.store import learned, ledger
from whet.store.ledger import LedgerRow, State


class Settling:
    """Settles the staged rows of one profile."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader

    def settle(self, connection: apsw.Connection, task_id: str, doubts: Mapping[int, str]) -> list[LedgerRow]:
        """Give the task's rows, each with its new state; what was settled before stays as it is. What
        `doubts` gives a reason against waits for the person."""
        held: dict[tuple[str, str], State] = {}
        for row in ledger.of_task(connection, task_id, ("staged",)):
            key = (row.kind, row.item)
            state, reason = self._state_of(connection, row)
            if state == "active" and row.id in doubts:
                state, reason = "inbox", doubts[row.id]
            if row.kind == "skill" and key in held:
                state = held[key]  # built on a change that is not in force
            if state == "active":
                reason = self.enforce(connection, row)
                state = "refused" if reason else "active"
            elif row.kind == "skill":
                held[key] = state
            ledger.set_state(connection, row.id, state, reason=reason)
        return ledger.of_task(connection, task_id)

    def enforce(self, connection: apsw.Connection, row: LedgerRow) -> str:
        """Bring one row into force; gives why that can't be, or nothing."""
        try:
            enforce(connection, row, self._reader.room_chars(target_of(row.item)))
        except Refused as error:
            return error.message
        return ""

    def _state_of(self, connection: apsw.Connection, row: LedgerRow) -> tuple[State, str]:
        if row.trust == "untrusted":
            return "quarantined", ""
        if self._reader.review.writes == "ask":
            return "inbox", "review.writes is ask"
        if row.kind == "skill" and _has_no_case(row):
            return "inbox", "it changes the steps, and no call of a session shows the new ones"
        if is_persons(connection, row):
            return "inbox", "it changes something of your own"
        return "active", ""


def enforce(connection: apsw.Connection, row: LedgerRow, room_chars: int = 0) -> None:
    """Say what files should hold with this row in force. Raises Refused where its item has changed since, and
    where notes have less than `room_chars` (0: not asked)."""
    if row.kind == "memory":
        target = target_of(row.item)
        before = in_force(connection, row.profile, notes.FILES[target])
        after = notes.step(before, target, EntryChange(row.before, row.after))
        if row.after and room_chars:
            notes.check_room(before, after, target, room_chars)
        merging.want_note(connection, row.profile, target, after)
    for change in row.changes:
        if learned.state(connection, row.profile, change.path).wanted != change.before:
            raise Refused(f"{change.path} has changed since")
    for change in row.changes:
        learned.want(connection, row.profile, change.path, change.after)
    if row.action == "create":
        owner = "person" if row.origin.write_origin in ("user", "import") else "agent"
        mark = learned.mark(connection, row.profile, row.item)
        learned.set_mark(connection, row.profile, msgspec.structs.replace(mark, owner=owner))


def _has_no_case(row: LedgerRow) -> bool:
    """Whether a change gives a procedure other steps without a successful call to show them."""
    from whet.memory.cases import is_new_procedure  # noqa: PLC0415 - loads what reads sessions; a worker's only

    calls = [quote for quote in row.evidence if quote.role == "tool" and not quote.failed]
    changes = row.action in ("edit", "patch")
    return changes and not calls and is_new_procedure(row.before, row.after)


def is_persons(connection: apsw.Connection, row: LedgerRow) -> bool:
    """Whether a change touches what a person wrote: an entry of theirs, a skill of theirs."""
    if row.kind == "skill":
        mark = learned.mark(connection, row.profile, row.item)
        return row.action != "create" and (mark.owner == "person" or mark.pinned)
    if not row.before:
        return False
    for earlier in ledger.select(connection, profile=row.profile, kind="memory", item=row.item):
        if earlier.id < row.id and earlier.after == row.before and earlier.state == "active":
            return earlier.origin.write_origin == "user"
    return True  # nobody knows it: it was there before the ledger
