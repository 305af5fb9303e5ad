"""The mode of a session decides which calls run without a question: ask, plan or auto. Shift-Tab switches it.

In plan mode the gate allows only reading, each message reminds the model of it, and at the end of a turn
the person decides on the plan. Keys and menus are handled elsewhere.
"""

from __future__ import annotations

from whet.agent.session import Session
from whet.app import planning
from whet.app.services import Services
from whet.approval.gate import PolicyGate
from whet.config.schema import ApprovalMode

MODES = ("ask", "plan", "auto")
ABOUT = {
    "ask": "ask before edits, and before commands leave the sandbox",
    "plan": "only read, and make a plan for you to approve",
    "auto": "ask only before what is dangerous",
    "deny": "deny whatever would be asked",
}
CHOICES = (
    ("Go ahead, ask me before each edit", "mode ask"),
    ("Go ahead, ask only before what is dangerous", "mode auto"),
    ("Change the steps, then /plan go", "/plan steps"),
    ("Keep planning: say what should be different", "mode plan"),
)


def mode_of(gate: PolicyGate, session: Session) -> str:
    """Return a session's current mode."""
    return "plan" if gate.plans.has(session.id) else gate.mode


def next_mode(mode: str) -> str:
    """Return the mode that Shift-Tab switches to."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]


async def set_mode(services: Services, session: Session, mode: ApprovalMode | str) -> None:
    """Set the mode from the next call on. Whether a session plans is stored with it."""
    if (mode == "plan") != services.gate.get().plans.has(session.id):
        await planning.set_planning(services, session.id, mode == "plan")
    if mode == "ask" or mode == "auto" or mode == "deny":
        services.gate.get().set_mode(mode)
