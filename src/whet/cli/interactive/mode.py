"""Modes in the chat: what Shift-Tab switches to, and what may follow a plan.

In plan mode the gate allows only reading, each message reminds the model of it, and at the end of a turn
the person decides on the plan. Keys and menus are handled elsewhere.
"""

from __future__ import annotations

from whet.app.modes import ABOUT, MODES

QUESTION = (
    "Carry this plan out? The mode lasts until you change it (Shift-Tab) or quit; /rewind takes edits back"
)
CHOICES = (
    ("Go ahead in mode ask", ABOUT["ask"]),
    ("Go ahead in mode auto", ABOUT["auto"]),
    ("Change the steps", "nothing runs; the input line gets them, and /plan go approves them"),
    ("Keep planning", "nothing runs; words that you type instead go to the model"),
)


def next_mode(mode: str) -> str:
    """Return the mode that Shift-Tab switches to."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
