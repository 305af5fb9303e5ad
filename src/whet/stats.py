"""Intervals and tests for small samples: what may be said of a rate, a difference, a paired comparison.

Pure functions on counts and lists; randomness comes in as a seed, so that the same data gives the same
interval. It does not know what was counted. Sources: Wilson (1927) for one rate; Newcombe (1998), method
10, for the difference of two; McNemar's exact test on the discordant pairs; the percentile bootstrap.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """An estimate and the range that holds it at the asked confidence."""

    estimate: float
    low: float
    high: float

    @property
    def spans_zero(self) -> bool:
        """Whether no difference is among the plausible values."""
        return self.low <= 0.0 <= self.high


def wilson(hits: int, total: int, confidence: float = 0.95) -> Interval:
    """Give the rate `hits / total` and its score interval; 0 of 0 says nothing (0 to 1, estimate 0)."""
    if not 0 <= hits <= total:
        raise ValueError(f"{hits} of {total} is no rate")
    if total == 0:
        return Interval(0.0, 0.0, 1.0)
    z = _z(confidence)
    rate = hits / total
    spread = 1.0 + z * z / total
    centre = (rate + z * z / (2 * total)) / spread
    half = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total)) / spread
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == total else min(1.0, centre + half)
    return Interval(rate, low, high)


def rate_difference(
    hits_a: int, total_a: int, hits_b: int, total_b: int, confidence: float = 0.95
) -> Interval:
    """Give rate a minus rate b for two independent samples (Newcombe's hybrid score interval)."""
    if total_a == 0 or total_b == 0:
        return Interval(0.0, -1.0, 1.0)
    a, b = wilson(hits_a, total_a, confidence), wilson(hits_b, total_b, confidence)
    gap = a.estimate - b.estimate
    low = gap - math.hypot(a.estimate - a.low, b.high - b.estimate)
    high = gap + math.hypot(a.high - a.estimate, b.estimate - b.low)
    return Interval(gap, low, high)


def bootstrap_mean(
    values: Sequence[float], confidence: float = 0.95, *, rounds: int = 2_000, seed: int = 0
) -> Interval:
    """Give the mean and its percentile bootstrap interval; pass differences for a paired comparison.

    No values say nothing (minus to plus infinity); one value has no spread and gives the same.
    """
    if len(values) < 2:
        return Interval(values[0] if values else 0.0, -math.inf, math.inf)
    rng = random.Random(seed)
    size = len(values)
    means = sorted(math.fsum(rng.choices(values, k=size)) / size for _ in range(rounds))
    cut = (1.0 - confidence) / 2
    low = means[int(cut * (rounds - 1))]
    high = means[math.ceil((1.0 - cut) * (rounds - 1))]
    return Interval(math.fsum(values) / size, low, high)


def mcnemar(only_a: int, only_b: int) -> float:
    """Give the two-sided exact p-value of a paired yes/no comparison.

    `only_a` pairs were won by a alone, `only_b` by b alone; ties say nothing. 1.0 without such pairs.
    """
    total = only_a + only_b
    if total == 0:
        return 1.0
    fewer = min(only_a, only_b)
    # In log space: 2 ** 1100 is too large for a float.
    logs = [
        math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) for k in range(fewer + 1)
    ]
    tail = math.fsum(math.exp(log - total * math.log(2)) for log in logs)
    return min(1.0, 2 * tail)


def _z(confidence: float) -> float:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is between 0 and 1, not {confidence}")
    if confidence == 0.95:
        return 1.959963984540054  # NormalDist().inv_cdf(0.975)
    from statistics import NormalDist  # noqa: PLC0415 - it costs more to import than a turn takes

    return NormalDist().inv_cdf((1 + confidence) / 2)
