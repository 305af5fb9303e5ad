"""Confidence intervals and tests for small samples: for a rate, a difference and a paired comparison.

All functions are pure; randomness comes from a seed. Sources: Wilson (1927) for one rate; Newcombe (1998),
method 10, for the difference of two; McNemar's exact test on the discordant pairs; Hartigan (1969), typical
values, for the centre of paired differences; Student's t for a ratio over clusters; Waudby-Smith and Ramdas
(2024), betting, for a test that may be repeated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

_BETS = (0.25, 0.9)
_CONFIDENCE = 0.95
_EXACT_UP_TO = 12
# The share of the error level that is used: 4.3 % of 5 %. The rest allows for data that is not quite
# symmetric, and lets a simulation distinguish a kept level from a missed one.
_USED_SHARE = 0.85


class Interval(msgspec.Struct, frozen=True):
    """An estimate, and the range that holds the true value at the requested confidence."""

    estimate: float
    low: float
    high: float

    @property
    def spans_zero(self) -> bool:
        """Whether zero, no difference, is among the plausible values."""
        return self.low <= 0.0 <= self.high

    def format(self, spec: str) -> str:
        """Return the estimate with its range in brackets, or alone if the data gives no range."""
        text = format(self.estimate, spec)
        is_bounded = math.isfinite(self.low) and math.isfinite(self.high)
        return f"{text} [{format(self.low, spec)}, {format(self.high, spec)}]" if is_bounded else text


def wilson(hits: int, total: int, confidence: float = 0.95) -> Interval:
    """Return the rate `hits / total` and its score interval. 0 of 0 is uninformative (0 to 1, estimate 0)."""
    if not 0 <= hits <= total:
        raise ValueError(f"{hits} of {total} is not a rate")
    if total == 0:
        return Interval(0.0, 0.0, 1.0)
    z = _normal_quantile(confidence)
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
    """Return rate a minus rate b for two independent samples (Newcombe's hybrid score interval)."""
    if total_a == 0 or total_b == 0:
        return Interval(0.0, -1.0, 1.0)
    a, b = wilson(hits_a, total_a, confidence), wilson(hits_b, total_b, confidence)
    gap = a.estimate - b.estimate
    low = gap - math.hypot(a.estimate - a.low, b.high - b.estimate)
    high = gap + math.hypot(a.high - a.estimate, b.estimate - b.low)
    return Interval(gap, low, high)


def typical_mean(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Return the mean and a 95 % interval that holds its level in small samples. For a paired comparison pass
    the differences.

    The interval lies between the outer means of subsets. If there is no effect, a paired difference is
    equally likely to have either sign, and zero falls into each gap between those means equally often: a
    claim is wrong less often than it says, with 6 values as with 60. With fewer than 6 values Student's t
    is used. With one value or none the interval is minus to plus infinity.
    """
    size = len(values)
    if size < 2:
        return Interval(values[0] if values else 0.0, -math.inf, math.inf)
    mean = math.fsum(values) / size
    means = _subset_means(values, seed)
    outer = int(_USED_SHARE * (1.0 - _CONFIDENCE) / 2 * (len(means) + 1) + 1e-9)
    if outer < 1:
        spread = math.fsum((value - mean) ** 2 for value in values) / (size - 1)
        half = student_t(size - 1, _CONFIDENCE) * math.sqrt(spread / size)
        return Interval(mean, mean - half, mean + half)
    return Interval(mean, means[outer - 1], means[-outer])


def _subset_means(values: Sequence[float], seed: int) -> list[float]:
    """Return the means of subsets, sorted: of all that are not empty, or of 1,023 that are closed under
    symmetric difference (Hartigan's condition; subsets drawn one by one keep the level on average only)."""
    size = len(values)
    if size <= _EXACT_UP_TO:
        sums, counts = [0.0], [0]
        for value in values:
            sums += [total + value for total in sums]
            counts += [count + 1 for count in counts]
        return sorted(total / count for total, count in zip(sums[1:], counts[1:], strict=True))
    value_of = values.__getitem__
    subsets = _closed_subsets(size, seed)
    return sorted(math.fsum(map(value_of, positions)) / len(positions) for positions in subsets)


@lru_cache(maxsize=8)
def _closed_subsets(size: int, seed: int) -> list[tuple[int, ...]]:
    """Return 1,023 subsets of `size` positions. Every position is in some of them."""
    rng = random.Random(seed)
    while True:
        masks, covered = [0], 0
        while len(masks) < 1024:
            drawn = rng.getrandbits(size)
            if drawn not in masks:
                masks += [mask ^ drawn for mask in masks]
                covered |= drawn
        if covered == (1 << size) - 1:
            return [tuple(position for position in range(size) if mask >> position & 1) for mask in masks[1:]]


def student_t(freedom: int, confidence: float = 0.95) -> float:
    """Return the two-sided quantile of Student's t for `freedom` >= 1 degrees, to three digits."""
    if freedom == 1:
        return math.tan(math.pi * confidence / 2)
    if freedom == 2:
        return confidence * math.sqrt(2 / (1 - confidence * confidence))
    z, n = _normal_quantile(confidence), float(freedom)
    # The expansion of Fisher and Cornish in 1/n, four terms.
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / n**power for power, term in enumerate(terms, 1))


def ratio_difference(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> Interval:
    """Return the rate of `first` minus that of `second`; each pair is (hits, total) of one cluster.

    Observations within a cluster are not independent, so clusters are the unit: the linearised variance of
    each ratio, with Student's t for the smaller sample. If either has fewer than two clusters or no
    observations, the interval is -1 to 1.
    """
    has_totals = any(total for _, total in first) and any(total for _, total in second)
    if min(len(first), len(second)) < 2 or not has_totals:
        return Interval(0.0, -1.0, 1.0)
    (rate_a, spread_a), (rate_b, spread_b) = _ratio(first), _ratio(second)
    half = student_t(min(len(first), len(second)) - 1, _CONFIDENCE) * math.sqrt(spread_a + spread_b)
    gap = rate_a - rate_b
    return Interval(gap, max(-1.0, gap - half), min(1.0, gap + half))


def _ratio(clusters: Sequence[tuple[int, int]]) -> tuple[float, float]:
    hits, total = sum(hit for hit, _ in clusters), sum(count for _, count in clusters)
    rate, size = hits / total, len(clusters)
    spread = math.fsum((hit - rate * count) ** 2 for hit, count in clusters)
    return rate, size / (size - 1) * spread / total**2


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the two-sided exact p-value of a paired yes/no comparison.

    `only_a` pairs were won by a alone, `only_b` by b alone; ties don't count. Returns 1.0 if both are 0.
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


def sum_evidence(gaps: Iterable[float]) -> float:
    """Return the strongest evidence so far that gaps, each at least -1, have a mean above zero.

    If the true mean is at most zero, the evidence exceeds N at any time with a probability of at most 1 / N.
    So it may be tested after every gap (a mixture of bets; Ville's inequality).
    """
    wealths = [1.0] * len(_BETS)
    best = 1.0
    for gap in gaps:
        wealths = [wealth * (1 + bet * gap) for wealth, bet in zip(wealths, _BETS, strict=True)]
        best = max(best, sum(wealths) / len(_BETS))
    return best


def _normal_quantile(confidence: float) -> float:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is between 0 and 1, not {confidence}")
    if confidence == 0.95:
        return 1.959963984540054  # NormalDist().inv_cdf(0.975)
    from statistics import NormalDist  # noqa: PLC0415 - it costs more to import than a turn takes

    return NormalDist().inv_cdf((1 + confidence) / 2)
