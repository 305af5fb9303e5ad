"""Read the Slack messages that were missed while disconnected, from the history before each connection.

Slack repeats an event only for a while. So the read position of each conversation is stored, and before
events are processed, missed messages are taken in order. An event that is repeated late then arrives
twice, and the second one is dropped when messages are stored. A conversation that the app may not read is
skipped, and logged once. This module does not interpret messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from whet.contract.channels import Incoming, Memo, SendFailed, Take
from whet.vendors.http import read
from whet.vendors.slack import SlackApi, SlackMessage

_LOG = logging.getLogger(__name__)
_MAX_THREADS = 50
Reading = Callable[[str, bytes], Incoming | None]
"""Converts a message of a channel's history into an update; None if a person did not write it."""


class SlackHistory:
    """The conversations of one app with their read positions. A conversation is a channel, or one thread of
    it."""

    def __init__(self, name: str, api: SlackApi) -> None:
        self._name = name
        self._api = api
        self._read: dict[str, str] = {}
        self._refused: set[str] = set()

    async def catch_up(self, take: Take, memo: Memo, reading: Reading) -> None:
        """Take the missed messages of every known conversation. Raises StoreError, and SendFailed if Slack
        can't be read now: nothing newer may be taken before."""
        self._read.update(await memo.all())
        threads = sorted((key for key in self._read if "/" in key), key=self._last)[-_MAX_THREADS:]
        for key in [*(key for key in self._read if "/" not in key), *threads]:
            if key and key not in self._refused:
                await self._catch_up(key, take, memo, reading)

    async def mark_read(self, update: Incoming, memo: Memo) -> None:
        """Store that a message was taken, and so its conversation was read up to it."""
        chat_place = update.place
        is_reply = bool(chat_place.thread) and chat_place.thread != update.ref
        await self._store_position(
            f"{chat_place.chat}/{chat_place.thread}" if is_reply else chat_place.chat, update.ref, memo
        )
        if chat_place.thread and not is_reply and update.mentions_us:
            await self._store_position(f"{chat_place.chat}/{chat_place.thread}", update.ref, memo)

    async def _catch_up(self, key: str, take: Take, memo: Memo, reading: Reading) -> None:
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
        messages = [(stamp, bytes(raw)) for raw in pages if (stamp := _stamp(bytes(raw))) > self._read[key]]
        for stamp, body in sorted(messages):
            update = reading(chat, body)
            if update is not None:
                await take([update])
                await self.mark_read(update, memo)
            await self._store_position(key, stamp, memo)

    async def _store_position(self, key: str, stamp: str, memo: Memo) -> None:
        if stamp > self._read.get(key, ""):
            self._read[key] = stamp
            await memo.set(stamp, key)

    def _last(self, key: str) -> str:
        return self._read[key]


def _stamp(body: bytes) -> str:
    """Return a message's time stamp. Time stamps have the same length, so they sort as texts."""
    return (read(body, SlackMessage) or SlackMessage()).ts
