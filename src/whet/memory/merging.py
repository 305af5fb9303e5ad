"""What a person changed in a notes file, entry by entry, and how that joins with changes of ours.

Functions on texts: the diff of two files as single edits, edits carried over to another text. And what a
writer sees: what is in force with its own review's staged changes on top, read inside a transaction.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import apsw

from whet.memory import notes
from whet.memory.notes import EntryChange
from whet.memory.reader import in_force
from whet.memory.requests import Refused, Target
from whet.memory.skill_changes import Files
from whet.store import learned, ledger


def changes(before: str, after: str) -> list[EntryChange]:
    """Give how `after`'s entries differ from `before`'s, in order. Moved entries count as unchanged."""
    old = [entry.said for entry in notes.entries(before)]
    new = [entry.said for entry in notes.entries(after)]
    found: list[EntryChange] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        gone = [text for text in old[i:j] if text not in new]
        come = [text for text in new[k:m] if text not in old]
        pairs = min(len(gone), len(come))
        found += [EntryChange(*pair) for pair in zip(gone, come, strict=False)]
        found += [EntryChange(text, "") for text in gone[pairs:]]
        found += [EntryChange("", text) for text in come[pairs:]]
    return found


def carry(text: str, target: Target, wanted: Sequence[EntryChange]) -> tuple[str, list[EntryChange]]:
    """Make these changes in `text` too; gives the new text and the changes that no longer fit."""
    lost: list[EntryChange] = []
    for change in wanted:
        try:
            text = notes.step(text, target, change)
        except Refused:
            lost.append(change)
    return text, lost


def want_note(connection: apsw.Connection, profile: str, target: Target, text: str) -> None:
    """Say what a notes file should hold; empty for no file."""
    key = learned.keep_text(connection, text.encode()) if text else ""
    learned.want(connection, profile, notes.FILES[target], key)


def note_text(connection: apsw.Connection, profile: str, target: Target, task_id: str = "") -> str:
    """Give a notes file as the writer sees it."""
    text = in_force(connection, profile, notes.FILES[target])
    for row in ledger.of_task(connection, task_id, ("staged",)):
        if (row.kind, row.item, row.profile) == ("memory", target, profile):
            try:
                text = notes.step(text, target, EntryChange(row.before, row.after))
            except Refused:
                continue  # its entry has changed meanwhile; settling the review will say so
    return text


def skill_hashes(connection: apsw.Connection, profile: str, name: str, task_id: str = "") -> dict[str, str]:
    """Give a skill's files as the writer sees them: hash by path within the skill; empty where none is."""
    root = f"skills/{name}/"
    found = {
        state.path.removeprefix(root): state.wanted
        for state in learned.states(connection, profile, root)
        if state.wanted
    }
    for row in ledger.of_task(connection, task_id, ("staged",)):
        if (row.kind, row.item, row.profile) == ("skill", name, profile):
            found.update((change.path.removeprefix(root), change.after) for change in row.changes)
    return {path: key for path, key in found.items() if key}


def texts(connection: apsw.Connection, hashes: Mapping[str, str]) -> Files:
    """Give the bytes of files by their hashes."""
    return {path: learned.text(connection, key) for path, key in hashes.items()}
