"""The report on a person's own tasks: success and cost of each arm against no learning, and the value of each
item.

Tasks are the unit of the intervals: several runs of one task are not independent. An interval that spans
zero is "no evidence", however large the difference looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from whet.evals.own_run import TaskOutcome
from whet.evals.paired import PairedGap, compare
from whet.evals.records import CACHED_PRICE, OUTPUT_PRICE
from whet.stats import Interval, wilson
from whet.store.starts import ContextItem

SIGNIFICANT = 0.05
_CLAIM = """\
What this allows to say: with this model, on these tasks, in this order, so many more or fewer succeed. What
it does not: anything about other tasks, other models or other people. Tasks that resemble each other make
learning look better than it is at your everyday work; a verifier that is too easy hides harm."""


class ArmResult(msgspec.Struct, frozen=True):
    """One arm over all its runs. `gain` and `p_value` are against off, paired by task and run.

    Tokens and costs are means per task, reviews included. `cost_per_success` is in units of an uncached
    prompt token. `usd_per_success` is None if a price is unknown or no task succeeded.
    """

    arm: str
    runs: int
    tasks: int
    succeeded: int
    rate: Interval
    gain: Interval | None
    p_value: float | None
    tokens_per_task: float
    cost_per_success: float | None
    usd_per_success: float | None
    steps_per_task: float
    failed_calls_per_task: float
    leaks: int

    @property
    def finding(self) -> str:
        """The conclusion about the arm: helps, hurts, no evidence, or "-" without a comparison."""
        return "-" if self.gain is None else _finding(self.gain, self.p_value)


class ItemUplift(msgspec.Struct, frozen=True):
    """The value of one learned item: success with everything minus success without this item."""

    item: ContextItem
    gain: Interval
    p_value: float
    runs: int

    @property
    def finding(self) -> str:
        """The conclusion about the item: helps, hurts or no evidence."""
        return _finding(self.gain, self.p_value)


def results(outcomes: Sequence[TaskOutcome]) -> list[ArmResult]:
    """Summarise every arm, in the order of first appearance."""
    arms = list(dict.fromkeys(one.arm for one in outcomes))
    off = [one for one in outcomes if one.arm == "off"]
    return [_result(arm, [one for one in outcomes if one.arm == arm], off) for arm in arms]


def uplift(
    item: ContextItem, everything: Sequence[TaskOutcome], without: Sequence[TaskOutcome]
) -> ItemUplift:
    """Compare runs with all items against runs without this one."""
    found = _against(everything, without)
    return ItemUplift(item, found.gap, found.p_value, len({one.repeat for one in without}))


def _finding(gain: Interval, p_value: float | None) -> str:
    """Return the conclusion from an interval. The p-value guards against few tasks that agree by luck."""
    if gain.spans_zero or p_value is None or p_value > SIGNIFICANT:
        return "no evidence"
    return "helps" if gain.low > 0 else "hurts"


def _result(arm: str, mine: list[TaskOutcome], off: list[TaskOutcome]) -> ArmResult:
    succeeded = sum(one.ok for one in mine)
    usage = [used for one in mine for used in (one.usage, one.review_usage)]
    cost = sum(
        (used.prompt_tokens - used.cache_read_tokens)
        + CACHED_PRICE * used.cache_read_tokens
        + OUTPUT_PRICE * used.output_tokens
        for used in usage
    )
    prices = [used.cost_usd for used in usage]
    usd = None if None in prices else sum(price or 0.0 for price in prices)
    found = _against(mine, off) if off and arm != "off" else None
    return ArmResult(
        arm=arm,
        runs=len({one.repeat for one in mine}),
        tasks=len(mine),
        succeeded=succeeded,
        rate=wilson(succeeded, len(mine)),
        gain=found.gap if found else None,
        p_value=found.p_value if found else None,
        tokens_per_task=sum(used.prompt_tokens + used.output_tokens for used in usage) / len(mine),
        cost_per_success=cost / succeeded if succeeded else None,
        usd_per_success=usd / succeeded if usd is not None and succeeded else None,
        steps_per_task=fmean(one.steps for one in mine),
        failed_calls_per_task=fmean(one.failed_calls for one in mine),
        leaks=sum(bool(one.leaked) for one in mine),
    )


def _against(mine: Sequence[TaskOutcome], theirs: Sequence[TaskOutcome]) -> PairedGap:
    return compare(mine, theirs, lambda one: float(one.ok))


def report(
    arms: Sequence[ArmResult], outcomes: Sequence[TaskOutcome], uplifts: Sequence[ItemUplift], model: str
) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Learning on your own tasks",
        "",
        f"Model: {model}. Each arm's runs do the same tasks in the same order, in fresh folders, each with a",
        "home of its own. Reviews are counted in. In brackets: 95 % intervals; gain: paired over tasks,",
        "paired; p: McNemar, exact. Without an interval off zero and p <= 0.05 there is no evidence.",
        "",
        "| arm | runs | success | gain over off | p | finding | tokens a task | cost a success |"
        " USD a success | steps | failed calls | leaks |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in arms:
        gap = one.gain
        gain = "-" if gap is None else f"{gap.estimate:+.0%} [{gap.low:+.0%}, {gap.high:+.0%}]"
        lines.append(
            f"| {one.arm} | {one.runs} | {one.succeeded} of {one.tasks}"
            f" [{one.rate.low:.0%}, {one.rate.high:.0%}] | {gain} |"
            f" {'-' if one.p_value is None else f'{one.p_value:.3f}'} | {one.finding} |"
            f" {one.tokens_per_task:,.0f} | {_number(one.cost_per_success)} |"
            f" {'?' if one.usd_per_success is None else f'{one.usd_per_success:.4f}'} |"
            f" {one.steps_per_task:.1f} | {one.failed_calls_per_task:.1f} | {one.leaks} |"
        )
    lines += ["", "## Task by task", "", "| task | " + " | ".join(one.arm for one in arms) + " |"]
    lines.append("|---|" + "---|" * len(arms))
    for name in dict.fromkeys(one.task for one in outcomes):
        cells = [[o.ok for o in outcomes if o.task == name and o.arm == one.arm] for one in arms]
        lines.append(f"| {name} | " + " | ".join(f"{sum(c)} of {len(c)}" for c in cells) + " |")
    if uplifts:
        lines += ["", "## Item by item", "", "Success with everything minus success without this one alone."]
        lines += ["", "| item | gain | finding |", "|---|---|---|"]
        for found in uplifts:
            gap = found.gain
            text = (found.item.label or found.item.name).replace("|", "\\|")
            gain = f"{gap.estimate:+.0%} [{gap.low:+.0%}, {gap.high:+.0%}]"
            lines.append(f"| {text} | {gain} | {found.finding} |")
    leaks = [
        f"- {one.arm} {one.repeat}, {one.task}: {', '.join(one.leaked)}" for one in outcomes if one.leaked
    ]
    lines += ["", "## Leaks", "", *(leaks or ["None: no task's secret stood in another task's request."])]
    lines += ["", "## What this says", "", *_CLAIM.splitlines()]
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
