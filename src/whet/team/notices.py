"""Notifications of the team's database, received on the event loop over one connection of their own.

A notification means "look" and holds little else. A lost connection is opened again, and every channel is
then called with "", after which the callee must look itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

import psycopg

from whet.contract.errors import StoreError
from whet.postgres.connection import PostgresConnection
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
        self._database = database
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
            opening = asyncio.ensure_future(asyncio.to_thread(self._listen))
            try:
                connection = await asyncio.shield(opening)
            except (psycopg.Error, StoreError):
                await asyncio.sleep(_AGAIN_S)
                continue
            except asyncio.CancelledError:
                with suppress(psycopg.Error, StoreError):
                    (await opening).raw.close()
                raise
            with closing(connection.raw):
                for hear in self._hear.values():
                    hear("")  # check at once for events from before the connection
                await self._read(connection)

    def _listen(self) -> PostgresConnection:
        connection = self._database.connected()
        try:
            for channel in self._hear:
                connection.raw.execute(f"LISTEN {channel}".encode())
        except BaseException:
            connection.raw.close()
            raise
        return connection

    async def _read(self, connection: PostgresConnection) -> None:
        """Pass on notifications until the connection is lost."""
        loop, wire = asyncio.get_running_loop(), connection.raw.pgconn
        lost = loop.create_future()

        def read_notifications() -> None:
            try:
                wire.consume_input()
            except psycopg.OperationalError:
                if not lost.done():
                    lost.set_result(None)
                return
            while (note := wire.notifies()) is not None:
                self._hear[note.relname.decode()](note.extra.decode())

        number = wire.socket
        loop.add_reader(number, read_notifications)
        try:
            await lost
        finally:
            loop.remove_reader(number)
