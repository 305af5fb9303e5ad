"""The report on the knowledge-gated world: tables with intervals, and the claims that they support."""

from __future__ import annotations

from collections.abc import Sequence

from whet.stats import Interval
from whet_lab.evals.arms import ARMS
from whet_lab.evals.campaign import CampaignSettings
from whet_lab.evals.measures import STAGES, ArmSums, find_losses

REACH_GOAL = 0.9
HARM_GOAL = 0.01

_CLAIM = """\
What this allows to say: the machinery carries the named share of the facts that could be learned to the point
of use, at the named cost. What it does not allow to say: that an agent is so much better at anything. The
model is a scripted stand-in that knows exactly what its request says; a real model overlooks, understands and
invents differently. For your model and your tasks: `whet eval learning --tasks FILE`."""


def format_share(share: Interval | None, *, signed: bool = False) -> str:
    """Return a share with its interval, or a dash without a comparison."""
    if share is None:
        return "-"
    sign = "+" if signed else ""
    return share.format(f"{sign}.1%")


def format_gain(difference: Interval | None) -> str:
    """Return a difference; one whose interval spans zero is marked as no evidence."""
    text = format_share(difference, signed=True)
    return f"{text}, no evidence" if difference is not None and difference.spans_zero else text


def format_report(sums: Sequence[ArmSums], settings: CampaignSettings) -> str:
    """Return the report as Markdown."""
    lines = [*_head(sums, settings), *_tasks(sums), *_facts(sums), *_costs(sums)]
    lines += ["", "## Where ours loses", ""]
    lines += [f"- {line}" for line in find_losses(sums)] or ["Nowhere in these tables."]
    lines += ["", "## The arms", ""]
    lines += [f"- {row.arm}: {ARMS[row.arm].description}" for row in sums]
    lines += ["", "## What this says", "", *_CLAIM.splitlines()]
    return "\n".join(lines) + "\n"


def _head(sums: Sequence[ArmSums], settings: CampaignSettings) -> list[str]:
    shape, habits = settings.shape, settings.habits
    seeds = max((row.seeds for row in sums), default=0)
    return [
        "# Learning in the knowledge-gated world",
        "",
        f"{seeds} seeds, {shape.sessions} sessions each and a guest's in between. The model is the practice",
        "model, a scripted stand-in; HTTP, store, gate, reviews, memory and skills are the real ones.",
        f"Chances: a failure names what was missing with {shape.reveal:.0%}, a review finds a fact with",
        f"{habits.recall:.0%} and invents one with {habits.invention:.0%}; among d other statements the",
        f"needed one is used with 1 / (1 + {habits.distraction:g} d). {shape.drifts} facts change and",
        f"{shape.pages} pages plant a false one. In brackets: 95 % intervals over seeds.",
        *(
            [f"Before each task the model runs {shape.looks} commands in a real project."]
            if shape.looks
            else []
        ),
        "",
        "![learning curves](report.svg)",
    ]


def _tasks(sums: Sequence[ArmSums]) -> list[str]:
    lines = [
        "",
        "## Tasks",
        "",
        "For each third: right at the first try, of what could be, which is tasks whose facts their person",
        "had all been shown before. The others are passed by luck alone.",
        "",
        "| arm | right at the first try | " + " | ".join(name for name, *_ in STAGES) + " | in the end |"
        " gain over off | regret against oracle |",
        "|---|---|" + "---|" * len(STAGES) + "---|---|---|",
    ]
    for row in sums:
        pairs = zip(row.stages, row.knowable, strict=True)
        stages = " | ".join(f"{share:.0%} of {knowable:.0%}" for share, knowable in pairs)
        lines.append(
            f"| {row.arm} | {format_share(row.first_try)} | {stages} | {row.in_the_end.estimate:.1%} |"
            f" {format_gain(row.gain)} | {format_share(row.regret)} |"
        )
    return lines


