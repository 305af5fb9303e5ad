"""What a model and a person are told of a change."""

from __future__ import annotations

from collections.abc import Mapping

from whet.memory import notes
from whet.memory.requests import WriteOutcome
from whet.store.ledger import LedgerRow

_DONE = {"create": "created", "edit": "edited", "patch": "patched", "delete": "deleted"}
_STATES = {
    "staged": "Taken; it comes into force when this review ends",
    "active": "Saved; new sessions see it",
    "quarantined": (
        "Kept for the person to decide on, not in force: only text from elsewhere, or prose that nobody said"
        " or tried, says it. Don't try again in other words"
    ),
    "inbox": "Put into the person's inbox; it comes into force when they accept it",
}


def told(row: LedgerRow, used: str = "", troubles: Mapping[str, str] | None = None) -> WriteOutcome:
    """Give the outcome of a row."""
    if row.state not in _STATES:
        return WriteOutcome(False, row.state, f"This change is {row.state}: {row.reason}".strip(), row.id)
    text = f"{_STATES[row.state]} (change {row.id})."
    if row.kind == "memory" and row.remark:
        text += f" It reads: {row.after}."
    if used:
        text += f" {notes.FILES['user' if row.item == 'user' else 'memory'].rpartition('/')[2]}: {used}."
    if row.kind == "skill" and row.hash:
        text += f" The skill's hash is now {row.hash}."
    if trouble := next(iter((troubles or {}).values()), ""):
        text += f" But a file could not be written: {trouble}. It is kept in the ledger until then."
    return WriteOutcome(True, row.state, text, row.id, summary(row), row.hash)


def summary(row: LedgerRow) -> str:
    """Say in a few words what a row did: Memory updated, Skill 'deploy' patched."""
    if row.kind == "memory":
        return "User profile updated" if row.item == "user" else "Memory updated"
    return f"Skill '{row.item}' {_DONE.get(row.action, 'updated')}"
