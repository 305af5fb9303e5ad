"""Undo, accept and reject changes, forget everything learned from a session, and purge its words.

An undo is a change of its own, so it can be undone too. If later changes build on the change, it is not
undone, and the error names the changes to undo first. Every function runs inside the caller's transaction
and touches no file.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Literal

import apsw
import msgspec

from whet.contract.errors import WhetError
from whet.contract.origin import Origin
from whet.contract.texts import flat
from whet.memory import notes, skill_format
from whet.memory.reader import MemoryReader, read_notes
from whet.memory.requests import Refused, target_of
from whet.memory.settling import drop_older_versions, enforce, set_wanted_note
from whet.memory.skill_format import BadSkill
from whet.store import ledger, purge
from whet.store.learned import LABEL_CHARS
from whet.store.ledger import FileChange, LedgerRow, NewRow, hash_text

WAITING = ("quarantined", "inbox", "staged")


class CannotUndo(WhetError):
    """The change can't be undone in the current state. The message is the reason."""


class ForgetStep(msgspec.Struct, frozen=True):
    """The action taken on a change: undone (by the row `back`), dropped before it was in force, or kept
    (`why`)."""

    row: LedgerRow
    what: Literal["take back", "drop", "keep"]
    why: str = ""
    back: LedgerRow | None = None


def undo(connection: apsw.Connection, row: LedgerRow, origin: Origin, now: str) -> LedgerRow:
    """Undo `row` and return the row that does so. A row that never came into force is rejected instead.

    Raises CannotUndo.
    """
    _refuse_if_purged(connection, row)
    if row.state in WAITING:
        return reject(connection, row, "taken back before it came into force")
    if row.state == "undone" and row.undone_by:
        hint = f"to have it back: whet undo {row.undone_by}"
        raise CannotUndo(f"change {row.id} was taken back already, by change {row.undone_by}", hint=hint)
    if row.state != "active":
        raise CannotUndo(f"change {row.id} is {row.state}; there is nothing to take back")
    undo_row = ledger.insert_row(connection, _reverse(row, origin), now)
    try:
        if not _applies_whole_notes(connection, undo_row):
            enforce(connection, undo_row)
    except Refused as error:
        later = ", ".join(f"change {other.id}" for other in find_later(connection, row))
        hint = f"take back first: {later}" if later else error.hint
        raise CannotUndo(f"change {row.id} can't be taken back: {error.message}", hint=hint) from error
    ledger.set_state(connection, row.id, "undone", undone_by=undo_row.id)
    _update_chain(connection, row)
    return undo_row


def accept(connection: apsw.Connection, row: LedgerRow, reader: MemoryReader) -> LedgerRow:
    """Bring a quarantined or inbox row into force, or a refused note that the person vouches for.

    Older versions of a skill that wait are dropped. Raises CannotUndo if that is not possible.
    """
    refuse_if_decided(row)
    _refuse_if_purged(connection, row)
    try:
        _refuse_if_gone(connection, row)
        enforce(connection, row, reader.max_chars(target_of(row.item)))
    except Refused as error:
        raise CannotUndo(
            f"change {row.id} can't be accepted: {error.message}", hint=f"whet undo {row.id} drops it"
        ) from error
    ledger.set_state(connection, row.id, "active", reason=f"accepted by the person (was {row.state})")
    drop_older_versions(connection, row, f"replaced: change {row.id} was accepted")
    return ledger.get(connection, row.id)


def refuse_if_decided(row: LedgerRow) -> None:
    """Raise CannotUndo, with the stored reason, if a row is nothing that the person can accept."""
    if row.state in ("quarantined", "inbox") or (row.state == "refused" and row.kind == "memory"):
        return
    reason = f" ({row.reason})" if row.state == "rejected" and row.reason else ""
    raise CannotUndo(f"change {row.id} is {row.state}{reason}; only what waits can be accepted")


def reject(connection: apsw.Connection, row: LedgerRow, reason: str = "rejected by the person") -> LedgerRow:
    """Drop a waiting row, or dismiss a refused one. Raises CannotUndo if the row is not waiting."""
    if row.state not in (*WAITING, "refused"):
        raise CannotUndo(f"change {row.id} is {row.state}; only what waits can be rejected")
    ledger.set_state(connection, row.id, "rejected", reason=reason)
    return ledger.get(connection, row.id)


