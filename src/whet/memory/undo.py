"""Takes changes back, and decides on those that wait: undo, accept, reject; forgets what rests on a session,
and takes its words out of the ledger for good.

An undo is a change of its own, so it can be undone too. What was built on since stays: then the answer names
what has to be taken back first. Every function runs inside the caller's transaction and touches no file.
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
from whet.memory.reader import MemoryReader, in_force
from whet.memory.requests import Refused, target_of
from whet.memory.settling import enforce, want_note
from whet.memory.skill_format import BadSkill
from whet.store import ledger, purge
from whet.store.ledger import FileChange, LedgerRow, NewRow, digest
from whet.store.starts import LABEL_CHARS

WAITING = ("quarantined", "inbox", "staged")


class CannotUndo(WhetError):
    """The change can't be taken back as things are; the message says what stands in the way."""


class ForgetStep(msgspec.Struct, frozen=True):
    """What happens to a change: taken back (by the row `back`), dropped before it held, or kept and why."""

    row: LedgerRow
    what: Literal["take back", "drop", "keep"]
    why: str = ""
    back: LedgerRow | None = None


def undo(connection: apsw.Connection, row: LedgerRow, origin: Origin, now: str) -> LedgerRow:
    """Take `row` back and give the row that does it; one that never came into force is rejected.

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
    back = ledger.insert(connection, _reverse(row, origin), now)
    try:
        if not _puts_whole_notes(connection, back):
            enforce(connection, back)
    except Refused as error:
        built = later(connection, row)
        hint = f"take back first: {', '.join(f'change {one.id}' for one in built)}" if built else error.hint
        raise CannotUndo(f"change {row.id} can't be taken back: {error.message}", hint=hint) from error
    ledger.set_state(connection, row.id, "undone", undone_by=back.id)
    _tell_chain(connection, row)
    return back


def accept(connection: apsw.Connection, row: LedgerRow, reader: MemoryReader) -> LedgerRow:
    """Bring a quarantined or inbox row into force, or a refused note on the person's own word. Raises
    CannotUndo where that can't be."""
    if row.state not in ("quarantined", "inbox") and not (row.state == "refused" and row.kind == "memory"):
        raise CannotUndo(f"change {row.id} is {row.state}; only what waits can be accepted")
    _refuse_if_purged(connection, row)
    try:
        enforce(connection, row, reader.room_chars(target_of(row.item)))
    except Refused as error:
        raise CannotUndo(
            f"change {row.id} can't be accepted: {error.message}", hint=f"whet undo {row.id} drops it"
        ) from error
    ledger.set_state(connection, row.id, "active", reason=f"accepted by the person (was {row.state})")
    return ledger.get(connection, row.id)


def reject(connection: apsw.Connection, row: LedgerRow, reason: str = "rejected by the person") -> LedgerRow:
    """Drop a waiting row, or put a refused one away. Raises CannotUndo for one that does not wait."""
    if row.state not in (*WAITING, "refused"):
        raise CannotUndo(f"change {row.id} is {row.state}; only what waits can be rejected")
    ledger.set_state(connection, row.id, "rejected", reason=reason)
    return ledger.get(connection, row.id)


def _tell_chain(connection: apsw.Connection, gone: LedgerRow) -> None:
    """Note what follows from a taken back undo: the change that it took back is in force again, and if that
    was an undo too, then what it had taken back is not."""
    is_gone, by = False, 0
    while gone.undoes:
        ledger.set_state(connection, gone.undoes, "undone" if is_gone else "active", undone_by=by)
        is_gone, by = not is_gone, 0 if is_gone else gone.undoes
        gone = ledger.get(connection, gone.undoes)


def _refuse_if_purged(connection: apsw.Connection, row: LedgerRow) -> None:
    texts = [key for change in row.changes for key in (change.before, change.after)]
    if purge.PURGED in (row.before, row.after) or not all(purge.has_text(connection, key) for key in texts):
        raise CannotUndo(f"the words of change {row.id} were purged; they are gone for good")


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


def _puts_whole_notes(connection: apsw.Connection, back: LedgerRow) -> bool:
    """Bring a row of notes into force that speaks of the whole file, as only large edits by hand do; False
    for another one. Raises Refused where what it takes out has changed since."""
    if back.kind != "memory":
        return False
    first, target = back, target_of(back.item)
    while first.undoes:
        first = ledger.get(connection, first.undoes)
    text = in_force(connection, back.profile, notes.FILES[target])
    if first.action != "hand_edit":
        if back.before and back.before not in {entry.said for entry in notes.entries(text)}:
            raise Refused("its entry has changed since")
        return False
    after, lost = notes.carry(text, target, notes.changes(back.before, back.after))
    if lost:
        raise Refused("some of its entries have changed since")
    want_note(connection, back.profile, target, after)
    return True


def later(connection: apsw.Connection, row: LedgerRow) -> list[LedgerRow]:
    """Give the changes in force that were made on top of `row`, the newest first."""
    rows = ledger.select(connection, profile=row.profile, kind=row.kind, item=row.item, states=("active",))
    touched = {change.path for change in row.changes}
    since = (one for one in rows if one.id > row.id)
    return [
        one
        for one in since
        if (row.after and one.before == row.after) or touched & {change.path for change in one.changes}
    ]


