"""The arms of `whet eval learning`: which memory each arm may keep, and how much of it enters the prompt."""

from __future__ import annotations

from typing import Literal

import msgspec

from whet.contract.errors import NotFound


class Arm(msgspec.Struct, frozen=True):
    """One way to run the same sessions.

    `toolsets` are the learning toolsets. `notes` is the text that the evaluation itself puts into the
    prompt: nothing, every earlier message, or exactly the facts that the task needs. If `gated` is False,
    every lesson that a review submits is kept, whatever its quote and source. Reviews use the default
    settings; with `has_unlimited_reviews`, their budget is unlimited and a review follows every turn. With
    `one_conversation`, all sessions of a person except private ones are turns of a single session.
    """

    name: str
    description: str
    toolsets: tuple[str, ...] = ()
    reviews: bool = False
    notes: Literal["", "everything", "needed"] = ""
    gated: bool = True
    has_unlimited_reviews: bool = False
    one_conversation: bool = False


OFF = Arm("off", "No memory: every session begins from nothing.")
APPEND = Arm("append-all", "Every message and result stays in the prompt; no gate.", notes="everything")
CONVERSATION = Arm(
    "conversation",
    "No memory: one session continues, and its whole text is in the context.",
    one_conversation=True,
)
OURS = Arm("ours", "Memory, skills and reviews, as shipped.", ("memory", "skills"), reviews=True)
NO_BUDGET = Arm(
    "no-budget",
    "Ours with an unlimited review budget and a review after every turn.",
    ("memory", "skills"),
    reviews=True,
    has_unlimited_reviews=True,
)
NO_SKILLS = Arm("no-skills", "Ours without skills.", ("memory",), reviews=True)
NO_MEMORY = Arm("no-memory", "Ours without memory notes.", ("skills",), reviews=True)
NO_GATE = Arm(
    "no-gate",
    "No-budget without the gate: no quote is checked, no source weighed, nothing quarantined.",
    ("memory", "skills"),
    reviews=True,
    gated=False,
    has_unlimited_reviews=True,
)
ORACLE = Arm("oracle", "The prompt contains the facts that the task needs, nothing else.", notes="needed")

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