def _update_chain(connection: apsw.Connection, gone: LedgerRow) -> None:
    """Update the states of a chain of undos after the latest one was undone.

    The change that it had undone is in force again; if that was an undo too, the change before it is not,
    and so on.
    """
    is_gone, by = False, 0
    while gone.undoes:
        ledger.set_state(connection, gone.undoes, "undone" if is_gone else "active", undone_by=by)
        is_gone, by = not is_gone, 0 if is_gone else gone.undoes
        gone = ledger.get(connection, gone.undoes)


def _refuse_if_purged(connection: apsw.Connection, row: LedgerRow) -> None:
    texts = [key for change in row.changes for key in (change.before, change.after)]
    if purge.PURGED in (row.before, row.after) or not all(purge.has_text(connection, key) for key in texts):
        raise CannotUndo(f"the words of change {row.id} were purged; they are gone for good")


def _refuse_if_gone(connection: apsw.Connection, row: LedgerRow) -> None:
    """Raise Refused if the note that a row removes is not there: an undo of the row would write it anew."""
    if row.kind != "memory" or not row.before or row.after:
        return
    text = read_notes(connection, row.profile, notes.FILES[target_of(row.item)])
    if row.before not in [entry.statement for entry in notes.parse_entries(text)]:
        raise Refused("the note that it removes is gone already")


def _reverse(row: LedgerRow, origin: Origin) -> NewRow:
    return NewRow(
        kind=row.kind,
        item=row.item,
        action="undo",
        state="active",
        origin=origin,
        before=row.after,
        after=row.before,
        changes=tuple(FileChange(change.path, change.after, change.before) for change in row.changes),
        base_hash=row.hash,
        hash=row.base_hash,
        trust="user",
        undoes=row.id,
        profile=row.profile,
    )


def _applies_whole_notes(connection: apsw.Connection, undo_row: LedgerRow) -> bool:
    """Apply an undo of a whole-file change of notes, which only large edits by hand are.

    Returns False for any other row. Raises Refused if the text it removes has changed since.
    """
    if undo_row.kind != "memory":
        return False
    first, target = undo_row, target_of(undo_row.item)
    while first.undoes:
        first = ledger.get(connection, first.undoes)
    text = read_notes(connection, undo_row.profile, notes.FILES[target])
    if first.action != "hand_edit":
        statements = [entry.statement for entry in notes.parse_entries(text)]
        if undo_row.before and undo_row.before not in statements:
            raise Refused("its entry has changed since")
        return False
    after, lost = notes.apply_changes(text, target, notes.diff_entries(undo_row.before, undo_row.after))
    if lost:
        raise Refused("some of its entries have changed since")
    set_wanted_note(connection, undo_row.profile, target, after)
    return True


def find_later(connection: apsw.Connection, row: LedgerRow) -> list[LedgerRow]:
    """Return the active changes that were built on `row`, newest first."""
    rows = ledger.select(connection, profile=row.profile, kind=row.kind, item=row.item, states=("active",))
    paths = {change.path for change in row.changes}

    def is_built_on_row(other: LedgerRow) -> bool:
        is_same_entry = bool(row.after) and other.before == row.after
        return is_same_entry or any(change.path in paths for change in other.changes)

    return [other for other in rows if other.id > row.id and is_built_on_row(other)]


def plan_forgetting(connection: apsw.Connection, profile: str, session_id: str) -> list[ForgetStep]:
    """Return the steps that forgetting a session takes, newest change first."""
    # Without a session the filter would match every row.
    rows = ledger.select(connection, profile=profile, session_id=session_id) if session_id else []
    steps: dict[int, ForgetStep] = {}
    for row in rows:
        if row.state in WAITING:
            steps[row.id] = ForgetStep(row, "drop")
        elif row.state == "active" and not row.undoes:
            _plan_row(connection, row, steps)
    return [steps[row_id] for row_id in sorted(steps, reverse=True)]


def forget(
    connection: apsw.Connection, profile: str, session_id: str, origin: Origin, now: str
) -> list[ForgetStep]:
    """Carry out `plan_forgetting` and return the steps done. A change that can't be undone is kept, with the
    reason."""
    done: list[ForgetStep] = []
    for step in plan_forgetting(connection, profile, session_id):
        try:
            row = ledger.get(connection, step.row.id)
            undo_row = None if step.what == "keep" else undo(connection, row, origin, now)
            done.append(msgspec.structs.replace(step, back=undo_row))
        except CannotUndo as error:
            done.append(ForgetStep(step.row, "keep", error.message))
    return done


