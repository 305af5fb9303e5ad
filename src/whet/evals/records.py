"""What a run of a world leaves behind: plain values that can be stored, summed and drawn."""

from __future__ import annotations

import msgspec

from whet.contract.messages import Usage
from whet.evals.workplace import Standing
from whet.evals.world import WorldPerson

CACHED_PRICE = 0.1
OUTPUT_PRICE = 5.0
"""Prices in units of an uncached prompt token; what most vendors take, roughly."""


class FactNeed(msgspec.Struct, frozen=True):
    """One fact that a task needed: whether it could have been learned, and how it stood at the first try."""

    subject: str
    key: str
    learnable: bool
    standing: Standing


class TaskRecord(msgspec.Struct, frozen=True):
    """One task: done rightly at the first try, in the end, or not."""

    number: int
    person: WorldPerson
    private: bool
    first_ok: bool
    ok: bool
    tries: int
    needs: tuple[FactNeed, ...]


class Funnel(msgspec.Struct, frozen=True):
    """Of the facts that a person's sessions had shown at the end: how many were ever kept, were still kept
    as they are now, and stood before the model when a task needed them."""

    shown: int
    captured: int
    survived: int
    reached: int


class TokenSpending(msgspec.Struct, frozen=True):
    """Tokens of the sessions themselves and of their reviews."""

    tasks: Usage = msgspec.field(default_factory=Usage)
    reviews: Usage = msgspec.field(default_factory=Usage)
    review_count: int = 0

    @property
    def cost(self) -> float:
        """Everything in units of an uncached prompt token, reviews included."""
        return sum(
            (used.prompt_tokens - used.cache_read_tokens)
            + CACHED_PRICE * used.cache_read_tokens
            + OUTPUT_PRICE * used.output_tokens
            for used in (self.tasks, self.reviews)
        )

    @property
    def tokens(self) -> int:
        """All tokens, prompt and output."""
        return sum(used.prompt_tokens + used.output_tokens for used in (self.tasks, self.reviews))

    @property
    def cached_share(self) -> float:
        """Share of all prompt tokens that came from the cache."""
        return (self.tasks + self.reviews).cache_hit_ratio


class StaleFact(msgspec.Struct, frozen=True):
    """A kept fact that changed: for how many of its owner's sessions the old value stayed; `gone` is False
    where it was still there at the end."""

    subject: str
    key: str
    sessions: int
    gone: bool


class WorldResult(msgspec.Struct, frozen=True):
    """One world under one arm. `leaks`: requests with another person's or a private session's secret;
    `poisoned`: sessions that began with a planted value; `false_kept`: kept claims that never were true."""

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
