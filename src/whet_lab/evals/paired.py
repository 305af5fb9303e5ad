"""Compares one arm with another on the same tasks, run by run.

Tasks are the unit of the interval: several runs of one task are not independent, so their differences are
averaged first. With few tasks, an interval clear of zero is often luck and counts as no evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Protocol, TypeVar

import msgspec

from whet.stats import Interval, mcnemar, typical_mean

MIN_TASKS = 6
"""With fewer tasks, all of them agree by chance with a probability above 1 in 20."""


class PairedRun(Protocol):
    """One run of a task under one arm."""

    @property
    def task(self) -> str:
        """The task's name."""
        ...

    @property
    def repeat(self) -> int:
        """The number of this run of the task."""
        ...

    @property
    def ok(self) -> bool:
        """Whether the verifier accepted the result."""
        ...


R = TypeVar("R", bound=PairedRun)


class PairedGap(msgspec.Struct, frozen=True):
    """The result of a comparison.

    `gap` is the first arm's score minus the other's, over the `tasks` tasks in which both have one, of
    `pairs` pairs. `only_first` and `only_other` count the pairs that one arm alone won; `p_value` is
    McNemar's of those.
    """

    gap: Interval
    tasks: int
    pairs: int
    only_first: int
    only_other: int
    p_value: float

    @property
    def is_clear(self) -> bool:
        """Whether the gap is evidence."""
        return self.tasks >= MIN_TASKS and not self.gap.spans_zero


def compare(first: Sequence[R], other: Sequence[R], score: Callable[[R], float | None]) -> PairedGap:
    """Compare two arms on the runs that both have. A pair with a missing score counts only for success."""
    other_runs = {(run.task, run.repeat): run for run in other}
    pairs = [(run, other_runs[run.task, run.repeat]) for run in first if (run.task, run.repeat) in other_runs]
    by_task: dict[str, list[float]] = {}
    for first_run, other_run in pairs:
        first_score, other_score = score(first_run), score(other_run)
        if first_score is not None and other_score is not None:
            by_task.setdefault(first_run.task, []).append(first_score - other_score)
    only_first = sum(first_run.ok and not other_run.ok for first_run, other_run in pairs)
    only_other = sum(other_run.ok and not first_run.ok for first_run, other_run in pairs)
    return PairedGap(
        gap=typical_mean([fmean(gaps) for gaps in by_task.values()]),
        tasks=len(by_task),
        pairs=len(pairs),
        only_first=only_first,
        only_other=only_other,
        p_value=mcnemar(only_first, only_other),
    )
