"""Summarises runs of worlds: rates with intervals, pairs against no memory, and where Whet loses.

Pure functions on records. Seeds are the unit of every interval: two tasks of one world are not
independent. Pairs are the same session of the same seed under two arms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

import msgspec

from whet.stats import Interval, mcnemar, typical_mean
from whet_lab.evals.records import Funnel, TaskRecord, WorldResult

STAGES = (("first third", 0.0, 1 / 3), ("second third", 1 / 3, 2 / 3), ("last third", 2 / 3, 1.0))
LENGTHS = (10, 20, 40, 120, 300)
"""Numbers of sessions over whose tasks the tokens are averaged, for runs of that length."""


class HalfLife(msgspec.Struct, frozen=True):
    """How long old values of changed facts stayed stored.

    `gone` is the number of facts whose old value was replaced, `sessions` the median number of the owner's
    sessions until then (None if at least half were never replaced).
    """

    facts: int
    gone: int
    sessions: float | None


class ArmSums(msgspec.Struct, frozen=True):
    """One arm over all seeds.

    Rates are shares of tasks. `knowable` is, for each stage, the share of tasks whose facts had all been
    shown before; the others succeed by luck. `gain`, `harm_*` and the p-value are against the arm off,
    `regret` against the oracle. `tokens_by_length` has the tokens a task over the first so many sessions.
    Costs are in units of an uncached prompt token, reviews included.
    """

    arm: str
    seeds: int
    tasks: int
    first_try: Interval
    in_the_end: Interval
    stages: tuple[float, ...]
    knowable: tuple[float, ...]
    curve: tuple[float, ...]
    gain: Interval | None
    p_value: float | None
    harm_first: Interval | None
    harm_end: Interval | None
    regret: Interval | None
    funnel: Funnel
    reached: Interval
    leaks: int
    poisoned: int
    planted: int
    false_kept: int
    half_life: HalfLife
    tokens_per_task: float
    tokens_by_length: dict[int, float]
    review_share: float
    review_cost_share: float
    cached_share: float
    cost_per_success: float
    reviews: int
    requests: int
    wall_s: float


def summarise(runs: Sequence[WorldResult]) -> list[ArmSums]:
    """Summarise every arm, in the order of the runs."""
    by_arm: dict[str, dict[int, WorldResult]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, {})[run.seed] = run
    off, oracle = by_arm.get("off", {}), by_arm.get("oracle", {})
    return [_sum_up(arm, list(runs_by_seed.values()), off, oracle) for arm, runs_by_seed in by_arm.items()]


def _sum_up(
    arm: str, runs: list[WorldResult], off: dict[int, WorldResult], oracle: dict[int, WorldResult]
) -> ArmSums:
    against = [(run, off[run.seed]) for run in runs if run.seed in off and arm != "off"]
    ideal = [(run, oracle[run.seed]) for run in runs if run.seed in oracle and arm != "oracle"]
    tasks = [task for run in runs for task in run.tasks]
    successes = sum(task.first_ok for task in tasks)
    used = [usage for run in runs for usage in (run.spent.tasks, run.spent.reviews)]
    prompt = sum(usage.prompt_tokens for usage in used)
    tokens = sum(run.spent.tokens for run in runs)
    reviewing = sum(run.spent.reviews.prompt_tokens + run.spent.reviews.output_tokens for run in runs)
    return ArmSums(
        arm=arm,
        seeds=len(runs),
        tasks=len(tasks),
        first_try=_rate(runs, lambda task: task.first_ok),
        in_the_end=_rate(runs, lambda task: task.ok),
        stages=tuple(_stage(runs, low, high, lambda task: task.first_ok) for _, low, high in STAGES),
        knowable=tuple(_stage(runs, low, high, _is_knowable) for _, low, high in STAGES),
        curve=_curve(runs),
        gain=_paired_gap(against, lambda a, b: a.first_ok - b.first_ok),
        p_value=_mcnemar(against),
        harm_first=_paired_gap(against, lambda a, b: b.first_ok and not a.first_ok),
        harm_end=_paired_gap(against, lambda a, b: b.ok and not a.ok),
        regret=_paired_gap(ideal, lambda a, b: b.first_ok - a.first_ok),
        funnel=_funnel(run.funnel for run in runs),
        reached=typical_mean([_share(run.funnel.reached, run.funnel.shown) for run in runs]),
        leaks=sum(run.leaks for run in runs),
        poisoned=sum(run.poisoned for run in runs),
        planted=sum(run.planted for run in runs),
        false_kept=sum(run.false_kept for run in runs),
        half_life=_half_life(runs),
        tokens_per_task=_share(tokens, len(tasks)),
        tokens_by_length=_tokens_by_length(runs),
        review_share=_share(reviewing, tokens),
        review_cost_share=_share(
            sum(run.spent.review_cost for run in runs), sum(run.spent.cost for run in runs)
        ),
        cached_share=_share(sum(usage.cache_read_tokens for usage in used), prompt),
        cost_per_success=_share(sum(run.spent.cost for run in runs), successes),
        reviews=sum(run.spent.review_count for run in runs),
        requests=sum(run.requests for run in runs),
        wall_s=sum(run.wall_s for run in runs),
    )


def find_losses(sums: Sequence[ArmSums]) -> list[str]:
    """Return one line for each measure on which another arm, except the oracle, does better than Whet."""
    by_name = {row.arm: row for row in sums}
    ours = by_name.get("ours")
    if ours is None:
        return []
    lines: list[str] = []
    for other in sums:
        if other.arm in ("ours", "oracle"):
            continue
        for (stage, _, _), a, b in zip(STAGES, ours.stages, other.stages, strict=True):
            if b > a:
                lines.append(
                    f"{other.arm} is right at the first try more often in the {stage}: {b:.0%} to {a:.0%}"
                )
        ends = (-ours.in_the_end.estimate, -other.in_the_end.estimate)
        reach = (-ours.reached.estimate, -other.reached.estimate)
        for claim, a, b, form in (
            ("finishes more tasks in the end", *ends, "{:.1%}"),
            ("spends fewer tokens on a task", ours.tokens_per_task, other.tokens_per_task, "{:,.0f}"),
            ("pays less for a success", ours.cost_per_success, other.cost_per_success, "{:,.0f}"),
            ("brings more facts to the point of use", *reach, "{:.1%}"),
            ("keeps fewer false claims", ours.false_kept, other.false_kept, "{:,.0f}"),
        ):
            if b < a and not (claim.startswith("pays") and not b):
                lines.append(f"{other.arm} {claim}: {form.format(abs(b))} to {form.format(abs(a))}")
    return lines


def _rate(runs: Sequence[WorldResult], is_hit: Callable[[TaskRecord], bool]) -> Interval:
    return typical_mean([fmean([float(is_hit(task)) for task in run.tasks]) for run in runs])


def _paired_gap(
    pairs: Sequence[tuple[WorldResult, WorldResult]], gap: Callable[[TaskRecord, TaskRecord], float]
) -> Interval | None:
    if not pairs:
        return None
    return typical_mean(
        [fmean([float(gap(a, b)) for a, b in zip(x.tasks, y.tasks, strict=True)]) for x, y in pairs]
    )


def _mcnemar(pairs: Sequence[tuple[WorldResult, WorldResult]]) -> float | None:
    both = [(a.first_ok, b.first_ok) for x, y in pairs for a, b in zip(x.tasks, y.tasks, strict=True)]
    return mcnemar(both.count((True, False)), both.count((False, True))) if both else None


def _stage(
    runs: Sequence[WorldResult], low: float, high: float, is_hit: Callable[[TaskRecord], bool]
) -> float:
    last = _last_number(runs)
    tasks = [task for run in runs for task in run.tasks if low * last < task.number <= high * last + 1e-9]
    return fmean(map(is_hit, tasks)) if tasks else 0.0


def _is_knowable(task: TaskRecord) -> bool:
    return all(need.learnable for need in task.needs)


def _curve(runs: Sequence[WorldResult]) -> tuple[float, ...]:
    """Return the share that is right at the first try for each session number, over all seeds."""
    shares: list[float] = []
    for number in range(1, _last_number(runs) + 1):
        hits = [task.first_ok for run in runs for task in run.tasks if task.number == number]
        shares.append(round(fmean(hits), 4) if hits else 0.0)
    return tuple(shares)


def _tokens_by_length(runs: Sequence[WorldResult]) -> dict[int, float]:
    """Return the tokens a task over the first sessions of every run, for each length that the runs have."""
    last, tasks = _last_number(runs), [task for run in runs for task in run.tasks]
    lengths = sorted({*(length for length in LENGTHS if length <= last), last})
    return {n: fmean([task.tokens for task in tasks if task.number <= n]) for n in lengths if n}


def _last_number(runs: Sequence[WorldResult]) -> int:
    return max((task.number for run in runs for task in run.tasks), default=0)


def _funnel(funnels: Iterable[Funnel]) -> Funnel:
    rows = [msgspec.structs.astuple(funnel) for funnel in funnels]
    return Funnel(*(sum(column) for column in zip(*rows, strict=True))) if rows else Funnel(0, 0, 0, 0)


def _half_life(runs: Sequence[WorldResult]) -> HalfLife:
    stale_facts = [fact for run in runs for fact in run.stale]
    # A value that was still there at the end counts as longer than all that were replaced.
    lasted = sorted(fact.sessions if fact.gone else float("inf") for fact in stale_facts)
    middle = median(lasted) if lasted else None
    gone = sum(fact.gone for fact in stale_facts)
    return HalfLife(len(stale_facts), gone, None if middle in (None, float("inf")) else middle)


def _share(part: float, total: float) -> float:
    return part / total if total else 0.0
