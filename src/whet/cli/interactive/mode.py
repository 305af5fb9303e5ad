"""The order of modes for Shift-Tab, and the choices at the end of a plan.

In plan mode the gate allows only reading, and at the end of a turn the person decides on the plan.
"""

from __future__ import annotations

from whet.app.modes import MODES

QUESTION = (
    "Carry this plan out? The mode lasts until you change it (Shift-Tab) or quit; /rewind takes edits back"
)
CHOICES = (
    ("Go ahead in mode ask", "asks before edits, and before commands that change things outside a sandbox"),
    ("Go ahead in mode auto", "asks only before what is dangerous: rm -rf, git push, reading secrets ..."),
    ("Change the steps", "nothing runs; edit them; /plan go runs them in the mode before the plan"),
    ("Keep planning", "nothing runs; words that you type instead go to the model"),
)


def next_mode(mode: str) -> str:
    """Return the mode that Shift-Tab switches to."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
