"""The arms of the comparison: which memory each lets the program keep, and how much of it enters the
prompt."""

from __future__ import annotations

from typing import Literal

import msgspec

from whet.contract.errors import NotFound


class Arm(msgspec.Struct, frozen=True):
    """One way to run the same sessions.

    `toolsets` are the learning toolsets. `notes` is the text that the evaluation itself puts into the
    prompt: nothing, every earlier message, or exactly the facts that the task needs. Without `gated`,
    every lesson that a review submits is kept, on any quote and from any source. The settings of reviews
    are the shipped ones; if their budget `is_lifted`, one follows every turn. With `one_conversation` a
    person's sessions that are not private are the turns of one session.
    """

    name: str
    about: str
    toolsets: tuple[str, ...] = ()
    reviews: bool = False
    notes: Literal["", "everything", "needed"] = ""
    gated: bool = True
    is_lifted: bool = False
    one_conversation: bool = False


OFF = Arm("off", "No memory: every session begins from nothing.")
APPEND = Arm(
    "append-all", "Every message and result goes into the prompt for good; no gate.", notes="everything"
)
CONVERSATION = Arm(
    "conversation",
    "No memory: one session goes on, and its whole text is in the context.",
    one_conversation=True,
)
OURS = Arm("ours", "Memory, skills and reviews, as shipped.", ("memory", "skills"), reviews=True)
NO_BUDGET = Arm(
    "no-budget",
    "Ours with the review budget lifted and a review after every turn.",
    ("memory", "skills"),
    reviews=True,
    is_lifted=True,
)
NO_SKILLS = Arm("no-skills", "Ours without skills.", ("memory",), reviews=True)
NO_MEMORY = Arm("no-memory", "Ours without memory notes.", ("skills",), reviews=True)
NO_GATE = Arm(
    "no-gate",
    "No-budget without the gate: no quote is checked, no source weighed, nothing quarantined.",
    ("memory", "skills"),
    reviews=True,
    gated=False,
    is_lifted=True,
)
ORACLE = Arm("oracle", "The facts that the task needs stand in its prompt, nothing else.", notes="needed")

ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (OFF, APPEND, CONVERSATION, OURS, NO_BUDGET, NO_SKILLS, NO_MEMORY, NO_GATE, ORACLE)
}


def pick_arms(names: str) -> list[Arm]:
    """Return the arms of a comma-separated list, or all if it is empty. Raises NotFound."""
    selected = [name.strip() for name in names.split(",") if name.strip()] or list(ARMS)
    unknown = [name for name in selected if name not in ARMS]
    if unknown:
        raise NotFound(f"there is no arm {unknown[0]!r}", hint=f"the arms are: {', '.join(ARMS)}")
    return [ARMS[name] for name in selected]
