"""A review's staged changes come into force together, in the transaction that completes its job.

Each is made again on what is in force by then: an item that has changed since refuses it, with the reason.
What a writer builds on is here, too: what is in force with its own review's staged changes on top, read
inside a transaction. It touches no file.
"""

from __future__ import annotations

from collections.abc import Mapping

import apsw
import msgspec

from whet.memory import notes
from whet.memory.notes import EntryChange
from whet.memory.reader import MemoryReader, in_force
from whet.memory.requests import Refused, Target, target_of
from whet.memory.skill_changes import Files
from whet.store import learned, ledger
from whet.store.ledger import LedgerRow, State


def settle(
    connection: apsw.Connection, reader: MemoryReader, task_id: str, doubts: Mapping[int, str]
) -> list[LedgerRow]:
    """Give the task's rows, each with its new state; what was settled before stays as it is. What `doubts`
    gives a reason against waits for the person."""
    held: dict[tuple[str, str], State] = {}
    for row in ledger.of_task(connection, task_id, ("staged",)):
        key = (row.kind, row.item)
        state, reason = _state_of(connection, reader, row)
        if state == "active" and row.id in doubts:
            state, reason = "inbox", doubts[row.id]
        if row.kind == "skill" and key in held:
            state = held[key]  # built on a change that is not in force
        if state == "active":
            try:
                enforce(connection, row, reader.room_chars(target_of(row.item)))
            except Refused as error:
                state, reason = "refused", error.message
        elif row.kind == "skill":
            held[key] = state
        ledger.set_state(connection, row.id, state, reason=reason)
    return ledger.of_task(connection, task_id)


def _state_of(connection: apsw.Connection, reader: MemoryReader, row: LedgerRow) -> tuple[State, str]:
    if row.trust == "untrusted":
        return "quarantined", ""
    if reader.review.writes == "ask":
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
        want_note(connection, row.profile, target, after)
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


def want_note(connection: apsw.Connection, profile: str, target: Target, text: str) -> None:
    """Say what a notes file should hold; empty for no file."""
    key = learned.keep_text(connection, text.encode()) if text else ""
    learned.want(connection, profile, notes.FILES[target], key)


def note_text(connection: apsw.Connection, profile: str, target: Target, task_id: str = "") -> str:
    """Give a notes file as the writer sees it."""
    staged = ledger.of_task(connection, task_id, ("staged",))
    mine = [row for row in staged if (row.kind, row.item, row.profile) == ("memory", target, profile)]
    made = [EntryChange(row.before, row.after) for row in mine]
    # Settling the review will say which of them no longer fit.
    return notes.carry(in_force(connection, profile, notes.FILES[target]), target, made)[0]


def skill_hashes(connection: apsw.Connection, profile: str, name: str, task_id: str = "") -> dict[str, str]:
    """Give a skill's files as the writer sees them: hash by path within the skill; empty where none is."""
    root = f"skills/{name}/"
    there = learned.states(connection, profile, root)
    found = {state.path.removeprefix(root): state.wanted for state in there}
    for row in ledger.of_task(connection, task_id, ("staged",)):
        if (row.kind, row.item, row.profile) == ("skill", name, profile):
            found.update((change.path.removeprefix(root), change.after) for change in row.changes)
    return {path: key for path, key in found.items() if key}


def texts(connection: apsw.Connection, hashes: Mapping[str, str]) -> Files:
    """Give the bytes of files by their hashes."""
    return {path: learned.text(connection, key) for path, key in hashes.items()}
