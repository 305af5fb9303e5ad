"""What reviews weigh against a day: tokens at the price of an uncached prompt token.

A review's prompt is the conversation's own, which the server mostly has in its cache. So tokens are weighed
by what they cost: a cached one a tenth, one of an answer five times as much, or as the model's prices say.
It does not know when a review is called for.
"""

from __future__ import annotations

import msgspec

from whet.contract.messages import Usage
from whet.contract.protocols import ModelInfo
from whet.store.reviews import DaySpending, DayUsage

# A review usually takes this many model calls, each as large as the turn's last one.
EXPECTED_CALLS = 3
# What a review adds to the conversation: its instructions and results, and what it writes itself.
_ADDED_TOKENS = 1_500
_WRITTEN_TOKENS = 500
# The first review of a day that a correction calls for may weigh this many times what is expected of it.
_FIRST_TIMES = 2


class Weights(msgspec.Struct, frozen=True):
    """What a token weighs against an uncached one of a prompt."""

    cache_read: float = 0.1
    cache_write: float = 1.25
    output: float = 5.0


class Forecast(msgspec.Struct, frozen=True):
    """What a review is expected to weigh, and whether it is to read an excerpt because that is cheaper."""

    weight: int
    is_excerpt: bool = False

    @property
    def first_of_day(self) -> int:
        """The most that it may weigh as the first one of a day that a correction called for."""
        return self.weight * _FIRST_TIMES


def weights_of(info: ModelInfo) -> Weights:
    """Return the weights that a model's prices give; the usual ones where a price is unknown or nothing."""
    usual, price = Weights(), info.input_usd_per_mtok
    if not price:
        return usual

    def ratio(own: float | None, default: float) -> float:
        return default if own is None else own / price

    return Weights(
        ratio(info.cache_read_usd_per_mtok, usual.cache_read),
        ratio(info.cache_write_usd_per_mtok, usual.cache_write),
        ratio(info.output_usd_per_mtok, usual.output),
    )


def weigh(usage: Usage, weights: Weights) -> int:
    """Return what these tokens weigh."""
    special = usage.cache_read_tokens + usage.cache_write_tokens + usage.output_tokens
    weighed = (
        usage.cache_read_tokens * weights.cache_read
        + usage.cache_write_tokens * weights.cache_write
        + usage.output_tokens * weights.output
    )
    return round(max(usage.total_tokens - special, 0) + weighed)


def weigh_day(day: DayUsage, weights: Weights) -> DaySpending:
    """Return the day's reviews and everything else by weight."""
    return DaySpending(weigh(day.reviews, weights), weigh(day.others, weights), None)


def weigh_prompt(tokens: int, weights: Weights, *, is_cached: bool) -> int:
    """Return what a prompt weighs that the server has in its cache, or has not."""
    return round(tokens * weights.cache_read) if is_cached else tokens


def forecast(context_tokens: int, excerpt_tokens: int, weights: Weights, *, is_cached: bool) -> Forecast:
    """Estimate a review of a conversation of that size, in the cheaper of its two forms: over the whole
    conversation, or over an excerpt of at most `excerpt_tokens`, which no cache has at first."""
    added = round(_ADDED_TOKENS + _WRITTEN_TOKENS * weights.output)
    whole = EXPECTED_CALLS * weigh_prompt(context_tokens, weights, is_cached=is_cached)
    short = min(context_tokens, excerpt_tokens)
    excerpt = short + (EXPECTED_CALLS - 1) * weigh_prompt(short, weights, is_cached=is_cached)
    return Forecast(min(whole, excerpt) + added, excerpt < whole)
