"""What a writer sees: what is in force, and on top of it the staged changes of its own review.

Every function takes a connection inside a transaction and reads only.
"""

from __future__ import annotations

import apsw

from whet.memory import merging, notes
from whet.memory.merging import EntryChange
from whet.memory.requests import Refused, Target
from whet.memory.skill_changes import Files
from whet.store import learned, ledger


def note_text(connection: apsw.Connection, profile: str, target: Target, task_id: str = "") -> str:
    """Give a notes file as the writer sees it."""
    wanted = learned.state(connection, profile, notes.FILES[target]).wanted
    text = notes.decoded(learned.text(connection, wanted))
    for row in ledger.of_task(connection, task_id, ("staged",)):
        if (row.kind, row.item, row.profile) == ("memory", target, profile):
            try:
                text = merging.step(text, target, EntryChange(row.before, row.after))
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


def is_staged(connection: apsw.Connection, task_id: str, name: str) -> bool:
    """Whether a review has staged changes of a skill."""
    return any(
        row.item == name for row in ledger.of_task(connection, task_id, ("staged",)) if row.kind == "skill"
    )


def skill_files(connection: apsw.Connection, profile: str, name: str, task_id: str = "") -> Files:
    """Give a skill's files as the writer sees them, with their bytes."""
    hashes = skill_hashes(connection, profile, name, task_id)
    return {path: learned.text(connection, key) for path, key in hashes.items()}
