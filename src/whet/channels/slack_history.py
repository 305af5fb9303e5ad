"""What was said on Slack while nobody was connected: read from the history before each connection.

Slack brings an event again for a while only. So how far each conversation was read is kept, and before events
are heard what came since is taken in, in its order; an event that is brought late then comes a second time,
and such are dropped where messages are stored. A conversation that Slack does not let the app read is left
out and said once. It does not know what a message means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from whet.contract.channels import Incoming, Memo, SendFailed, Take
from whet.vendors.http import read
from whet.vendors.slack import SlackApi, SlackMessage

_LOG = logging.getLogger(__name__)
_MOST_THREADS = 50
Reading = Callable[[str, bytes], Incoming | None]
"""Reads a message of a channel's history as what came in; None for what is none of a person's."""


class SlackHistory:
    """The conversations of one app, and how far each was read: a channel, or one thread of it."""

    def __init__(self, name: str, api: SlackApi) -> None:
        self._name = name
        self._api = api
        self._read: dict[str, str] = {}
        self._refused: set[str] = set()

    async def catch_up(self, take: Take, memo: Memo, reading: Reading) -> None:
        """Take in what every known conversation missed. Raises SendFailed where Slack can't say now: then
        nothing newer may be heard before; StoreError."""
        self._read.update(await memo.all())
        threads = sorted((key for key in self._read if "/" in key), key=self._last)[-_MOST_THREADS:]
        for key in [*(key for key in self._read if "/" not in key), *threads]:
            if key and key not in self._refused:
                await self._catch_up(key, take, memo, reading)

    async def heard(self, update: Incoming, memo: Memo) -> None:
        """Keep that a message was taken in, and so its conversation was read so far."""
        place = update.place
        is_reply = bool(place.thread) and place.thread != update.ref
        await self._keep(f"{place.chat}/{place.thread}" if is_reply else place.chat, update.ref, memo)
        if place.thread and not is_reply and update.mentions_us:
            await self._keep(f"{place.chat}/{place.thread}", update.ref, memo)

    async def _catch_up(self, key: str, take: Take, memo: Memo, reading: Reading) -> None:
        chat, _, thread = key.partition("/")
        method = "conversations.replies" if thread else "conversations.history"
        query = {"channel": chat, "oldest": self._read[key], **({"ts": thread} if thread else {})}
        try:
            pages = await self._api.pages(method, query)
        except SendFailed as error:
            if not error.is_final or error.is_barred:
                raise
            self._refused.add(key)
            _LOG.warning("channel %s: %s can't be read: %s", self._name, chat, error.reason)
            return
        found = [(stamp, bytes(raw)) for raw in pages if (stamp := _stamp(bytes(raw))) > self._read[key]]
        for stamp, body in sorted(found):
            update = reading(chat, body)
            if update is not None:
                await take([update])
                await self.heard(update, memo)
            await self._keep(key, stamp, memo)

    async def _keep(self, key: str, stamp: str, memo: Memo) -> None:
        if stamp > self._read.get(key, ""):
            self._read[key] = stamp
            await memo.set(stamp, key)

    def _last(self, key: str) -> str:
        return self._read[key]


def _stamp(body: bytes) -> str:
    """Give a message's time stamp; such are of one length, so that they sort as texts do."""
    return (read(body, SlackMessage) or SlackMessage()).ts
