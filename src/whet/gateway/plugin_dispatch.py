"""Let plugins filter incoming messages and send messages to chats.

If plugins drop a message to the bot and its sender is known, it is stored as read, so that plugins are not
asked again when the platform repeats it. Nothing is stored of strangers and of other messages in a group.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.app.plugins.sessions import PluginParts
from whet.contract.channels import Incoming, Outgoing
from whet.gateway.chat_record import ConversationParts
from whet.store import chats


class HookedIntake:
    """Calls plugins for incoming updates."""

    def __init__(self, parts: ConversationParts, plugins: PluginParts) -> None:
        self._parts = parts
        self._hooks = plugins.incoming_hooks(parts.channels, self._post, self._session_of)

    async def filter_updates(self, updates: list[Incoming]) -> list[Incoming]:
        """Return the updates that plugins let through. Plugins are only asked about new messages."""
        remaining: list[Incoming] = []
        for update in updates:
            if update.verb == "edit" and not self._is_known(update):
                await self._hooks.notify_edit(update)
            is_new = update.verb == "message" and not self._is_known(update)
            result = await self._hooks.apply_hooks(update) if is_new else update
            if result is not None:
                remaining.append(result)
            elif self._parts.router.is_for_us(update):
                await self._note_read(update)
        return remaining

    def _is_known(self, update: Incoming) -> bool:
        channel = update.place.channel
        return self._parts.database.read_now(lambda db: chats.is_received(db, channel, update.update_id))

    async def _note_read(self, update: Incoming) -> None:
        now_ms = self._parts.clock.unix_ms()

        def work(connection: apsw.Connection) -> None:
            if self._parts.router.person(connection, update.place) is None:
                return
            body = msgspec.json.encode(update).decode()
            row = chats.add_update(connection, update.place, update.update_id, body, now_ms)
            if row is not None:
                chats.set_update_state(connection, row, "done")

        await self._parts.database.append(work)

    async def _post(self, channel: str, chat: str, text: str) -> str:
        body = msgspec.json.encode(Outgoing(text)).decode()
        now_ms = self._parts.clock.unix_ms()

        def work(connection: apsw.Connection) -> int:
            chat_record = chats.find_platform_chat(connection, channel, chat)
            if chat_record is not None:
                chats.queue_messages(connection, chat_record.id, [body], now_ms)
            return chat_record.id if chat_record is not None else 0

        chat_id = await self._parts.database.append(work)
        if chat_id:
            self._parts.deliveries.wake(chat_id)
        return "" if chat_id else f"nobody has talked to this gateway in {chat} of {channel}"

    def _session_of(self, channel: str, chat: str) -> str:
        chat_record = self._parts.database.read_now(lambda db: chats.find_platform_chat(db, channel, chat))
        return chat_record.session_id if chat_record is not None else ""
