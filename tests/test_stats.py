"""Intervals against published figures, and the cases that say nothing."""

from __future__ import annotations

import math

import pytest

from whet.stats import mcnemar, rate_difference, typical_mean, wilson


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_newcombes_published_limits(hits: int, total: int, low: float, high: float) -> None:
    interval = wilson(hits, total)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_an_interval_is_printed_only_if_there_is_one() -> None:
    assert typical_mean([0.25]).format("+.1%") == "+25.0%" and typical_mean([]).format(".3f") == "0.000"
    assert wilson(81, 263).format(".1%") == "30.8% [25.5%, 36.6%]"


@pytest.mark.parametrize(
    ("a", "of_a", "b", "of_b", "low", "high"),
    [(56, 70, 48, 80, 0.0524, 0.3339), (9, 10, 3, 10, 0.1705, 0.8090), (10, 10, 0, 10, 0.6075, 1.0)],
)
def test_a_difference_gives_newcombes_published_limits(
    a: int, of_a: int, b: int, of_b: int, low: float, high: float
) -> None:
    interval = rate_difference(a, of_a, b, of_b)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_nothing_counted_says_nothing() -> None:
    assert wilson(0, 0).high == 1.0
    assert rate_difference(0, 0, 3, 4).spans_zero
    assert typical_mean([]).low == -math.inf
    assert typical_mean([1.0]).spans_zero
    assert mcnemar(0, 0) == 1.0


def test_a_certain_rate_stays_within_bounds() -> None:
    assert wilson(0, 5).low == 0.0
    assert wilson(5, 5).high == 1.0
    with pytest.raises(ValueError, match="not a rate"):
        wilson(6, 5)


def test_the_bootstrap_is_the_same_for_the_same_seed_and_holds_the_mean() -> None:
    values = [0.0, 1.0] * 50
    interval = typical_mean(values)
    assert interval == typical_mean(values)
    assert interval.low < 0.5 < interval.high
    # Of 5 % it uses 4.25: 2 x 2.028 standard errors of .05 each, and not 2 x 1.96.
    assert interval.high - interval.low == pytest.approx(0.203, abs=0.03)
    assert not typical_mean([1.0, 2.0, 1.5, 1.2]).spans_zero


def test_mcnemar_is_the_binomial_tail() -> None:
    assert mcnemar(0, 5) == pytest.approx(2 / 32)
    assert mcnemar(1, 9) == pytest.approx(2 * 11 / 1024)
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(3, 2000) < 1e-100
