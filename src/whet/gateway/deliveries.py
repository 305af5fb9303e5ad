"""Send the messages of the outbox: in order within a conversation, each message once.

A message is marked as being sent before the platform gets it. If it is unknown whether it arrived (after a
crash or without a response), it is not sent again, unless the platform drops repetitions. The conversation is
notified of such messages and of failed ones, and can have them sent again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import apsw
import msgspec

from whet.clock import Clock
from whet.contract.channels import Channel, Outgoing, SendFailed
from whet.contract.errors import StoreError
from whet.contract.texts import from_json, to_json
from whet.gateway import outbox
from whet.store import chats
from whet.store.chats import ChatRecord, OutRow
from whet.store.database import StateDatabase

log: logging.Logger = logging.getLogger("whet.gateway")
DRAFT = "?"
"""The value of `edits` for a message that replaces the draft of its conversation, if there is one."""
_MAX_TRIES = 12
_GIVEN_UP_MS = 86_400_000
_AT_ONCE = 16
_BARRED_S = 60.0
_TOO_MANY = 429


class DeliveryWaits(msgspec.Struct, frozen=True):
    """The longest waits before a failed message and before an unreachable platform are tried again, and the
    time between two reads of the outbox."""

    retry_s: float = 300.0
    silence_s: float = 60.0
    sweep_s: float = 5.0


USUAL = DeliveryWaits()


class Deliveries:
    """Sends the messages of the outbox. `wait_for_draft` waits until a conversation's draft is no longer
    being sent."""

    def __init__(
        self,
        database: StateDatabase,
        clock: Clock,
        channels: Mapping[str, Channel],
        wait_for_draft: Callable[[int], Awaitable[None]],
        waits: DeliveryWaits = USUAL,
    ) -> None:
        self._waits = waits
        self._database = database
        self._clock = clock
        self._channels = channels
        self._wait_for_draft = wait_for_draft
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self._slots = {name: asyncio.Semaphore(_AT_ONCE) for name in channels}
        self.paused_until_s: defaultdict[str, float] = defaultdict(float)
        self._silent: dict[str, int] = {}

    async def recover(self) -> None:
        """Queue messages again that were being sent when the last process ended, or mark them as unknown.
        Must be called first."""
        now_ms = self._clock.unix_ms()

        def work(connection: apsw.Connection) -> None:
            for name, channel in self._channels.items():
                chats.clear_unknown_drafts(connection, name)
                for row in chats.list_unfinished_sends(connection, name):
                    message = _with_since(row, row.run_after_ms)
                    is_recent = now_ms - message.since_ms < channel.limits.idempotent_s * 1000
                    edits = message.edits
                    if edits == DRAFT:  # an edit if the draft is known, otherwise a message of its own
                        edits = chats.get_chat(connection, row.chat).draft
                    is_repeatable = is_recent or bool(edits) or outbox.is_notice(message)
                    state = "queued" if is_repeatable else "unknown"
                    chats.replace_message_body(connection, row.id, to_json(message))
                    chats.end_sending(connection, row.id, state, error="the gateway stopped while sending it")
                    # the platform did not refuse it, so this does not count as a failed attempt
                    chats.uncount_attempt(connection, row.id)
                    if not is_repeatable:
                        outbox.queue_notice(connection, row.chat, now_ms)
                    log.warning("message %d was cut off while being sent: %s", row.id, state)

        await self._database.append(work)

    async def serve(self) -> None:
        """Send due messages, including those that other processes queue, until cancelled."""
        while True:
            with suppress(StoreError):
                for name in self._channels:
                    rows = await self._database.read(lambda db, name=name: chats.list_due(db, name))
                    for row in rows:
                        self.wake(row.chat)
            await asyncio.sleep(self._waits.sweep_s)

    def wake(self, chat_id: int) -> None:
        """Send a conversation's messages, because one was queued."""
        if chat_id in self._tasks:
            self._again.add(chat_id)
            return
        task = asyncio.create_task(self._send_queued(chat_id))
        self._tasks[chat_id] = task
        task.add_done_callback(lambda _: self._end_task(chat_id))

    async def wait_until_sent(self, chat_id: int) -> None:
        """Wait until all messages to a conversation are sent. Raises StoreError."""
        for wait_s in itertools.chain((0.0, 0.0), itertools.repeat(self._waits.sweep_s)):
            while (task := self._tasks.get(chat_id)) is not None:
                await asyncio.wait({task})
            if not self._database.read_now(lambda db: chats.has_unsent(db, chat_id)):
                return
            await asyncio.sleep(wait_s)
            self.wake(chat_id)

    async def drain(self, limit_s: float) -> None:
        """Wait up to `limit_s` for messages that are being sent, then stop."""
        tasks = set(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end_task(self, chat_id: int) -> None:
        task = self._tasks.pop(chat_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("sending to conversation %d stopped", chat_id, exc_info=error)
        if chat_id in self._again:
            self._again.discard(chat_id)
            if not task.cancelled():
                self.wake(chat_id)

    async def _send_queued(self, chat_id: int) -> None:
        chat, row = self._database.read_now(lambda db: _first_out(db, chat_id))
        name = chat.place.channel
        channel = self._channels.get(name)
        while channel is not None and row is not None:
            await self._wait_until(row.run_after_ms / 1000 - self._clock.unix_ms() / 1000, name)
            async with self._slots[name]:
                await self._send(channel, chat, row)
            row = self._database.read_now(lambda db: chats.next_message(db, name, chat_id))

    async def _wait_until(self, wait_s: float, name: str) -> None:
        pause_s = self.paused_until_s[name] - self._clock.monotonic_s()
        while (longest_s := max(wait_s, pause_s)) > 0:
            await asyncio.sleep(longest_s)
            wait_s, pause_s = 0.0, self.paused_until_s[name] - self._clock.monotonic_s()

    async def _send(self, channel: Channel, chat: ChatRecord, row: OutRow) -> None:
        message = _read(row)
        if is_draft := message.edits == DRAFT:
            await self._wait_for_draft(chat.id)
            draft = self._database.read_now(lambda db: chats.get_chat(db, chat.id)).draft
            message = msgspec.structs.replace(message, edits=draft if draft != chats.SENDING else "")
        now_ms = self._clock.unix_ms()
        is_late = now_ms - message.since_ms >= channel.limits.idempotent_s * 1000
        if message.since_ms and not message.edits and is_late and not outbox.is_notice(message):
            await self._end(row, "unknown", "it may have arrived, and is too old to be repeated")
            return
        await self._database.append(lambda db: chats.begin_sending(db, row.id, now_ms))
        try:
            if message.edits and not await self._edit(channel, chat, message):
                message = await self._detach(chat, row, message)
            # Row ids may be reused after old rows are deleted. With the time they are unique.
            ref = message.edits or await channel.send(chat.place, message, f"{row.at_ms:x}-{row.id}")
        except SendFailed as error:
            await self._handle_failure(channel, row, message, error, now_ms)
            return
        self._silent.pop(channel.name, None)

        def end(connection: apsw.Connection) -> None:
            chats.end_sending(connection, row.id, "sent", ref=ref)
            if is_draft:
                chats.set_draft(connection, chat.id, "")

        await self._database.append(end)

    async def _edit(self, channel: Channel, chat: ChatRecord, message: Outgoing) -> bool:
        """Edit an earlier message. Returns False if it does not exist any more. Raises SendFailed."""
        try:
            await channel.edit(chat.place, message.edits, message)
        except SendFailed as error:
            if not error.is_final or error.is_barred:
                raise
            return False
        return True

    async def _detach(self, chat: ChatRecord, row: OutRow, message: Outgoing) -> Outgoing:
        """Make a message a new one, because the message that it would edit no longer exists. From now on, a
        repetition would post it twice."""
        is_draft = _read(row).edits == DRAFT
        message = msgspec.structs.replace(message, edits="", since_ms=0)

        def work(connection: apsw.Connection) -> None:
            chats.replace_message_body(connection, row.id, to_json(message))
            if is_draft:
                chats.set_draft(connection, chat.id, "")

        await self._database.append(work)
        return message

    async def _handle_failure(
        self, channel: Channel, row: OutRow, message: Outgoing, error: SendFailed, begun_ms: int
    ) -> None:
        is_old = self._clock.unix_ms() - row.at_ms > _GIVEN_UP_MS
        is_refused = error.is_final and not error.is_barred
        # An earlier attempt may have arrived, even if the last one certainly did not.
        is_doubtful = error.maybe_sent or (message.since_ms > 0 and not message.edits)
        may_repeat = channel.limits.idempotent_s > 0 or message.edits or outbox.is_notice(message)
        if error.maybe_sent and not may_repeat:
            log.warning("a message may not have arrived: %s", error.reason)
            await self._end(row, "unknown", error.reason)
        elif is_refused or row.attempts + 1 >= _MAX_TRIES or is_old:
            log.warning("a message could not be sent: %s", error.reason)
            await self._end(row, "unknown" if is_doubtful else "failed", error.reason)
        else:
            await self._retry_later(channel, row, error, begun_ms if error.maybe_sent else 0)

    async def _retry_later(self, channel: Channel, row: OutRow, error: SendFailed, since_ms: int) -> None:
        """Queue a message to be sent again later.

        If the platform asks to wait or can't be reached, the whole channel waits, and the attempt does not
        count. `since_ms` is the time at which the message may have arrived, or 0.
        """
        wait_s = self.channel_wait_s(channel.name, error)
        counts = wait_s is None
        if wait_s is None:
            wait_s = min(2.0**row.attempts, self._waits.retry_s) * (1 - 0.25 * random.random())
        else:
            until_s = self._clock.monotonic_s() + wait_s
            self.paused_until_s[channel.name] = max(self.paused_until_s[channel.name], until_s)
        again_ms = self._clock.unix_ms() + int(wait_s * 1000) + 1

        def work(connection: apsw.Connection) -> None:
            if since_ms:
                # read again, because `_detach` may have changed it
                current = chats.get_message(connection, row.id)
                chats.replace_message_body(connection, row.id, to_json(_with_since(current, since_ms)))
            chats.end_sending(connection, row.id, "queued", error=error.reason, again_ms=again_ms)
            if not counts:
                chats.uncount_attempt(connection, row.id)

        await self._database.append(work)

    def channel_wait_s(self, name: str, error: SendFailed) -> float | None:
        """Return how long the whole channel has to wait, or None if only this message failed."""
        if error.is_barred:  # nothing is lost until a new token is set
            log.error("channel %s: nothing can be sent: %s", name, error.reason)
            return max(error.retry_after_s or _BARRED_S, _BARRED_S)
        if error.retry_after_s is not None:
            return error.retry_after_s
        if error.maybe_sent or error.status not in (0, _TOO_MANY):
            return None
        pause_s = self.paused_until_s[name] - self._clock.monotonic_s()
        if pause_s > 0:  # other messages failed at the same time, which counts as one failure
            return pause_s
        times = self._silent[name] = self._silent.get(name, 0) + 1
        return silence_s(times, self._waits.silence_s)

    async def _end(self, row: OutRow, state: chats.OutState, error: str) -> None:
        def work(connection: apsw.Connection) -> None:
            chats.end_sending(connection, row.id, state, error=error)
            message = _read(row)
            if not outbox.is_notice(message):
                outbox.queue_notice(connection, row.chat, self._clock.unix_ms())
            if message.edits == DRAFT:
                chats.set_draft(connection, row.chat, "")

        await self._database.append(work)


def silence_s(times: int, longest_s: float) -> float:
    """Return how long to wait for a platform that could not be reached `times` times in a row."""
    # the cap keeps the power within the range of a float
    return min(2.0 ** min(times - 1, 10), longest_s)


def _first_out(connection: apsw.Connection, chat_id: int) -> tuple[ChatRecord, OutRow | None]:
    chat = chats.get_chat(connection, chat_id)
    return chat, chats.next_message(connection, chat.place.channel, chat_id)


def _read(row: OutRow) -> Outgoing:
    return from_json(row.body, Outgoing)


def _with_since(row: OutRow, since_ms: int) -> Outgoing:
    """Return a message with the time at which it may have arrived. An earlier time that it has is kept."""
    message = _read(row)
    return message if message.since_ms else msgspec.structs.replace(message, since_ms=since_ms)
