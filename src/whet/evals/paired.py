"""One arm against another on the same tasks, run by run.

Tasks are the unit of the interval: several runs of one task are not independent, so their differences are
averaged first. With few tasks an interval clear of zero is luck as often as not; that is no evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Protocol, TypeVar

import msgspec

from whet.stats import Interval, mcnemar, typical_mean

LEAST_TASKS = 6
"""Below it, that all tasks point the same way is likelier than 1 in 20 where there is nothing."""


class PairedRun(Protocol):
    """One run of a task under one arm."""

    @property
    def task(self) -> str:
        """The task's name."""
        ...

    @property
    def repeat(self) -> int:
        """Which of its runs."""
        ...

    @property
    def ok(self) -> bool:
        """Whether the verifier was content."""
        ...


R = TypeVar("R", bound=PairedRun)


class PairedGap(msgspec.Struct, frozen=True):
    """What a comparison gave: `gap` is the first arm's score minus the other's, over the `tasks` tasks
    in which both have one, of `pairs` pairs; `only_first` and `only_other` pairs were won by one alone,
    `p_value` is McNemar's of those."""

    gap: Interval
    tasks: int
    pairs: int
    only_first: int
    only_other: int
    p_value: float

    @property
    def is_clear(self) -> bool:
        """Whether the gap is evidence at all."""
        return self.tasks >= LEAST_TASKS and not self.gap.spans_zero


def compare(first: Sequence[R], other: Sequence[R], score: Callable[[R], float | None]) -> PairedGap:
    """Compare two arms on the runs that both have; a pair of which one has no score counts for success
    only."""
    theirs = {(one.task, one.repeat): one for one in other}
    pairs = [(one, theirs[one.task, one.repeat]) for one in first if (one.task, one.repeat) in theirs]
    by_task: dict[str, list[float]] = {}
    for a, b in pairs:
        mine, other_score = score(a), score(b)
        if mine is not None and other_score is not None:
            by_task.setdefault(a.task, []).append(mine - other_score)
    only_first = sum(a.ok and not b.ok for a, b in pairs)
    only_other = sum(b.ok and not a.ok for a, b in pairs)
    return PairedGap(
        gap=typical_mean([fmean(gaps) for gaps in by_task.values()]),
        tasks=len(by_task),
        pairs=len(pairs),
        only_first=only_first,
        only_other=only_other,
        p_value=mcnemar(only_first, only_other),
    )
