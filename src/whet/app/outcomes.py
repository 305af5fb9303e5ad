"""What each session began with, and what chance kept from it.

The hold-out is drawn per item and session and recorded with the session, so that "with" and "without" differ
by chance alone. It does not know how a prompt is written, nor what a turn is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

import msgspec

from whet.app.learning import LearningServices
from whet.memory.prompt_part import PromptItem, PromptPart
from whet.store import outcomes
from whet.store.database import StateDatabase
from whet.store.outcomes import ContextItem


class LearnedStart(msgspec.Struct, frozen=True):
    """What a session is begun with: its part of the prompt, and the items that chance left out of it."""

    part: PromptPart
    held_out: tuple[PromptItem, ...] = ()
    randomised: bool = False


class Outcomes:
    """The record of one process. `chance` gives numbers in [0, 1)."""

    def __init__(
        self,
        learning: LearningServices,
        database: StateDatabase,
        holdout_share: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._learning = learning
        self._database = database
        self._share = holdout_share
        self._chance = chance

    async def start(self, tools: Collection[str], profile: str = "") -> LearnedStart:
        """Give what a person's new session with these tools reads, less what the hold-out takes away."""
        desk = self._learning.desk_of(profile)
        part = await self._learning.prompt_part(tools, desk)
        if not self._share or not part.items:
            return LearnedStart(part)
        held = tuple(item for item in part.items if self._chance() < self._share)
        if held:
            part = await self._learning.prompt_part(tools, desk, without=held)
        return LearnedStart(part, held, randomised=True)

    async def record(self, session_id: str, start: LearnedStart) -> None:
        """Store what a session began with; durable on return."""
        if not start.part.items and not start.held_out:
            return
        shown, held = (_stored(items) for items in (start.part.items, start.held_out))
        await self._database.append(
            lambda db: outcomes.record_items(db, session_id, shown, held, randomised=start.randomised)
        )


def _stored(items: Sequence[PromptItem]) -> list[ContextItem]:
    return [ContextItem(item.kind, item.id, item.hash, item.label) for item in items]