def _plan_row(connection: apsw.Connection, row: LedgerRow, steps: dict[int, ForgetStep]) -> None:
    since = find_later(connection, row)
    by_hand = next((other for other in since if other.origin.write_origin == "user"), None)
    if by_hand is not None:
        steps[row.id] = ForgetStep(row, "keep", f"you changed it since (change {by_hand.id})")
    elif row.kind == "memory" and since:
        why = f"replaced since by change {since[0].id}, which has evidence of its own"
        steps[row.id] = ForgetStep(row, "keep", why)
    else:
        for other in since:
            steps.setdefault(other.id, ForgetStep(other, "take back", f"it was built on change {row.id}"))
        steps[row.id] = ForgetStep(row, "take back")


class Purged(msgspec.Struct, frozen=True):
    """The result of a purge.

    The rows whose words were erased, the number of stored file versions that were deleted, and the
    sessions whose frozen prompts still contain the words.
    """

    rows: tuple[int, ...] = ()
    texts: int = 0
    prompts: tuple[str, ...] = ()


def purge_words(connection: apsw.Connection, profile: str, session_id: str) -> Purged:
    """Purge the words that a session left in the ledger and that are no longer in force. It is safe to
    repeat."""
    everything = ledger.select(connection, profile=profile)
    current_texts = _list_texts_in_force(connection, profile, everything)
    rows = [
        row
        for row in ledger.select(connection, profile=profile, session_id=session_id)
        if session_id
        and row.after not in current_texts
        and (row.after != purge.PURGED or row.evidence or row.reason)
    ]
    words = {row.after for row in rows if not row.undoes} - {"", purge.PURGED}
    statements = {row.after for row in rows if row.kind == "memory"} & words
    for row in rows:
        purge.blank_row(connection, row.id, proof=True)
    # Its file has an entry line by line, without the prefix of a pitfall.
    entry_lines = (text.removeprefix(notes.PITFALL_PREFIX).split("\n") for text in statements)
    parts = [*([text] for text in words - statements), *entry_lines]
    keys = _list_file_hashes(rows, everything) | set(purge.find_texts(connection, parts))
    count = purge.drop_texts(connection, keys)
    gone = {key for key in keys if not purge.has_text(connection, key)}
    touched = {row.id for row in rows}
    for row in everything:
        before, after = (
            text not in current_texts and _must_blank(row, text, words, gone)
            for text in (row.before, row.after)
        )
        if before or after:
            purge.blank_row(connection, row.id, before=before, after=after)
            touched.add(row.id)
    labels = {flat(text) for text in statements} | (
        _list_descriptions(words) - _list_descriptions(current_texts)
    )
    purge.drop_labels(connection, [text[:LABEL_CHARS] for text in labels])
    prompts = [text.removeprefix(notes.PITFALL_PREFIX)[:LABEL_CHARS] for text in labels]
    return Purged(tuple(sorted(touched)), count, tuple(purge.find_prompts(connection, prompts)))


def _list_texts_in_force(connection: apsw.Connection, profile: str, everything: list[LedgerRow]) -> set[str]:
    """Return the texts that are in force, for whatever reason.

    A text that an undo restored has a row of its own, which says whether it still is.
    """
    rows = [row for row in everything if row.state == "active" and not row.undoes]
    texts = {row.after for row in rows if row.kind == "skill"} - {""}
    for path in notes.FILES.values():
        texts |= {entry.statement for entry in notes.parse_entries(read_notes(connection, profile, path))}
    return texts


def _list_file_hashes(rows: list[LedgerRow], everything: list[LedgerRow]) -> set[str]:
    """Return the hashes of the files that these rows wrote, and of the files that were built on them."""
    keys = {change.after for row in rows if not row.undoes for change in row.changes} - {""}
    for row in sorted(everything, key=lambda row: row.id):
        if row.state != "active" and not row.undoes:
            keys |= {change.after for change in row.changes if change.before in keys} - {""}
    return keys


def _must_blank(row: LedgerRow, text: str, words: set[str], gone: set[str]) -> bool:
    """Return whether a row's text must be blanked: one of these words, a purged file, or notes with such an
    entry."""
    if text in words:
        return True
    if row.kind == "skill":
        return hash_text(text) in gone
    return any(entry.statement in words for entry in notes.parse_entries(text))


def _list_descriptions(texts: Collection[str]) -> set[str]:
    """Return the descriptions of skills, which appear in session prompts."""
    descriptions: set[str] = set()
    for text in texts:
        with suppress(BadSkill):
            descriptions.add(skill_format.name_and_description(text)[1])
    return descriptions
