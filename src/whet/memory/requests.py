"""What is asked of the desk, and what came of it. Values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from whet.contract.errors import WhetError
from whet.store.ledger import State

Target: TypeAlias = Literal["memory", "user"]
MemoryAction: TypeAlias = Literal["add", "replace", "remove"]
SkillAction: TypeAlias = Literal["create", "edit", "patch", "delete", "write_file", "remove_file"]


class MemoryRequest(msgspec.Struct, frozen=True):
    """One change to the notes. `old_text` is a unique part of the entry that is replaced or removed;
    `confirmed`: the person said yes to a change of what is theirs. `reason` is kept with the row."""

    action: MemoryAction
    target: Target = "memory"
    content: str = ""
    old_text: str = ""
    evidence: tuple[str, ...] = ()
    base_hash: str = ""
    confirmed: bool = False
    reason: str = ""


class SkillRequest(msgspec.Struct, frozen=True):
    """One change to a skill. `content` is a whole SKILL.md; `base_hash` the hash that skill_view gave."""

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
    """A change that can't be made; the message says why, so that it can be asked for better. Where
    `is_known`, it is remembered already."""

    is_known = False

    @property
    def outcome(self) -> WriteOutcome:
        """What the model is told of it."""
        return WriteOutcome(False, "refused", f"{self.message.rstrip('.')}. {self.hint}".strip())


class NeedsYes(WhetError):
    """The change is to something of the person's; the message is the question to put to them."""
