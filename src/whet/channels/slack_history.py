"""Read Slack messages that were missed while disconnected, from the history, before each connection.

Slack repeats an event only for a while. So the read position of each conversation is stored, and missed
messages are taken in order before any event. If Slack repeats such an event later, the message arrives
twice; the store drops the second one. A conversation that the app may not read is skipped and logged once.
This module does not interpret messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from whet.contract.channels import Incoming, Memo, SendFailed, Take
from whet.vendors.http import read
from whet.vendors.slack import SlackApi, SlackMessage

_LOG = logging.getLogger(__name__)
_MAX_THREADS = 50
ParseMessage = Callable[[str, bytes], Incoming | None]
"""Converts a message of a channel's history to an update, or returns None if a person did not write it."""


class SlackHistory:
    """The read positions of one app's conversations. A conversation is a channel, or one thread of it."""

    def __init__(self, name: str, api: SlackApi) -> None:
        self._name = name
        self._api = api
        self._read: dict[str, str] = {}
        self._refused: set[str] = set()

    async def catch_up(self, take: Take, memo: Memo, parse: ParseMessage) -> None:
        """Take the missed messages of every known channel and of the latest threads.

        Raises StoreError, and SendFailed if Slack can't be read now. Then no newer message may be taken.
        """
        self._read.update(await memo.all())
        channels = [key for key in self._read if "/" not in key]
        threads = sorted((key for key in self._read if "/" in key), key=lambda key: self._read[key])
        for key in [*channels, *threads[-_MAX_THREADS:]]:
            if key and key not in self._refused:
                await self._catch_up(key, take, memo, parse)

    async def mark_read(self, update: Incoming, memo: Memo) -> None:
        """Store a message that was taken as the read position of its conversation."""
        place = update.place
        thread_key = f"{place.chat}/{place.thread}"
        is_reply = bool(place.thread) and place.thread != update.ref
        await self._store_position(thread_key if is_reply else place.chat, update.ref, memo)
        if place.thread and not is_reply and update.mentions_us:
            await self._store_position(thread_key, update.ref, memo)

    async def _catch_up(self, key: str, take: Take, memo: Memo, parse: ParseMessage) -> None:
        chat, _, thread = key.partition("/")
        method = "conversations.replies" if thread else "conversations.history"
        query = {"channel": chat, "oldest": self._read[key], **({"ts": thread} if thread else {})}
        try:
            pages = await self._api.list_messages(method, query)
        except SendFailed as error:
            if not error.is_final or error.is_barred:
                raise
            self._refused.add(key)
            _LOG.warning("channel %s: %s can't be read: %s", self._name, chat, error.reason)
            return
        messages = sorted((_read_time_stamp(bytes(raw)), bytes(raw)) for raw in pages)
        for stamp, body in messages:
            if stamp <= self._read[key]:
                continue
            update = parse(chat, body)
            if update is not None:
                await take([update])
                await self.mark_read(update, memo)
            await self._store_position(key, stamp, memo)

    async def _store_position(self, key: str, stamp: str, memo: Memo) -> None:
        if stamp > self._read.get(key, ""):
            self._read[key] = stamp
            await memo.set(stamp, key)


def _read_time_stamp(body: bytes) -> str:
    """Return a message's time stamp. All have the same length, so they sort as texts."""
    return (read(body, SlackMessage) or SlackMessage()).ts
