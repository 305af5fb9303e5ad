"""Bring a review's staged changes into force together, in the transaction that completes its job.

Each change is applied again to the current state. If its item has changed since, the change is refused
with the reason. This module also reads the state that a writer builds on, inside a transaction: the
current state plus the staged changes of the writer's own review. It touches no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw
import msgspec

from whet.memory import notes
from whet.memory.notes import EntryChange
from whet.memory.reader import MemoryReader, read_notes
from whet.memory.requests import Refused, Target, target_of
from whet.memory.skill_changes import Files
from whet.store import learned, ledger
from whet.store.ledger import LedgerRow, NewRow, State


def settle(
    connection: apsw.Connection, reader: MemoryReader, task_id: str, doubts: Mapping[int, str]
) -> list[LedgerRow]:
    """Settle the task's staged rows, and return all of its rows.

    Rows that were settled before stay as they are. A row with a reason in `doubts` waits for the person.
    """
    blocked: dict[tuple[str, str], State] = {}
    for row in ledger.list_task_rows(connection, task_id, ("staged",)):
        key = (row.kind, row.item)
        state, reason = _decide_state(connection, reader, row)
        if state == "active" and row.id in doubts:
            state, reason = "inbox", doubts[row.id]
        if row.kind == "skill" and key in blocked:
            state = blocked[key]  # built on a change that is not in force
        if state == "active":
            try:
                enforce(connection, row, reader.max_chars(target_of(row.item)))
            except Refused as error:
                state, reason = "refused", error.message
        elif row.kind == "skill":
            blocked[key] = state
        ledger.set_state(connection, row.id, state, reason=reason)
    return ledger.list_task_rows(connection, task_id)


def _decide_state(connection: apsw.Connection, reader: MemoryReader, row: LedgerRow) -> tuple[State, str]:
    if row.trust == "untrusted":
        return "quarantined", ""
    if reader.review.writes == "ask":
        return "inbox", "review.writes is ask"
    if row.kind == "skill" and _has_no_case(row):
        return "inbox", "it changes the steps, and no call of a session shows the new ones"
    if belongs_to_person(connection, row):
        return "inbox", "it changes something of your own"
    if doubt := find_doubt(connection, row):
        return "inbox", doubt
    return "active", ""


def find_doubt(connection: apsw.Connection, row: LedgerRow | NewRow) -> str:
    """Return why the person should decide on a change that takes words away, or an empty string."""
    if not row.before:
        return ""
    from whet.memory.removal import find_doubt_about  # noqa: PLC0415 - loads what reads sessions

    text = ""
    if row.kind == "memory":
        text = read_note_text(connection, row.profile, target_of(row.item))
    return find_doubt_about(row, [entry.statement for entry in notes.parse_entries(text)])


def enforce(connection: apsw.Connection, row: LedgerRow, room_chars: int = 0) -> None:
    """Record what files should hold with this row in force.

    Raises Refused if its item has changed since, or if the notes would exceed `room_chars` (0: not
    checked).
    """
    if row.kind == "memory":
        target = target_of(row.item)
        before = read_notes(connection, row.profile, notes.FILES[target])
        after = notes.apply_change(before, target, EntryChange(row.before, row.after))
        if row.after and room_chars:
            notes.check_room(before, after, target, room_chars)
        set_wanted_note(connection, row.profile, target, after)
    for change in row.changes:
        if learned.get_file_state(connection, row.profile, change.path).wanted != change.before:
            raise Refused(f"{change.path} has changed since")
    for change in row.changes:
        learned.set_expected_hash(connection, row.profile, change.path, change.after)
    if row.action == "create":
        owner = "person" if row.origin.write_origin in ("user", "import") else "agent"
        mark = learned.get_mark(connection, row.profile, row.item)
        learned.set_mark(connection, row.profile, msgspec.structs.replace(mark, owner=owner))


def select_newest(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """Return the newest waiting version of a skill and the waiting changes that it builds on, oldest first.

    `rows` are the skill's waiting changes, newest first. Changes that the newest version does not build on
    are left out if they write the same files.
    """
    chosen: list[LedgerRow] = []
    needed: dict[str, str] = {}  # by path: the hash that the chosen changes build on
    for row in rows:
        if all(needed.get(change.path, change.after) == change.after for change in row.changes):
            chosen.append(row)
            needed.update((change.path, change.before) for change in row.changes)
            if row.action == "create":
                break  # what is older is of another version
    return chosen[::-1]


def drop_older_versions(connection: apsw.Connection, newer: LedgerRow, reason: str) -> None:
    """Reject the older waiting changes of a skill that `newer` replaces, and store the reason.

    A new skill replaces all of them. Another change replaces those that build on other contents of its files.
    """
    if newer.kind != "skill":
        return
    rows = ledger.select(
        connection, profile=newer.profile, kind="skill", item=newer.item, states=("quarantined", "inbox")
    )
    wanted = {change.path: change.after for change in newer.changes}
    for row in rows:
        is_stale = any(wanted.get(change.path, change.before) != change.before for change in row.changes)
        if row.id < newer.id and (newer.action == "create" or is_stale):
            ledger.set_state(connection, row.id, "rejected", reason=reason)


def _has_no_case(row: LedgerRow) -> bool:
    """Return whether a change alters a procedure's steps without a successful call as evidence."""
    from whet.memory.cases import is_new_procedure  # noqa: PLC0415 - loads what reads sessions; a worker's only

    has_call = any(quote.role == "tool" and not quote.failed for quote in row.evidence)
    return row.action in ("edit", "patch") and not has_call and is_new_procedure(row.before, row.after)


