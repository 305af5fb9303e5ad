"""Plugins' word on what comes in from the platforms, before anybody is looked up: dropped, changed or let be.

A message for us that is dropped is noted as read where its sender is known, so that the platform's repeat is
not asked about again; of strangers and of what others say in a group nothing is kept. A hook that fails lets
the message pass.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.channels import Incoming, Outgoing
from whet.gateway.chat_record import ConversationParts
from whet.plugins.calls import fields_of
from whet.plugins.dispatch import ChatAdapter, ChatEvent, ChatGateway, ChatSource, PlatformName
from whet.plugins.hooks import Hooks
from whet.store import chats

HOOK = "pre_gateway_dispatch"


class DispatchHooks:
    """The `pre_gateway_dispatch` hooks of one gateway."""

    def __init__(self, parts: ConversationParts, hooks: Hooks) -> None:
        self._parts = parts
        self._hooks = hooks
        self._gateway = ChatGateway(
            {PlatformName(name): ChatAdapter(name, self._post) for name in parts.channels}, self._session_of
        )

    async def passed(self, updates: list[Incoming]) -> list[Incoming]:
        """Give what is left of updates once the hooks have seen the new messages among them."""
        left: list[Incoming] = []
        for update in updates:
            kept = await self._passed(update) if update.verb == "message" else update
            if kept is not None:
                left.append(kept)
        return left

    async def _passed(self, update: Incoming) -> Incoming | None:
        place = update.place
        if self._parts.database.read_now(lambda db: chats.is_received(db, place.channel, update.update_id)):
            return update
        for said in await self._hooks.tell(
            HOOK, event=_event_of(update), gateway=self._gateway, session_store=None
        ):
            fields = fields_of(said)
            match fields.get("action"):
                case "skip":
                    await self._skip(update)
                    return None
                case "rewrite" if isinstance(fields.get("text"), str):
                    return msgspec.structs.replace(update, text=fields["text"])
                case "allow":
                    return update
                case _:
                    continue
        return update

    async def _skip(self, update: Incoming) -> None:
        if not self._parts.router.is_for_us(update):
            return
        now_ms = self._parts.clock.unix_ms()

        def work(connection: apsw.Connection) -> None:
            if self._parts.router.person(connection, update.place) is None:
                return
            body = msgspec.json.encode(update).decode()
            row = chats.receive(connection, update.place, update.update_id, body, now_ms)
            if row is not None:
                chats.mark(connection, row, "done")

        await self._parts.database.append(work)

    async def _post(self, channel: str, chat: str, text: str) -> str:
        body = msgspec.json.encode(Outgoing(text)).decode()
        now_ms = self._parts.clock.unix_ms()

        def work(connection: apsw.Connection) -> int:
            known = chats.at(connection, channel, chat)
            if known is not None:
                chats.post(connection, known.id, [body], now_ms)
            return known.id if known is not None else 0

        chat_id = await self._parts.database.append(work)
        if chat_id:
            self._parts.deliveries.wake(chat_id)
        return "" if chat_id else f"nobody has talked to this gateway in {chat} of {channel}"

    def _session_of(self, channel: str, chat: str) -> str:
        known = self._parts.database.read_now(lambda db: chats.at(db, channel, chat))
        return known.session_id if known is not None else ""


def _event_of(update: Incoming) -> ChatEvent:
    place = update.place
    source = ChatSource(
        PlatformName(place.channel),
        place.chat,
        "group" if place.is_group else "dm",
        place.user,
        update.user_name,
        place.thread or None,
    )
    return ChatEvent(update.text, source, update.ref, message_type="document" if update.files else "text")