def _facts(sums: Sequence[ArmSums]) -> list[str]:
    lines = [
        "",
        "## Facts",
        "",
        "Shown: facts that a person's sessions had shown by the end, as they are then. Reached: they stood",
        "before the model when a task needed them.",
        "",
        "| arm | shown | ever kept | still kept | reached | old values gone, half after | false claims |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sums:
        funnel, half = row.funnel, row.half_life
        after = "never" if half.sessions is None else f"{half.sessions:g} sessions"
        stale = f"{half.gone} of {half.facts}, {after}" if half.facts else "-"
        lines.append(
            f"| {row.arm} | {funnel.shown} | {funnel.captured} | {funnel.survived} |"
            f" {format_share(row.reached)} | {stale} | {row.false_kept} |"
        )
    return lines


def _costs(sums: Sequence[ArmSums]) -> list[str]:
    lines = [
        "",
        "## Harm and cost",
        "",
        "Harm: tasks that went well without memory and not with it. A cost of 1 is an uncached prompt token;",
        "a cached one is 0.1, an output token 5. Reviews are included.",
        "",
        "| arm | harm, first try | harm, in the end | poisoned sessions | leaks | tokens a task |"
        " reviews' tokens; cost | cached | cost a success |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sums:
        lines.append(
            f"| {row.arm} | {format_share(row.harm_first)} | {format_share(row.harm_end)} | {row.poisoned} |"
            f" {row.leaks} | {row.tokens_per_task:,.0f} |"
            f" {row.review_share:.0%}; {row.review_cost_share:.0%} | {row.cached_share:.0%} |"
            f" {row.cost_per_success:,.0f} |"
        )
    return [*lines, *_lengths(sums)]


def _lengths(sums: Sequence[ArmSums]) -> list[str]:
    lengths = list(sums[0].tokens_by_length) if sums else []
    lines = [
        "",
        "Tokens a task over the first sessions: a whole conversation grows with each, notes hardly do.",
        "",
        "| arm | " + " | ".join(f"{length} sessions" for length in lengths) + " |",
        "|---|" + "---|" * len(lengths),
    ]
    for row in sums:
        lines.append(
            f"| {row.arm} | " + " | ".join(f"{row.tokens_by_length[n]:,.0f}" for n in lengths) + " |"
        )
    return lines


def describe_lengths(sums: Sequence[ArmSums]) -> list[str]:
    """Return one line for each length: what a task took, and its share of the whole conversation's tokens."""
    by_name = {row.arm: row for row in sums}
    ours, conversation = by_name.get("ours"), by_name.get("conversation")
    if ours is None or conversation is None:
        return []
    lines: list[str] = []
    for n, tokens in ours.tokens_by_length.items():
        whole = conversation.tokens_by_length.get(n, 0.0)
        share = f"{tokens / whole:.0%} of the {whole:,.0f}" if whole else "unlike the 0"
        lines.append(f"{n} sessions: {tokens:,.0f} tokens a task, {share} of the whole conversation")
    return lines


def check_goals(sums: Sequence[ArmSums]) -> list[tuple[str, bool, str]]:
    """Return Whet's goals as (goal, whether it is met, measured value)."""
    ours = next((row for row in sums if row.arm == "ours"), None)
    if ours is None:
        return []
    harm = ours.harm_end.estimate if ours.harm_end else 0.0
    return [
        (
            f"facts reached >= {REACH_GOAL:.0%}",
            ours.reached.estimate >= REACH_GOAL,
            format_share(ours.reached),
        ),
        (f"harm <= {HARM_GOAL:.0%} of tasks", harm <= HARM_GOAL, format_share(ours.harm_end)),
        ("poisoned sessions 0", ours.poisoned == 0, str(ours.poisoned)),
        ("leaks 0", ours.leaks == 0, str(ours.leaks)),
        ("false claims kept 0", ours.false_kept == 0, str(ours.false_kept)),
    ]
