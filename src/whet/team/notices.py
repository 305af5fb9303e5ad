"""Receive PostgreSQL notifications on the event loop, over one connection of its own.

A notification contains little; its handler reads the database. After a lost connection is opened again, every
handler is called with "", because notifications may have been missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import psycopg

from whet.postgres.connection import connect_async
from whet.store.team import TeamDatabase

WAITING, ENDED, NEWS, ORDERS = "whet_turns", "whet_ended", "whet_news", "whet_orders"
"""The channels. WAITING: a turn waits. ENDED: a turn ended; the payload is its id. NEWS: sessions have new
events; the payload is their ids. ORDERS: a session has a new message, question or answer; the payload is its
id."""

_AGAIN_S = 0.5
_POLL_S = 2.0
MAX_PAYLOAD_BYTES = 7_900


async def wait_briefly(event: asyncio.Event) -> None:
    """Wait until `event` is set, but at most two seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_POLL_S):
            await event.wait()


class Notices:
    """Calls `handlers[channel]` with the payload of each notification, until it is closed."""

    def __init__(self, database: TeamDatabase, handlers: Mapping[str, Callable[[str], None]]) -> None:
        self._url = database.url
        self._handlers = dict(handlers)
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
            for channel in self._handlers:
                await connection.execute(f"LISTEN {channel}".encode())
            for handle in self._handlers.values():
                handle("")  # notifications may have been missed before the connection
            async for notice in connection.notifies():
                self._handlers[notice.channel](notice.payload)
