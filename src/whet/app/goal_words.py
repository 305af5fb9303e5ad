"""How a goal is typed, and how what came of it is told, where there is no terminal's own form."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from whet.contract.errors import ConfigError

if TYPE_CHECKING:
    from whet.app.goals import GoalReport, GoalWish

USAGE = (
    "/goal TEXT [--verify CMD] [--budget $2] [--steps N] [--guard PATH] [--may-change PATH],"
    " or /goal show, stop or resume"
)
_VALUED = ("--verify", "--budget", "--steps", "--guard", "--may-change")
_SAID_CHARS = 600


def parse_usd(text: str) -> float:
    """Read an amount: 2, 2.50 or $2. Raises ConfigError."""
    try:
        amount = float(text.strip().removeprefix("$") or 0)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e6:
        raise ConfigError(f"{text!r} is no amount in USD", hint="--budget 2.50")
    return amount


def parse_goal(text: str) -> GoalWish:
    """Read what follows /goal. Raises ConfigError."""
    from whet.app.goals import GoalWish  # noqa: PLC0415 - few chats have goals

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"a quote is left open: {error}", hint=USAGE) from error
    said: list[str] = []
    given: dict[str, list[str]] = {}
    at = iter(words)
    for word in at:
        name, sign, value = word.partition("=")
        if name not in _VALUED:
            said.append(word)
            continue
        value = value if sign else next(at, "")
        if not value:
            raise ConfigError(f"{name} needs a value", hint=USAGE)
        given.setdefault(name, []).append(value)
    steps = given.get("--steps", ["0"])[-1]
    if not steps.isdecimal():
        raise ConfigError(f"--steps takes a number, not {steps!r}", hint=USAGE)
    if not said:
        raise ConfigError("a goal needs a text", hint=USAGE)
    return GoalWish(
        " ".join(said),
        given.get("--verify", [""])[-1],
        parse_usd(given.get("--budget", ["0"])[-1]),
        int(steps),
        tuple(given.get("--guard", ())),
        tuple(given.get("--may-change", ())),
    )


def told(done: GoalReport) -> str:
    """Say what came of a goal: its state, what its calls did, and what is missing where it is not reached."""
    goal = done.goal
    spent = f", ${done.spent_usd:.2f}" if done.spent_usd else ""
    lines = [f"goal {goal.state}: {goal.text}", f"{goal.round} rounds, {done.steps} steps{spent}"]
    if done.receipt.parts:
        lines.append(done.receipt.line)
    if goal.state != "achieved":
        lines += [one for one in (goal.note, goal.said[-_SAID_CHARS:]) if one]
    return "\n".join(lines)
