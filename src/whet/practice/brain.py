"""What the stand-in says when there is no script."""

from __future__ import annotations

import re

from whet.practice.ask import Ask
from whet.practice.script import Reply
from whet.practice.steps import take_step

MODELS = ("practice", "practice-echo", "practice-steps-3", "practice-steps-20", "practice-steps-1000")
_STEPS = re.compile(r"practice-steps-(\d+)")


def is_offered(model: str) -> bool:
    """Whether the stand-in has a model of this name."""
    return model in MODELS or _STEPS.fullmatch(model) is not None


def answer(ask: Ask) -> Reply:
    """Answer a request from what it holds, and from nothing else."""
    steps = _STEPS.fullmatch(ask.model)
    if steps:
        return take_step(ask, int(steps[1]))
    return Reply(ask.last_user)
