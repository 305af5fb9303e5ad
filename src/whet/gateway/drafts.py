"""Show an answer while it grows, by editing one message, and show the typing indicator.

The draft ends with an ellipsis, and the outbox replaces it with the answer. A short turn has no draft.
Failures of a draft are ignored.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Any

from whet.channels.pieces import split_message
from whet.contract.channels import Channel, Outgoing, SendFailed
from whet.contract.errors import StoreError
from whet.contract.events import Event, StreamRestarted, TextDelta, ToolStarted
from whet.gateway.deliveries import Deliveries
from whet.store import chats
from whet.store.chats import ChatRecord
from whet.store.database import StateDatabase

MARK = " …"
_TYPING_EVERY_S = 4.5
_MIN_CHARS = 40


class Drafts:
    """The drafts of one process, by conversation."""

    def __init__(self) -> None:
        self._open: dict[int, MessageDraft] = {}

    def begin(self, draft: MessageDraft) -> None:
        """Show a turn's progress from now on."""
        self._open[draft.chat.id] = draft
        draft.start()

    async def end_if_shown(self, chat_id: int) -> None:
        """End a draft that was shown, and wait until it is no longer being sent, so that the outbox can
        replace it. A draft that was not shown yet stays, and waits for the outbox itself."""
        draft = self._open.get(chat_id)
        if draft is not None and draft.is_shown:
            await self.end(chat_id)

    async def end(self, chat_id: int) -> None:
        """End a conversation's draft, and wait until it is no longer being sent."""
        draft = self._open.pop(chat_id, None)
        if draft is not None:
            await draft.stop()


class MessageDraft:
    """The draft of one turn. It is not shown if the turn ends within `first_after_s`."""

    def __init__(
        self,
        database: StateDatabase,
        channel: Channel,
        chat: ChatRecord,
        deliveries: Deliveries,
        *,
        first_after_s: float,
    ) -> None:
        self.chat = chat
        self.is_shown = False
        self._database = database
        self._channel = channel
        self._deliveries = deliveries
        self._first_after_s = first_after_s
        self._text = ""
        self._shown = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def handle_event(self, event: Event) -> None:
        """Apply an event of the turn."""
        if isinstance(event, TextDelta):
            self._text += event.text
        elif isinstance(event, StreamRestarted | ToolStarted):
            self._text = ""

    def start(self) -> None:
        """Start showing the draft."""
        self._tasks = [asyncio.create_task(self._type())]
        if self._first_after_s > 0 and self._channel.limits.can_edit:
            self._tasks.append(asyncio.create_task(self._show()))

    async def stop(self) -> None:
        """Stop showing the draft. On return, it is no longer being sent."""
        self._stopping.set()
        tasks, self._tasks = self._tasks, []  # a cancelled task would keep this draft alive
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _type(self) -> None:
        while True:
            with suppress(SendFailed):
                await self._channel.typing(self.chat.place)
            await asyncio.sleep(_TYPING_EVERY_S)

    async def _show(self) -> None:
        wait_s, ref = self._first_after_s, ""
        limits = self._channel.limits
        every_s = limits.group_edit_every_s if self.chat.place.is_group else limits.edit_every_s
        while not await self._stops_within(wait_s):
            wait_s = every_s
            text = self.draft_text()
            if not text or text == self._shown:
                continue
            try:
                ref = await self._write(ref, text)
                self._shown = text
            except SendFailed as error:
                wait_s = max(every_s * 2, error.retry_after_s or 0.0)
                if error.is_final:
                    return
            except StoreError:
                return

    async def _write(self, ref: str, text: str) -> str:
        message = Outgoing(text, quiet=True)
        if not ref:
            if not await self._is_free():
                return ""
            self.is_shown: bool = True
            # No other messages wait, so a stored draft is this turn's, from before a restart.
            ref = self._database.read_now(lambda db: chats.get_chat(db, self.chat.id)).draft
        if ref and ref != chats.SENDING:
            await self._channel.edit(self.chat.place, ref, message)
            return ref
        await self._store_ref(chats.SENDING)
        try:
            # The key is never reused: for a known one, Discord returns the message that has become an answer.
            ref = await self._channel.send(self.chat.place, message, f"draft-{secrets.token_hex(8)}")
        except SendFailed:
            await self._store_ref("")
            raise
        await self._store_ref(ref)
        return ref

    async def _is_free(self) -> bool:
        """Wait until earlier messages have been sent. Returns False if the turn ends first."""
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._deliveries.wait_until_sent(self.chat.id)),
            asyncio.create_task(self._stopping.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return not self._stopping.is_set()

    async def _store_ref(self, ref: str) -> None:
        await self._database.append(lambda db: chats.set_draft(db, self.chat.id, ref))

    def draft_text(self) -> str:
        """Return the beginning of the answer that fits into one message, or an empty string if it is
        short."""
        if len(self._text) < _MIN_CHARS:
            return ""
        room = self._channel.limits.message_chars - len(MARK) - 40
        return split_message(self._text, room)[0] + MARK

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
