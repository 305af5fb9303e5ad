"""Weigh the tokens of reviews against those of the day, in uncached prompt tokens.

A review's prompt is the conversation's own, which the server mostly has in its cache. So tokens are weighed
by their cost: a cached one counts a tenth, one of an answer five, or as the model's prices say. If a server
reports no cached tokens, all tokens count as uncached. Then, or if the whole conversation costs more than is
left, a review reads an excerpt that fits the rest. When a review is due is decided in `triggers.py`.
"""

from __future__ import annotations

import sys

import msgspec

from whet.config.schema import ReviewSettings
from whet.contract.messages import Usage
from whet.contract.protocols import ModelInfo
from whet.store.reviews import DaySpending, DayUsage

# A review usually takes this many model calls, each as large as the turn's last one. A brief one takes one:
# it ends when all of its writes were taken.
EXPECTED_CALLS = 3
# The tokens that a review adds to the conversation (instructions, results) and that it writes.
_ADDED_TOKENS = 1_370
_WRITTEN_TOKENS = 350
# The same of a brief review.
_BRIEF_TOKENS = 870
_BRIEF_WRITTEN_TOKENS = 250
# The instructions and tools of a review that reads an excerpt, and the shortest excerpt that is of use.
EXCERPT_HEAD_TOKENS = 1_570
_MIN_EXCERPT_TOKENS = 1_000
# The tokens of an excerpt of another short conversation, and the maximum of all of them.
_OTHER_TOKENS = 200
OTHERS_TOKENS = 4_000
# The first review of a day that a correction triggers may weigh this many times its forecast.
_FIRST_TIMES = 2


class Weights(msgspec.Struct, frozen=True):
    """The weights of tokens, relative to an uncached token of a prompt."""

    cache_read: float = 0.1
    cache_write: float = 1.25
    output: float = 5.0


class Forecast(msgspec.Struct, frozen=True):
    """The expected weight of a review, whether it is brief, and the maximum tokens of the excerpt that it
    reads (0: it reads the whole conversation)."""

    weight: int
    is_brief: bool = False
    excerpt_tokens: int = 0

    @property
    def first_of_day(self) -> int:
        """The maximum weight of the first review of a day that a correction triggered."""
        return self.weight * _FIRST_TIMES


def weights_of(info: ModelInfo) -> Weights:
    """Return the weights by a model's prices, or the usual ones if a price is unknown or 0."""
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
    """Return the weight of these tokens."""
    special = usage.cache_read_tokens + usage.cache_write_tokens + usage.output_tokens
    weighed = (
        usage.cache_read_tokens * weights.cache_read
        + usage.cache_write_tokens * weights.cache_write
        + usage.output_tokens * weights.output
    )
    return round(max(usage.total_tokens - special, 0) + weighed)


def weigh_day(day: DayUsage, weights: Weights) -> DaySpending:
    """Return the weights of the day's reviews and of everything else."""
    return DaySpending(weigh(day.reviews, weights), weigh(day.others, weights), None)


def weigh_prompt(tokens: int, weights: Weights, *, is_cached: bool) -> int:
    """Return the weight of a prompt. `is_cached`: the server has it in its cache."""
    return round(tokens * weights.cache_read) if is_cached else tokens


def find_room(settings: ReviewSettings, spent: DaySpending) -> int:
    """Return the weight that is left for reviews in their share of the day, whose cost they add to."""
    if settings.share >= 1:
        return sys.maxsize
    reviewed = spent.review_tokens
    of_cost = (settings.share * (spent.other_tokens + reviewed) - reviewed) / (1 - settings.share)
    return int(max(of_cost, settings.share * settings.free_tokens - reviewed))


def forecast(
    context_tokens: int,
    limits: tuple[int, int],
    weights: Weights,
    *,
    is_cached: bool,
    room: int | None = None,
) -> Forecast | None:
    """Return the cheapest review of a conversation of that size that fits `room` (weight), or None.

    It reads the whole conversation or, if that costs more, an excerpt, which no cache has. If neither fits, a
    brief review of the cached conversation or of a shorter excerpt may. `limits`: the maximum tokens of an
    excerpt, and the number of other short conversations to read.
    """
    most_excerpt, others = limits
    prompt = weigh_prompt(context_tokens, weights, is_cached=is_cached)
    added = min(others * _OTHER_TOKENS, OTHERS_TOKENS)
    written = round(_BRIEF_WRITTEN_TOKENS * weights.output)
    whole = EXPECTED_CALLS * prompt + _ADDED_TOKENS + added + round(_WRITTEN_TOKENS * weights.output)
    brief = prompt + _BRIEF_TOKENS + added + written
    head, longest = EXCERPT_HEAD_TOKENS + written, min(context_tokens, most_excerpt)
    most = sys.maxsize if room is None else room
    if whole <= min(longest + head, most):
        return Forecast(whole)
    if is_cached and brief <= min(longest + head, most):
        return Forecast(brief, is_brief=True)
    size = min(longest, most - head)
    if size < min(longest, _MIN_EXCERPT_TOKENS):
        return None
    return Forecast(size + head, is_brief=True, excerpt_tokens=max(size, _MIN_EXCERPT_TOKENS))
