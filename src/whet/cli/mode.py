"""What the session may do unasked: ask, plan or auto; Shift-Tab goes from one to the next.

In plan the gate lets nothing but reading through, the model is told with each message, and at a turn's end
the person decides on its plan. It does not know how a key or a list reaches the person.
"""

from __future__ import annotations

from whet.agent.session import Session
from whet.app import planning
from whet.app.build import App
from whet.approval.gate import PolicyGate
from whet.config.schema import ApprovalMode

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
    ("Change the steps, then /plan go", "/plan steps"),
    ("Keep planning: say what should be different", "mode plan"),
)


def mode_of(gate: PolicyGate, session: Session) -> str:
    """Give the mode that holds in a session."""
    return "plan" if gate.plans.has(session.id) else gate.mode


def next_mode(mode: str) -> str:
    """Give the one that Shift-Tab goes to."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]


async def set_mode(app: App, session: Session, mode: ApprovalMode | str) -> None:
    """Have a mode hold from the next call on; that a session plans is kept with it."""
    if (mode == "plan") != app.gate.plans.has(session.id):
        await planning.set_planning(app, session.id, mode == "plan")
    if mode == "ask" or mode == "auto" or mode == "deny":
        app.gate.set_mode(mode)
