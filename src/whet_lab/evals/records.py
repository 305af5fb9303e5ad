"""The results of a world's run: plain values that can be stored, summed and drawn."""

from __future__ import annotations

import msgspec

from whet.contract.messages import Usage
from whet_lab.evals.workplace import Standing
from whet_lab.evals.world import WorldPerson

CACHED_PRICE = 0.1
OUTPUT_PRICE = 5.0
"""Prices in units of an uncached prompt token; roughly those of most vendors."""


class FactNeed(msgspec.Struct, frozen=True):
    """One fact that a task needed: whether it could have been learned, and the model's value at first try."""

    subject: str
    key: str
    learnable: bool
    standing: Standing


class TaskRecord(msgspec.Struct, frozen=True):
    """One task: whether it was right at the first try, and in the end; `tokens` includes its reviews."""

    number: int
    person: WorldPerson
    private: bool
    first_ok: bool
    ok: bool
    tries: int
    needs: tuple[FactNeed, ...]
    tokens: int = 0


class Funnel(msgspec.Struct, frozen=True):
    """The number of facts shown to a person by the end, and how many of them reached each stage.

    `captured` were ever stored, `survived` are stored with their current value, `reached` were in the model's
    request when a task needed them.
    """

    shown: int
    captured: int
    survived: int
    reached: int


class TokenSpending(msgspec.Struct, frozen=True):
    """Tokens of the sessions and of their reviews."""

    tasks: Usage = msgspec.field(default_factory=Usage)
    reviews: Usage = msgspec.field(default_factory=Usage)
    review_count: int = 0

    @property
    def cost(self) -> float:
        """The total cost in units of an uncached prompt token, reviews included."""
        return _price(self.tasks) + self.review_cost

    @property
    def review_cost(self) -> float:
        """The cost of the reviews alone, in the same units."""
        return _price(self.reviews)

    @property
    def tokens(self) -> int:
        """All tokens, prompt and output."""
        return sum(used.prompt_tokens + used.output_tokens for used in (self.tasks, self.reviews))

    @property
    def cached_share(self) -> float:
        """The share of all prompt tokens that came from the cache."""
        return (self.tasks + self.reviews).cache_hit_ratio


def _price(used: Usage) -> float:
    uncached = used.prompt_tokens - used.cache_read_tokens
    return uncached + CACHED_PRICE * used.cache_read_tokens + OUTPUT_PRICE * used.output_tokens


class StaleFact(msgspec.Struct, frozen=True):
    """A stored fact that changed.

    `sessions` is the number of its owner's sessions in which the old value stayed. `gone` is False if it was
    still there at the end.
    """

    subject: str
    key: str
    sessions: int
    gone: bool


class WorldResult(msgspec.Struct, frozen=True):
    """One world under one arm.

    `leaks` counts requests with another person's or a private session's secret. `poisoned` counts sessions
    whose requests contained a value planted in another session, `false_kept` stored claims that were never
    true.
    """

    seed: int
    arm: str
    tasks: tuple[TaskRecord, ...]
    funnel: Funnel
    spent: TokenSpending
    stale: tuple[StaleFact, ...]
    requests: int
    leaks: int
    poisoned: int
    planted: int
    false_kept: int
    wall_s: float
