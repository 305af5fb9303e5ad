"""The parts that a session is started or opened with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import msgspec

from whet.agent.session import Session, TurnObserver
from whet.contract.events import Emit
from whet.contract.protocols import Decision, GateCall, Person
from whet.contract.tools import Buffers, Tool, ToolOutput, ToolSpec
from whet.late import LatePart
from whet.store.sessions import SessionKind
from whet.store.transcript import Transcript
from whet.warm.openings import WarmWish

if TYPE_CHECKING:
    from whet.approval.gate import PolicyGate


class Principal(msgspec.Struct, frozen=True):
    """The person, interface and workspace of a new session; empty values mean those of the process.

    `profile`: whose memory it uses, empty for the owner's. `source`: the interface. `tools`: additional
    tools, with names that no other tool has.
    """

    profile: str = ""
    source: str = ""
    workspace: Path | None = None
    tools: Sequence[Tool] = ()


OWNERS = Principal()


class SessionExtras(msgspec.Struct, frozen=True):
    """The parts that an interface adds to a session while it is open.

    `session_id` is the new session's id, if the interface created one. `tools` replace those of the same
    name, `buffers` are the unsaved files of the person's editor, `note` is added to each message of a person,
    `turn_s` limits a turn instead of the setting, `person` is asked instead of the process's person,
    `observers` take part in turns after all others.
    """

    session_id: str = ""
    tools: Sequence[Tool] = ()
    buffers: Buffers | None = None
    note: str = ""
    turn_s: float | None = None
    person: Person | None = None
    observers: Sequence[TurnObserver] = ()


NO_EXTRAS = SessionExtras()


class SessionStart(msgspec.Struct, frozen=True):
    """The contents of a new session. `steps` 0 means the limit from the settings. `notices` are shown to its
    person. `model_chosen` states that the session keeps this model."""

    prompt: str = ""
    tools: Sequence[Tool] = ()
    title: str = ""
    parent_id: str = ""
    kind: SessionKind = "chat"
    private: bool = False
    conversation_id: str = ""
    warm: WarmWish = WarmWish()
    whose: Principal = OWNERS
    steps: int = 0
    notices: Sequence[str] = ()
    model_chosen: bool = False


class NewSessionOptions(TypedDict, total=False):
    """The options of a new session.

    If `leaving` is set, the session continues its conversation (/new) and takes over its context engine.
    `warm` is a template's name, "auto" or "off"; if it is empty, the settings decide when the first message
    arrives. Templates are mined from the owner's sessions, so sessions of other people never use one.
    `extras` are parts that the caller adds. `model_chosen` states that a person chose the process's model
    for this session (`names_model`), which keeps it.
    """

    private: bool
    title: str
    leaving: Session | None
    warm: str
    whose: Principal
    extras: SessionExtras
    model_chosen: bool


class StoredPrefix(msgspec.Struct, frozen=True):
    """A stored session: its log, and the prefix of every request (`prompt`, `specs`).

    `prime` is the JSON of the examples that it was started with, or empty. `profile` is the person whose
    memory it uses.
    """

    log: Transcript
    prompt: str
    specs: Sequence[ToolSpec]
    profile: str
    prime: str = ""


class LateGate(msgspec.Struct, frozen=True):
    """The process's gate, created at the first call."""

    part: LatePart[PolicyGate]

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Decide, as the Gate contract requires."""
        return await self.part.get().decide(call, emit)

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Pass the result on to the gate."""
        await self.part.get().report(call, output, emit)
