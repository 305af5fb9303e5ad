"""Standing permissions (a person's "always"), as the gate wants them and the store keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from whet.clock import Clock, iso
from whet.store import grants
from whet.store.database import StateDatabase
from whet.store.grants import GrantRow


class GrantRepository:
    """The kept grants of one home."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tool: str, pattern: str, workspace: str) -> None:
        """Keep a grant; durable on return."""
        now = iso(self._clock.now())
        await self._database.write(lambda db: grants.add(db, tool, pattern, workspace, now))

    async def all(self) -> Sequence[GrantRow]:
        """Give every kept grant."""
        return await self._database.read(grants.all_grants)
