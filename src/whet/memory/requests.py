"""What is asked of the desk, what the gate is given and makes of it, and what came of it. Values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from whet.contract.errors import WhetError
from whet.store.ledger import Kind, Quote, State, Trust

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
    sources and which alone comes into force (empty: what was handed in, a person's own). `quarantined`: it
    rests on untrusted text, or on prose that nobody tried or said; `why` says so.
    `about`: the request in whose course a skill's steps were taken."""

    trust: Trust
    evidence: tuple[Quote, ...] = ()
    quarantined: bool = False
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
    """A change that can't be made; the message says why, so that it can be asked for better. Where
    `is_known`, it is remembered already."""

    is_known = False

    @property
    def outcome(self) -> WriteOutcome:
        """What the model is told of it."""
        return WriteOutcome(False, "refused", f"{self.message.rstrip('.')}. {self.hint}".strip())


class NeedsYes(WhetError):
    """The change is to something of the person's; the message is the question to put to them."""
