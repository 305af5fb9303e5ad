"""The report on a person's own tasks: each arm's success and cost against no learning, each item's value.

Tasks are the unit of the intervals: several runs of one task are not independent. An interval that spans
zero is "no evidence", however large the difference looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from whet.stats import Interval, wilson
from whet.store.learned import ContextItem
from whet_lab.evals.own_run import TaskOutcome
from whet_lab.evals.paired import PairedGap, compare
from whet_lab.evals.records import CACHED_PRICE, OUTPUT_PRICE

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
        return "-" if self.gain is None else _conclude(self.gain, self.p_value)


class ItemUplift(msgspec.Struct, frozen=True):
    """The value of one learned item: success with everything minus success without this item."""

    item: ContextItem
    gain: Interval
    p_value: float
    runs: int

    @property
    def finding(self) -> str:
        """The conclusion about the item: helps, hurts or no evidence."""
        return _conclude(self.gain, self.p_value)


def summarise_arms(outcomes: Sequence[TaskOutcome]) -> list[ArmResult]:
    """Summarise every arm, in the order of first appearance."""
    arms = list(dict.fromkeys(outcome.arm for outcome in outcomes))
    off = [outcome for outcome in outcomes if outcome.arm == "off"]
    return [_result(arm, [outcome for outcome in outcomes if outcome.arm == arm], off) for arm in arms]


def measure_uplift(
    item: ContextItem, everything: Sequence[TaskOutcome], without: Sequence[TaskOutcome]
) -> ItemUplift:
    """Compare runs with all items against runs without this one."""
    paired_gap = _compare_success(everything, without)
    return ItemUplift(item, paired_gap.gap, paired_gap.p_value, len({outcome.repeat for outcome in without}))


def _conclude(gain: Interval, p_value: float | None) -> str:
    """Return the conclusion from an interval. The p-value guards against few tasks that agree by luck."""
    if gain.spans_zero or p_value is None or p_value > SIGNIFICANT:
        return "no evidence"
    return "helps" if gain.low > 0 else "hurts"


def _result(arm: str, mine: list[TaskOutcome], off: list[TaskOutcome]) -> ArmResult:
    succeeded = sum(outcome.ok for outcome in mine)
    usage = [used for outcome in mine for used in (outcome.usage, outcome.review_usage)]
    cost = sum(
        (used.prompt_tokens - used.cache_read_tokens)
        + CACHED_PRICE * used.cache_read_tokens
        + OUTPUT_PRICE * used.output_tokens
        for used in usage
    )
    prices = [used.cost_usd for used in usage]
    usd = None if None in prices else sum(price or 0.0 for price in prices)
    paired_gap = _compare_success(mine, off) if off and arm != "off" else None
    return ArmResult(
        arm=arm,
        runs=len({outcome.repeat for outcome in mine}),
        tasks=len(mine),
        succeeded=succeeded,
        rate=wilson(succeeded, len(mine)),
        gain=paired_gap.gap if paired_gap else None,
        p_value=paired_gap.p_value if paired_gap else None,
        tokens_per_task=sum(used.prompt_tokens + used.output_tokens for used in usage) / len(mine),
        cost_per_success=cost / succeeded if succeeded else None,
        usd_per_success=usd / succeeded if usd is not None and succeeded else None,
        steps_per_task=fmean(outcome.steps for outcome in mine),
        failed_calls_per_task=fmean(outcome.failed_calls for outcome in mine),
        leaks=sum(bool(outcome.leaked) for outcome in mine),
    )


def _compare_success(mine: Sequence[TaskOutcome], theirs: Sequence[TaskOutcome]) -> PairedGap:
    return compare(mine, theirs, lambda outcome: float(outcome.ok))


def format_report(
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
    for row in arms:
        gap = row.gain
        gain = "-" if gap is None else gap.format("+.0%")
        lines.append(
            f"| {row.arm} | {row.runs} | {row.succeeded} of {row.tasks}"
            f" [{row.rate.low:.0%}, {row.rate.high:.0%}] | {gain} |"
            f" {'-' if row.p_value is None else f'{row.p_value:.3f}'} | {row.finding} |"
            f" {row.tokens_per_task:,.0f} | {_number(row.cost_per_success)} |"
            f" {'?' if row.usd_per_success is None else f'{row.usd_per_success:.4f}'} |"
            f" {row.steps_per_task:.1f} | {row.failed_calls_per_task:.1f} | {row.leaks} |"
        )
    lines += ["", "## Task by task", "", "| task | " + " | ".join(row.arm for row in arms) + " |"]
    lines.append("|---|" + "---|" * len(arms))
    for name in dict.fromkeys(row.task for row in outcomes):
        cells = [[o.ok for o in outcomes if o.task == name and o.arm == row.arm] for row in arms]
        lines.append(f"| {name} | " + " | ".join(f"{sum(c)} of {len(c)}" for c in cells) + " |")
    if uplifts:
        lines += ["", "## Item by item", "", "Success with everything minus success without this one alone."]
        lines += ["", "| item | gain | finding |", "|---|---|---|"]
        for item_uplift in uplifts:
            gap = item_uplift.gain
            text = (item_uplift.item.label or item_uplift.item.name).replace("|", "\\|")
            gain = gap.format("+.0%")
            lines.append(f"| {text} | {gain} | {item_uplift.finding} |")
    leaks = [
        f"- {row.arm} {row.repeat}, {row.task}: {', '.join(row.leaked)}" for row in outcomes if row.leaked
    ]
    lines += ["", "## Leaks", "", *(leaks or ["None: no task's secret stood in another task's request."])]
    lines += ["", "## What this says", "", *_CLAIM.splitlines()]
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
