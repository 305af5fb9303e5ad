"""Parse a typed goal, and write its messages and its result as text."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import msgspec

from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ConfigError
from whet.contract.receipts import TurnReceipt
from whet.contract.texts import parse_typed_number, plural, short
from whet.goals.checks import read_checks

if TYPE_CHECKING:
    from whet.goals.claims import GoalClaim
    from whet.store.goals import GoalRow

USAGE = (
    "/goal TEXT [--verify CMD] [--budget $2] [--steps N] [--guard PATH] [--may-change PATH],"
    " or /goal show, stop or resume"
)
_VALUED = ("--verify", "--budget", "--steps", "--guard", "--may-change")
_OPTION = re.compile(rf"(?:^|(?<=\s))(?:{'|'.join(_VALUED)})(?=[=\s]|$)")
_TEXT_CHARS = 600
_SHOWN_CHARS = 60
_BY_VERIFIER = (
    "This is a goal. When your turn ends, Whet runs `{verify}` and goes on until it passes; what it prints"
    " comes back to you. Leave the files that it consists of as they are."
)
_BY_CLAIMS = (
    "This is a goal. It ends only when you call finish with claims that point at calls you made: run a"
    " command or the tests after your last change, and copy words from the result. If nothing was changed,"
    " point at what you read, sent or noted. If it can't be reached, point at the call that failed."
)


class GoalWish(msgspec.Struct, frozen=True):
    """A request for a goal. `guard` names files that must not change, besides those of the verifier.
    `may_change` names files that may change although they decide over the goal."""

    text: str
    verify: str = ""
    budget_usd: float = 0.0
    steps: int = 0
    guard: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()


class GoalReport(msgspec.Struct, frozen=True):
    """A goal with the effects of its calls, its cost, and the claims with which it ended."""

    goal: GoalRow
    receipt: TurnReceipt
    steps: int
    spent_usd: float
    spent_tokens: int
    claims: tuple[GoalClaim, ...] = ()


def round_message(goal: GoalRow) -> str:
    """Return the message that begins a round. Text that no person typed is put in a tag, so that memory does
    not take it for the person's words."""
    if goal.round == 0:
        instructions = _BY_VERIFIER.format(verify=goal.verify) if goal.verify else _BY_CLAIMS
        if not goal.verify and (checks := read_checks(goal.text)):
            instructions += " Whet checks itself: " + "; ".join(check.text for check in checks) + "."
        return f"{goal.text}\n\n{_put_in_tag(instructions)}"
    reason = f"`{goal.verify}` did not pass:\n{goal.said}" if goal.verify else goal.said
    return f"{_put_in_tag(f'The goal is not reached yet. {reason}')}\n\nGo on: {goal.text}"


def _put_in_tag(text: str) -> str:
    return wrap_in_tag("goal-check", f"\n{text}\n")


def parse_usd(text: str) -> float:
    """Parse an amount in USD: 2, 2.50 or $2. Raises ConfigError."""
    try:
        amount = float(text.strip().removeprefix("$") or 0)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e6:
        raise ConfigError(f"{text!r} is not an amount in USD", hint="--budget 2.50")
    return amount


def parse_goal(text: str) -> GoalWish:
    """Parse the text after /goal. Raises ConfigError."""
    # Only the options are parsed like a shell command: the goal's text may contain apostrophes.
    first = _OPTION.search(text)
    options_start = first.start() if first is not None else len(text)
    text_parts = [_strip_quotes(text[:options_start].strip())]
    try:
        words = iter(shlex.split(text[options_start:]))
    except ValueError as error:
        raise ConfigError(f"a quote is left open: {error}", hint=USAGE) from error
    options: dict[str, list[str]] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if name not in _VALUED:
            text_parts.append(word)
            continue
        value = value if sign else next(words, "")
        if not value:
            raise ConfigError(f"{name} needs a value", hint=USAGE)
        options.setdefault(name, []).append(value)
    steps_text = options.get("--steps", [""])[-1]
    steps = parse_typed_number(steps_text) or 0
    if steps_text and steps < 1:
        raise ConfigError(f"--steps takes a number from 1, not {steps_text[:40]!r}", hint=USAGE)
    if not (goal_text := " ".join(text_parts).strip()):
        raise ConfigError("a goal needs a text", hint=USAGE)
    return GoalWish(
        goal_text,
        options.get("--verify", [""])[-1],
        parse_usd(options.get("--budget", ["0"])[-1]),
        steps,
        tuple(options.get("--guard", ())),
        tuple(options.get("--may-change", ())),
    )


def _strip_quotes(text: str) -> str:
    """Return a text without the quotes around all of it, if there are any."""
    quote, inner = text[:1], text[1:-1]
    return inner if quote in ("'", '"') and text == f"{quote}{inner}{quote}" and quote not in inner else text


def result_text(report: GoalReport) -> str:
    """Return the result of a goal as text: its state, the effects of its calls, and the reason if it was not
    reached."""
    goal = report.goal
    spent = f", ${report.spent_usd:.2f}" if report.spent_usd else ""
    lines = [f"goal {goal.state}: {goal.text}", progress_text(report) + spent]
    if report.receipt.parts:
        lines.append(report.receipt.line)
    lines += claim_lines(report)
    if goal.state != "achieved":
        lines += [detail for detail in (goal.note, goal.said[-_TEXT_CHARS:]) if detail]
    return "\n".join(lines)


def claim_lines(report: GoalReport) -> list[str]:
    """Return one line for each claim that ended a goal without a verifier."""
    return [
        f"shown by {claim.kind} {short(claim.call, _SHOWN_CHARS)}: “{short(claim.shows, _SHOWN_CHARS)}”"
        for claim in report.claims
    ]


def progress_text(report: GoalReport) -> str:
    """Return how many rounds and steps a goal took, and whether its verifier has passed."""
    goal = report.goal
    parts = [plural(goal.round, "round"), plural(report.steps, "step")]
    if goal.verify:
        parts.append(f"`{goal.verify}` {'passed' if goal.state == 'achieved' else 'has not passed'}")
    return ", ".join(parts)
