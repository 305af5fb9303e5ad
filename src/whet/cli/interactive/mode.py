"""Modes in the chat: what Shift-Tab switches to, and what may follow a plan.

In plan mode the gate allows only reading, each message reminds the model of it, and at the end of a turn
the person decides on the plan. Keys and menus are handled elsewhere.
"""

from __future__ import annotations

from whet.app.modes import MODES

CHOICES = (
    ("Go ahead, ask me before each edit", "mode ask"),
    ("Go ahead, ask only before what is dangerous", "mode auto"),
    ("Change the steps, then /plan go", "/plan steps"),
    ("Keep planning: say what should be different", "mode plan"),
)


def next_mode(mode: str) -> str:
    """Return the mode that Shift-Tab switches to."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