def forget_steps(connection: apsw.Connection, profile: str, session_id: str) -> list[ForgetStep]:
    """Give the steps that forgetting a session takes, the newest change first."""
    # Without a session the filter would let everything through.
    own = ledger.select(connection, profile=profile, session_id=session_id) if session_id else []
    steps: dict[int, ForgetStep] = {}
    for row in own:
        if row.state in WAITING:
            steps[row.id] = ForgetStep(row, "drop")
        elif row.state == "active" and not row.undoes:
            _forget_one(connection, row, steps)
    return [steps[row_id] for row_id in sorted(steps, reverse=True)]


def forget(
    connection: apsw.Connection, profile: str, session_id: str, origin: Origin, now: str
) -> list[ForgetStep]:
    """Do what `forget_steps` says and give what was done; what can't be taken back is kept and says why."""
    done: list[ForgetStep] = []
    for step in forget_steps(connection, profile, session_id):
        try:
            row = ledger.get(connection, step.row.id)
            back = None if step.what == "keep" else undo(connection, row, origin, now)
            done.append(msgspec.structs.replace(step, back=back))
        except CannotUndo as error:
            done.append(ForgetStep(step.row, "keep", error.message))
    return done


def _forget_one(connection: apsw.Connection, row: LedgerRow, steps: dict[int, ForgetStep]) -> None:
    since = later(connection, row)
    by_hand = next((one for one in since if one.origin.write_origin == "user"), None)
    if by_hand is not None:
        steps[row.id] = ForgetStep(row, "keep", f"you changed it since (change {by_hand.id})")
    elif row.kind == "memory" and since:
        why = f"replaced since by change {since[0].id}, which has evidence of its own"
        steps[row.id] = ForgetStep(row, "keep", why)
    else:
        for one in since:
            steps.setdefault(one.id, ForgetStep(one, "take back", f"it was built on change {row.id}"))
        steps[row.id] = ForgetStep(row, "take back")


class Purged(msgspec.Struct, frozen=True):
    """What was taken out: the rows whose words are gone, kept versions of files that were deleted, and the
    sessions whose frozen prompts still hold the words."""

    rows: tuple[int, ...] = ()
    texts: int = 0
    prompts: tuple[str, ...] = ()


def purge_words(connection: apsw.Connection, profile: str, session_id: str) -> Purged:
    """Purge what a session had left in the ledger and is in force no more. Once is as good as twice."""
    everything = ledger.select(connection, profile=profile)
    standing = _standing(connection, profile, everything)
    own = [
        row
        for row in ledger.select(connection, profile=profile, session_id=session_id)
        if session_id
        and row.after not in standing
        and (row.after != purge.PURGED or row.evidence or row.reason)
    ]
    words = {row.after for row in own if not row.undoes} - {"", purge.PURGED}
    said = {row.after for row in own if row.kind == "memory"} & words
    for row in own:
        purge.blank_row(connection, row.id, proof=True)
    # In its file an entry stands line by line, and without the word that says it is a pitfall.
    entry_lines = (text.removeprefix(notes.SAID_PITFALL).split("\n") for text in said)
    parts = [*([text] for text in words - said), *entry_lines]
    keys = _files(own, everything) | set(purge.texts_with(connection, parts))
    count = purge.drop_texts(connection, keys)
    gone = {key for key in keys if not purge.has_text(connection, key)}
    touched = {row.id for row in own}
    for row in everything:
        before, after = (
            text not in standing and _tells(row, text, words, gone) for text in (row.before, row.after)
        )
        if before or after:
            purge.blank_row(connection, row.id, before=before, after=after)
            touched.add(row.id)
    shown = {flat(text) for text in said} | (_described(words) - _described(standing))
    purge.drop_labels(connection, [text[:LABEL_CHARS] for text in shown])
    prompts = [text.removeprefix(notes.SAID_PITFALL)[:LABEL_CHARS] for text in shown]
    return Purged(tuple(sorted(touched)), count, tuple(purge.prompts_with(connection, prompts)))


def _standing(connection: apsw.Connection, profile: str, everything: list[LedgerRow]) -> set[str]:
    """Give the texts that are in force, on whatever grounds. What an undo went back to has a row of its own,
    which says whether it still is."""
    made = [row for row in everything if row.state == "active" and not row.undoes]
    found = {row.after for row in made if row.kind == "skill"} - {""}
    for path in notes.FILES.values():
        found |= {entry.said for entry in notes.entries(in_force(connection, profile, path))}
    return found


def _files(own: list[LedgerRow], everything: list[LedgerRow]) -> set[str]:
    """Give the hashes of the files that these rows wrote, and of those that were built on them."""
    keys = {change.after for row in own if not row.undoes for change in row.changes} - {""}
    for row in sorted(everything, key=lambda row: row.id):
        if row.state != "active" and not row.undoes:
            keys |= {change.after for change in row.changes if change.before in keys} - {""}
    return keys


def _tells(row: LedgerRow, text: str, words: set[str], gone: set[str]) -> bool:
    """Whether a row's text goes: it is one of these words, a file that went, or notes with such an entry."""
    if text in words:
        return True
    if row.kind == "skill":
        return digest(text) in gone
    return any(entry.said in words for entry in notes.entries(text))


def _described(texts: Collection[str]) -> set[str]:
    """Give what skills say of themselves, as sessions begin with it."""
    found: set[str] = set()
    for text in texts:
        with suppress(BadSkill):
            found.add(skill_format.name_and_description(text)[1])
    return found
