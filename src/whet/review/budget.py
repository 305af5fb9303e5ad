"""What reviews may spend in a day, checked before each of their model calls.

A call that is expected to exceed a limit is not made. The share of a day is a share of the cost of its tokens
(`spending.py`). Tokens and money are summed from the stored sessions of reviews, in whichever process they
run. With a limit in USD a model without a known price is not asked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import cast

import msgspec

from whet.clock import Clock
from whet.config.schema import ReviewSettings
from whet.contract.errors import BudgetReached, ConfigError, ProviderError
from whet.contract.messages import Message, Usage
from whet.contract.protocols import ModelInfo, ModelLink, ModelReply, StreamItem
from whet.contract.tools import Tag, tags_of
from whet.review.spending import Weights, find_room, weigh, weigh_day, weigh_prompt, weights_of
from whet.review.triggers import day_start
from whet.store import reviews
from whet.store.database import StateDatabase

WRITES = frozenset[Tag](("notes", "skills"))
"""The tags of the tools that a review learns with; the other tools that it may call have the tag `probe`."""
_ALL_TAKEN = "All lessons were taken."


class Budget:
    """The day's budget of one home."""

    def __init__(self, database: StateDatabase, clock: Clock, settings: ReviewSettings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings

    def tomorrow(self) -> str:
        """Return the ISO time from which there is budget again."""
        return day_start(self._clock.now(), later_days=1)

    async def check_share(self, expected: int, weights: Weights, allowance: int = 0) -> None:
        """Raise BudgetReached if a call of that weight would take reviews past their share of the day, and
        past `allowance`."""
        since = day_start(self._clock.now())
        day = await self._database.read(lambda db: reviews.usage_since(db, since))
        spent = weigh_day(day, weights)
        if spent.review_tokens + expected > allowance and expected > find_room(self._settings, spent):
            raise BudgetReached(
                f"reviews have had their share of today's cost ({day.reviews.total_tokens:,} tokens)",
                hint="review.share",
            )

    async def check(self, expected: Usage) -> None:
        """Raise BudgetReached if a call like `expected` would exceed a limit."""
        settings = self._settings
        if not settings.daily_tokens and not settings.daily_usd:
            return
        since = day_start(self._clock.now())
        spent = await self._database.read(lambda db: reviews.spent_since(db, since))
        if settings.daily_tokens and spent.review_tokens + expected.total_tokens > settings.daily_tokens:
            raise BudgetReached(
                f"today's budget for reviews is used up ({spent.review_tokens:,} of"
                f" {settings.daily_tokens:,} tokens)",
                hint="review.daily_tokens",
            )
        if not settings.daily_usd:
            return
        if spent.usd is None or expected.cost_usd is None:
            raise BudgetReached(
                "the price of the model is not known, so review.daily_usd can't be kept",
                hint="limit reviews by review.daily_tokens and set review.daily_usd to 0",
            )
        if spent.usd + expected.cost_usd > settings.daily_usd:
            raise BudgetReached(
                f"today's budget for reviews is used up (${spent.usd:.2f} of ${settings.daily_usd:.2f})",
                hint="review.daily_usd",
            )


class MeteredLink:
    """A review's link to its model, checked against the budget; it remembers why the last call failed."""

    def __init__(
        self,
        link: ModelLink,
        budget: Budget,
        context_tokens: int,
        *,
        by_hand: bool,
        is_cached: bool = False,
        allowance: int = 0,
    ) -> None:
        """`is_cached`: the server has the first request in its cache; `allowance`: what the day's reviews may
        weigh, beyond their share."""
        self._link = link
        self._budget = budget
        self._by_hand = by_hand
        self._allowance = allowance
        self._weights = weights_of(link.info)
        self._expected_tokens = context_tokens
        self._expected = weigh_prompt(context_tokens, self._weights, is_cached=is_cached)
        self.failure: BudgetReached | ConfigError | ProviderError | None = None
        self.ends_when_taken = False
        """The model is not asked again after a step that only wrote lessons, all of which were taken."""

    @property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return self._link.info

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream as the link does. Raises BudgetReached before anything is sent, ProviderError."""
        if self.ends_when_taken and _are_taken(messages):
            yield ModelReply(Message("assistant", _ALL_TAKEN), Usage(), self.info.model)
            return
        try:
            if not self._by_hand:
                await self._budget.check_share(self._expected, self._weights, self._allowance)
            await self._budget.check(_estimate_usage(self.info, self._expected_tokens))
            # Every link's stream is an async generator; closing it at once closes its connection at once.
            stream = cast("AsyncGenerator[StreamItem, None]", self._link.stream(messages))
            async with aclosing(stream) as items:
                async for item in items:
                    if isinstance(item, ModelReply):
                        self._expected_tokens = item.usage.total_tokens
                        self._expected = weigh(item.usage, self._weights)
                    yield item
        except (BudgetReached, ConfigError, ProviderError) as error:
            self.failure = error
            raise


def _are_taken(messages: Sequence[Message]) -> bool:
    """Return whether the last step only wrote lessons, and all of them were taken."""
    results = list(takewhile(lambda message: message.role == "tool", reversed(messages)))
    return bool(results) and all(
        not result.is_error and tags_of(result.tool_name) & WRITES for result in results
    )


def _estimate_usage(info: ModelInfo, tokens: int) -> Usage:
    """Return the maximum cost of a call of this size, without its output."""
    price = info.input_usd_per_mtok
    return msgspec.structs.replace(
        Usage(total_tokens=tokens), cost_usd=None if price is None else tokens * price / 1e6
    )
