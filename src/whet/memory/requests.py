"""The learning service's requests, claims, verdicts and outcomes, and the texts that describe outcomes."""

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
SIMILAR_NOTE = "a similar note stays too:"
"""The beginning of the reason on a row whose note may be about the same as an older one."""
_DONE = {
    "create": "created",
    "edit": "edited",
    "patch": "patched",
    "delete": "deleted",
    "write_file": "extended",
    "remove_file": "trimmed",
}
_STATES = {
    "staged": "Taken; it comes into force when this review ends",
    "active": "Saved; new sessions see it",
    "quarantined": "Not in force, kept for the person: only text from elsewhere, or prose that nobody said or"
    " tried, says it. Don't try again in other words",
    "inbox": "Put into the person's inbox; it comes into force when they accept it",
}


class MemoryRequest(msgspec.Struct, frozen=True):
    """One change to the notes.

    `old_text` is a unique part of the entry that is replaced or removed. `reason` is stored with the row.
    """

    action: MemoryAction
    target: Target = "memory"
    content: str = ""
    old_text: str = ""
    evidence: tuple[str, ...] = ()
    reason: str = ""


class SkillRequest(msgspec.Struct, frozen=True):
    """One change to a skill.

    `content` is a whole SKILL.md. `base_hash` is the hash from skill_view. `confirmed`: the person agreed
    to a change of their own skill.
    """

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
    """A lesson to judge: the model's words, and the quotes that point at the text to keep.

    `edited_text` is the text that is edited. `existing` are the entries that must not be repeated.
    `is_verbatim`: a file, kept unchanged or not at all. `name` is the model's name for a new skill.
    """

    kind: Kind
    text: str
    quotes: tuple[str, ...]
    edited_text: str = ""
    existing: tuple[str, ...] = ()
    is_verbatim: bool = False
    target: str = ""
    name: str = ""


class GateVerdict(msgspec.Struct, frozen=True):
    """The verdict on a claim: its trust, and the quotes with their positions.

    `text` was written by the program from the sources and is the only text that comes into force; if
    empty, the person's own text is used. Text that is untrusted, or prose that the person never said,
    waits, and `why` is the reason. `about` is the purpose of a skill's steps, `name` the skill's name.
    """

    trust: Trust
    evidence: tuple[Quote, ...] = ()
    why: str = ""
    text: str = ""
    about: str = ""
    name: str = ""


class WriteOutcome(msgspec.Struct, frozen=True):
    """The outcome of a request.

    `state` is the row's, "refused", or "needs_yes" (the item is the person's own, and nothing was done
    yet). `text` is for the model, `summary` is one line for people ("Memory updated").
    """

    ok: bool
    state: State | Literal["needs_yes"]
    text: str
    ledger_id: int = 0
    summary: str = ""
    hash: str = ""


class Refused(WhetError):
    """A change that can't be made. The message is the reason, so that the model can make a better request."""

    @property
    def outcome(self) -> WriteOutcome:
        """The outcome as the model sees it."""
        return WriteOutcome(False, "refused", f"{self.message.rstrip('.')}. {self.hint}".strip())


class Repeated(Refused):
    """The lesson is already remembered."""


class NeedsYes(WhetError):
    """The change is to an item of the person's own. The message is the question for them."""


def describe_outcome(
    row: LedgerRow, room: str = "", troubles: Mapping[str, str] | None = None
) -> WriteOutcome:
    """Return the outcome of a row. `room` says how full its notes file is, `troubles` which files could not
    be written and why."""
    if row.state not in _STATES:
        return WriteOutcome(False, row.state, f"This change is {row.state}: {row.reason}".strip(), row.id)
    text = f"{_STATES[row.state]} (change {row.id})."
    if row.kind == "memory" and row.remark:
        text += f" It reads: {row.after}."
        if row.reason.startswith(SIMILAR_NOTE):
            text += f" But {row.reason}. If this one takes its place, remove that one with the same quotes."
    if room:
        text += f" {FILES[target_of(row.item)].rpartition('/')[2]}: {room}."
    if row.kind == "skill" and row.hash:
        text += f" It is the skill {row.item}." if row.action == "create" else ""
        text += f" The skill's hash is now {row.hash}."
    if trouble := next(iter((troubles or {}).values()), ""):
        text += f" But a file could not be written: {trouble}. It is kept in the ledger until then."
    return WriteOutcome(True, row.state, text, row.id, summarize_change(row), row.hash)


def decode_notes(raw: bytes) -> str:
    """Return the text of a notes file, without a byte order mark."""
    return raw.decode("utf-8-sig", "replace")


def target_of(item: str) -> Target:
    """Return the notes file that a ledger row belongs to."""
    return "user" if item == "user" else "memory"


def summarize_change(row: LedgerRow) -> str:
    """Describe a row's change in a few words, for example: Memory updated, Skill 'deploy' patched."""
    if row.kind == "memory":
        return "User profile updated" if row.item == "user" else "Memory updated"
    return f"Skill '{row.item}' {_DONE.get(row.action, 'changed')}"