def belongs_to_person(connection: apsw.Connection, row: LedgerRow) -> bool:
    """Return whether a change touches an entry or a skill that a person wrote."""
    if row.kind == "skill":
        mark = learned.get_mark(connection, row.profile, row.item)
        return row.action != "create" and (mark.owner == "person" or mark.pinned)
    if not row.before:
        return False
    rows = ledger.select(connection, profile=row.profile, kind="memory", item=row.item)
    return is_persons_entry([earlier for earlier in rows if earlier.id < row.id], row.before)


def is_persons_entry(rows: Sequence[LedgerRow], entry: str) -> bool:
    """Return whether a person wrote an entry of the notes, as far as the ledger's rows know."""
    for row in rows:
        if row.after == entry and row.state == "active":
            return row.origin.write_origin == "user"
    return not any(row.after == entry and row.state == "staged" for row in rows)


def set_wanted_note(connection: apsw.Connection, profile: str, target: Target, text: str) -> None:
    """Record the text that a notes file should hold. An empty text means no file."""
    key = learned.store_text(connection, text.encode()) if text else ""
    learned.set_expected_hash(connection, profile, notes.FILES[target], key)


def read_note_text(connection: apsw.Connection, profile: str, target: Target, task_id: str = "") -> str:
    """Return a notes file as the writer sees it."""
    staged = ledger.list_task_rows(connection, task_id, ("staged",))
    mine = [row for row in staged if (row.kind, row.item, row.profile) == ("memory", target, profile)]
    edits = [EntryChange(row.before, row.after) for row in mine]
    # Changes that no longer fit are reported when the review is settled.
    return notes.apply_changes(read_notes(connection, profile, notes.FILES[target]), target, edits)[0]


def read_skill_hashes(
    connection: apsw.Connection, profile: str, name: str, task_id: str = ""
) -> dict[str, str]:
    """Return a skill's files as the writer sees them: hash by path within the skill, or an empty dict."""
    root = f"skills/{name}/"
    states = learned.list_file_states(connection, profile, root)
    hashes = {state.path.removeprefix(root): state.wanted for state in states}
    for row in ledger.list_task_rows(connection, task_id, ("staged",)):
        if (row.kind, row.item, row.profile) == ("skill", name, profile):
            hashes.update((change.path.removeprefix(root), change.after) for change in row.changes)
    return {path: key for path, key in hashes.items() if key}


def read_texts(connection: apsw.Connection, hashes: Mapping[str, str]) -> Files:
    """Return the contents of files by path, given their hashes."""
    return {path: learned.read_text(connection, key) for path, key in hashes.items()}
