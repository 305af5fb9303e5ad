"""Notifications of the team's database, received on the event loop over one connection of their own.

A notification means "look" and holds little else. A lost connection is opened again, and every channel is
then called with "", after which the callee must look itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import psycopg

from whet.postgres.connection import connect_async
from whet.store.team import TeamDatabase

WAITING, ENDED, NEWS, ORDERS = "whet_turns", "whet_ended", "whet_news", "whet_orders"
"""The channels: a turn waits; a turn has ended (its id); sessions with new events (their ids); a session with
a new message, question or answer (its id)."""

_AGAIN_S = 0.5
_LOOK_S = 2.0
MAX_PAYLOAD_BYTES = 7_900


async def wait_briefly(event: asyncio.Event) -> None:
    """Wait for an event that a notification or another task sets, or for the next regular check."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_S):
            await event.wait()


class Notices:
    """Calls `hear[channel]` with a notification's payload, until it is closed."""

    def __init__(self, database: TeamDatabase, hear: Mapping[str, Callable[[str], None]]) -> None:
        self._url = database.url
        self._hear = dict(hear)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start listening."""
        self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            with suppress(psycopg.Error):  # connect again
                await self._listen()
            await asyncio.sleep(_AGAIN_S)

    async def _listen(self) -> None:
        """Pass on notifications until the connection is lost. Raises psycopg.Error."""
        async with await connect_async(self._url) as connection:
            for channel in self._hear:
                await connection.execute(f"LISTEN {channel}".encode())
            for hear in self._hear.values():
                hear("")  # check at once for events from before the connection
            async for notice in connection.notifies():
                self._hear[notice.channel](notice.payload)
