"""What the session may do unasked: ask, plan or auto; Shift-Tab goes from one to the next.

In plan the gate lets nothing but reading through, the model is told with each message, and at a turn's end
the person decides on its plan. It does not know how a key or a list reaches the person.
"""

from __future__ import annotations

import msgspec

from whet.agent.session import Session
from whet.approval.gate import PolicyGate
from whet.config.schema import ApprovalMode
from whet.contract.messages import Message

MODES = ("ask", "plan", "auto")
ABOUT = {
    "ask": "ask before anything is changed",
    "plan": "only read, and make a plan for you to approve",
    "auto": "ask only before what is dangerous",
    "deny": "deny whatever would be asked",
}
CHOICES = (
    ("Go ahead, ask me before each change", "mode ask"),
    ("Go ahead, ask only before what is dangerous", "mode auto"),
    ("Keep planning: say what should be different", "mode plan"),
)
_NOTE = (
    "[Plan mode: only read and look now; whatever changes something is denied. Make a plan for what was asked"
    " and answer with it; the person then decides on it.]"
)
APPROVED = "The plan is approved. Carry it out."


def mode_of(gate: PolicyGate, session: Session) -> str:
    """Give the mode that holds in a session."""
    return "plan" if gate.plans.has(session.id) else gate.mode


def next_mode(mode: str) -> str:
    """Give the one that Shift-Tab goes to."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]


def set_mode(gate: PolicyGate, session: Session, mode: ApprovalMode | str) -> None:
    """Have a mode hold from the next call on."""
    gate.plans.set(session.id, mode == "plan")
    if mode == "ask" or mode == "auto" or mode == "deny":
        gate.set_mode(mode)


def with_note(message: Message) -> Message:
    """Give a message that tells the model that it plans."""
    return msgspec.structs.replace(message, note="\n".join(filter(None, (message.note, _NOTE))))
