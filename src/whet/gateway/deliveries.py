"""Sends what stands in the outbox: in order for each conversation, each message once.

A message is marked as being sent before the platform hears of it. Where nobody can say whether it got
through (a crash, an answer that never came), it is kept as unknown and not sent again, unless the platform
drops a repetition. It does not know what a message says.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import apsw
import httpx2
import msgspec

from whet.clock import Clock
from whet.contract.errors import StoreError
from whet.gateway.channel import Channel, Outgoing, SendFailed
from whet.store import chats
from whet.store.chats import Chat, OutRow
from whet.store.database import Database

log = logging.getLogger("whet.gateway")
DRAFT = "?"
"""As what a message edits: the draft of its conversation, where there is one."""
_MOST_TRIES = 12
_LONGEST_WAIT_S = 300.0
_SWEEP_S = 5.0
_AT_ONCE = 16
_BEFORE_SENDING = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.InvalidURL)


def is_doubtful(error: SendFailed) -> bool:
    """Whether a message that failed so may have got through all the same."""
    cause = error.__cause__
    if isinstance(cause, httpx2.HTTPError | OSError):
        return not isinstance(cause, _BEFORE_SENDING)
    return " 502" in error.reason or " 504" in error.reason


class Deliveries:
    """The outbox of one process. `settled` waits until a conversation's draft is not on its way any more."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        channels: Mapping[str, Channel],
        settled: Callable[[int], Awaitable[None]],
    ) -> None:
        self._database = database
        self._clock = clock
        self._channels = channels
        self._settled = settled
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self._slots = {name: asyncio.Semaphore(_AT_ONCE) for name in channels}
        self._paused_until_s: dict[str, float] = {}

    async def recover(self) -> None:
        """Sort out what was being sent when the last process ended; before anything else is done."""

        now_ms = self._clock.unix_ms()

        def work(connection: apsw.Connection) -> tuple[int, int]:
            unknown = again = 0
            for name, channel in self._channels.items():
                unknown += chats.unknown_drafts(connection, name)
                for row in chats.sort_out(connection, name):
                    is_recent = now_ms - row.run_after_ms < channel.limits.idempotent_s * 1000
                    repeatable = is_recent or _read(row).edits not in ("", DRAFT)
                    state = "queued" if repeatable else "unknown"
                    chats.end_sending(connection, row.id, state, error="the gateway stopped while sending it")
                    unknown, again = unknown + (not repeatable), again + repeatable
            return unknown, again

        unknown, again = await self._database.append(work)
        if unknown or again:
            log.warning(
                "%d messages were cut off while being sent, %d are sent again", unknown + again, again
            )

    async def serve(self) -> None:
        """Send what is due, also what other processes put into the outbox, until cancelled."""
        while True:
            with suppress(StoreError):
                for name in self._channels:
                    rows = await self._database.read(lambda db, name=name: chats.due(db, name))
                    for row in rows:
                        self.wake(row.chat)
            await asyncio.sleep(_SWEEP_S)

    def wake(self, chat_id: int) -> None:
        """Say that there is something for a conversation."""
        if chat_id in self._tasks:
            self._again.add(chat_id)
            return
        task = asyncio.create_task(self._work(chat_id))
        self._tasks[chat_id] = task
        task.add_done_callback(lambda _: self._done(chat_id))

    async def idle(self, chat_id: int) -> None:
        """Wait until nothing more is being sent to a conversation."""
        while (task := self._tasks.get(chat_id)) is not None:
            await asyncio.wait({task})

    async def drain(self, limit_s: float) -> None:
        """Give what is being sent this long to arrive, then stop."""
        tasks = set(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, chat_id: int) -> None:
        task = self._tasks.pop(chat_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("sending to conversation %d stopped", chat_id, exc_info=error)
        if chat_id in self._again:
            self._again.discard(chat_id)
            if not task.cancelled():
                self.wake(chat_id)

    async def _work(self, chat_id: int) -> None:
        chat = await self._database.read(lambda db: chats.chat(db, chat_id))
        name = chat.place.channel
        channel = self._channels.get(name)
        while channel is not None:
            row = await self._database.read(lambda db: chats.next_out(db, name, chat_id))
            if row is None:
                return
            await self._wait_until(row.run_after_ms / 1000 - self._clock.unix_ms() / 1000, name)
            async with self._slots[name]:
                await self._send(channel, chat, row)

    async def _wait_until(self, wait_s: float, name: str) -> None:
        pause_s = self._paused_until_s.get(name, 0.0) - self._clock.monotonic_s()
        while (longest_s := max(wait_s, pause_s)) > 0:
            await asyncio.sleep(longest_s)
            wait_s, pause_s = 0.0, self._paused_until_s.get(name, 0.0) - self._clock.monotonic_s()

    async def _send(self, channel: Channel, chat: Chat, row: OutRow) -> None:
        message = _read(row)
        if is_draft := message.edits == DRAFT:
            await self._settled(chat.id)
            draft = (await self._database.read(lambda db: chats.chat(db, chat.id))).draft
            message = msgspec.structs.replace(message, edits=draft if draft != chats.SENDING else "")
        now_ms = self._clock.unix_ms()
        await self._database.append(lambda db: chats.begin_sending(db, row.id, now_ms))
        try:
            ref = await self._hand_over(channel, chat, row, message)
        except SendFailed as error:
            await self._failed(channel, row, message, error)
            return

        def end(connection: apsw.Connection) -> None:
            chats.end_sending(connection, row.id, "sent", ref=ref)
            if is_draft:
                chats.set_draft(connection, chat.id, "")

        await self._database.append(end)

    async def _hand_over(self, channel: Channel, chat: Chat, row: OutRow, message: Outgoing) -> str:
        if message.edits:
            try:
                await channel.edit(chat.place, message.edits, message)
                return message.edits
            except SendFailed as error:
                if not error.is_final:
                    raise
                message = msgspec.structs.replace(message, edits="")  # they have deleted it
        return await channel.send(chat.place, message, f"whet-{row.id}")

    async def _failed(self, channel: Channel, row: OutRow, message: Outgoing, error: SendFailed) -> None:
        now_ms, attempts = self._clock.unix_ms(), row.attempts + 1
        repeatable = channel.limits.idempotent_s > 0 or bool(message.edits)
        if is_doubtful(error) and not repeatable:
            log.warning("a message may not have arrived: %s", error.reason)
            await self._end(row, "unknown", error.reason)
        elif error.is_final or attempts >= _MOST_TRIES:
            log.warning("a message could not be sent: %s", error.reason)
            await self._end(row, "failed", error.reason)
        else:
            wait_s = error.retry_after_s
            if wait_s is not None:
                wait_s = min(wait_s, 3600.0)
                until_s = self._clock.monotonic_s() + wait_s
                self._paused_until_s[channel.name] = max(self._paused_until_s.get(channel.name, 0.0), until_s)
            else:
                wait_s = min(2.0 ** (attempts - 1), _LONGEST_WAIT_S) * (1 - 0.25 * random.random())
            again_ms = now_ms + int(wait_s * 1000) + 1
            await self._end(row, "queued", error.reason, again_ms)

    async def _end(self, row: OutRow, state: chats.OutState, error: str, again_ms: int = 0) -> None:
        await self._database.append(
            lambda db: chats.end_sending(db, row.id, state, error=error, again_ms=again_ms)
        )


def _read(row: OutRow) -> Outgoing:
    return msgspec.json.decode(row.body, type=Outgoing)
