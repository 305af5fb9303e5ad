"""What is asked of the desk, what the gate makes of it, what came of it, and how that is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from whet.contract.errors import WhetError
from whet.store.ledger import Kind, LedgerRow, Quote, State, Trust

Target: TypeAlias = Literal["memory", "user"]
FILES: dict[Target, str] = {"memory": "memories/MEMORY.md", "user": "memories/USER.md"}
MemoryAction: TypeAlias = Literal["add", "replace", "remove"]
SkillAction: TypeAlias = Literal["create", "edit", "patch", "delete", "write_file", "remove_file"]
_DONE = {"create": "created", "edit": "edited", "patch": "patched", "delete": "deleted"}
_STATES = {
    "staged": "Taken; it comes into force when this review ends",
    "active": "Saved; new sessions see it",
    "quarantined": "Not in force, kept for the person: only text from elsewhere, or prose that nobody said or"
    " tried, says it. Don't try again in other words",
    "inbox": "Put into the person's inbox; it comes into force when they accept it",
}


class MemoryRequest(msgspec.Struct, frozen=True):
    """One change to the notes. `old_text` is a unique part of the entry that is replaced or removed; `reason`
    is kept with the row."""

    action: MemoryAction
    target: Target = "memory"
    content: str = ""
    old_text: str = ""
    evidence: tuple[str, ...] = ()
    reason: str = ""


class SkillRequest(msgspec.Struct, frozen=True):
    """One change to a skill. `content` is a whole SKILL.md; `base_hash` the hash that skill_view gave;
    `confirmed`: the person said yes to a change of what is theirs."""

    action: SkillAction
    name: str
    content: str = ""
    old_string: str = ""
    new_string: str = ""
    file_path: str = ""
    file_content: str = ""
    evidence: tuple[str, ...] = ()
    base_hash: str = ""
    confirmed: bool = False
    reason: str = ""


class Claim(msgspec.Struct, frozen=True):
    """What is handed in to be learned: the model's words and its quotes, which point at what is kept. `known`
    is the text that is edited; `existing` are the entries that must not be repeated. `is_verbatim`: a file,
    kept as it is or not at all."""

    kind: Kind
    text: str
    quotes: tuple[str, ...]
    known: str = ""
    existing: tuple[str, ...] = ()
    is_verbatim: bool = False
    target: str = ""


class GateVerdict(msgspec.Struct, frozen=True):
    """What comes of it: the trust, the quotes with their places, and `text`, which the program wrote from the
    sources and which alone comes into force (empty: what was handed in, a person's own). What is untrusted,
    or prose that nobody tried or said, waits; `why` says so. `about`: what a skill's steps are for."""

    trust: Trust
    evidence: tuple[Quote, ...] = ()
    why: str = ""
    text: str = ""
    about: str = ""


class WriteOutcome(msgspec.Struct, frozen=True):
    """What came of a request. `state` is the row's, "refused", or "needs_yes" (the person's own, nothing
    was done yet); `text` is for the model, `summary` a line for people ("Memory updated")."""

    ok: bool
    state: State | Literal["needs_yes"]
    text: str
    ledger_id: int = 0
    summary: str = ""
    hash: str = ""


class Refused(WhetError):
    """A change that can't be made; the message says why, so that it can be asked for better."""

    @property
    def outcome(self) -> WriteOutcome:
        """What the model is told of it."""
        return WriteOutcome(False, "refused", f"{self.message.rstrip('.')}. {self.hint}".strip())


class Repeated(Refused):
    """What is remembered already."""


class NeedsYes(WhetError):
    """The change is to something of the person's; the message is the question to put to them."""


def told(row: LedgerRow, used: str = "", troubles: Mapping[str, str] | None = None) -> WriteOutcome:
    """Give the outcome of a row."""
    if row.state not in _STATES:
        return WriteOutcome(False, row.state, f"This change is {row.state}: {row.reason}".strip(), row.id)
    text = f"{_STATES[row.state]} (change {row.id})."
    if row.kind == "memory" and row.remark:
        text += f" It reads: {row.after}."
    if used:
        text += f" {FILES[target_of(row.item)].rpartition('/')[2]}: {used}."
    if row.kind == "skill" and row.hash:
        text += f" The skill's hash is now {row.hash}."
    if trouble := next(iter((troubles or {}).values()), ""):
        text += f" But a file could not be written: {trouble}. It is kept in the ledger until then."
    return WriteOutcome(True, row.state, text, row.id, summary(row), row.hash)


def target_of(item: str) -> Target:
    """Give the notes file that a row of the ledger is about."""
    return "user" if item == "user" else "memory"


def summary(row: LedgerRow) -> str:
    """Say in a few words what a row did: Memory updated, Skill 'deploy' patched."""
    if row.kind == "memory":
        return "User profile updated" if row.item == "user" else "Memory updated"
    return f"Skill '{row.item}' {_DONE.get(row.action, 'updated')}"
