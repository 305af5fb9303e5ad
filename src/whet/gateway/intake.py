"""Store updates from the platforms before they are acknowledged, reject strangers, and apply the rate
limit."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import apsw
import msgspec

from whet.contract.channels import ChatPlace, Incoming, Outgoing, SendFailed
from whet.contract.texts import from_json, short, to_json
from whet.gateway import outbox
from whet.gateway.acts import continues_act, seconds_for_more
from whet.gateway.chat_record import ConversationParts
from whet.gateway.conversations import EDITED_TOO_LATE, Conversations
from whet.gateway.open_questions import OVER, REFUSED
from whet.gateway.router import CODE_S, ChatUser, Verdict, new_code
from whet.store import chat_changes, chats
from whet.visible import visible

log: logging.Logger = logging.getLogger("whet.gateway")
UpdateFilter = Callable[[list[Incoming]], Awaitable[list[Incoming]]]
_MAX_LAST = 1_000
_MAX_SHOWN_CHARS = 300


class UpdateIntake:
    """Handles the updates of all channels. `update_filter` returns the updates that plugins let through."""

    def __init__(
        self,
        parts: ConversationParts,
        conversations: Conversations,
        update_filter: UpdateFilter | None = None,
    ) -> None:
        self._parts = parts
        self._conversations = conversations
        self._filter = update_filter
        self._last: OrderedDict[ChatPlace, tuple[Incoming, float]] = OrderedDict()
        self.heard: asyncio.Event = asyncio.Event()
        """Set once something came in."""

    async def take(self, updates: Sequence[Incoming]) -> None:
        """Store updates and wake their conversations. Durable on return. Raises StoreError."""
        kept_updates = [update for update in updates if update.verb != "press"]
        if self._filter is not None:
            kept_updates = await self._filter(kept_updates)
        if kept_updates:
            await self._store(kept_updates)
        for update in updates:
            if update.verb == "press":
                await self._press(update)
        if updates:
            self.heard.set()

    async def _store(self, updates: Sequence[Incoming]) -> None:
        parts = self._parts
        updates = [update for update in updates if self._is_for_us(update)]
        if not updates:
            return
        now_ms = parts.clock.unix_ms()

        def find_new(connection: apsw.Connection) -> list[bool]:
            return [
                not chats.is_received(connection, update.place.channel, update.update_id)
                for update in updates
            ]

        # counted and drawn here, because the transaction may be repeated
        excesses = [
            parts.router.over_rate_limit(update.place, update.at_s or now_ms / 1000) if is_new else 0
            for update, is_new in zip(updates, parts.database.read_now(find_new), strict=True)
        ]
        codes = [new_code() for _ in updates]

        def decide_all(connection: apsw.Connection) -> list[tuple[int, Verdict]]:
            return [
                self._decide(connection, update, excess, code, now_ms)
                for update, excess, code in zip(updates, excesses, codes, strict=True)
            ]

        for chat_id, verdict in await parts.database.append(decide_all):
            if verdict == "taken":
                self._conversations.nudge(chat_id)
            elif chat_id:  # a message to them was queued
                parts.deliveries.wake(chat_id)

    def _is_for_us(self, update: Incoming) -> bool:
        """Return whether an update is addressed to the bot, or continues the last one in its group that
        was."""
        parts, place = self._parts, update.place
        is_for_us = parts.router.is_for_us(update)
        if place.is_group and update.verb == "message":
            now_s, limits = parts.clock.unix_ms() / 1000, parts.channels[place.channel].limits
            last, last_s = self._last.pop(place, (None, 0.0))
            is_for_us = is_for_us or (
                last is not None and continues_act(last, update, limits, abs(now_s - last_s))
            )
            if is_for_us and seconds_for_more(update, limits):
                self._last[place] = update, now_s
                while len(self._last) > _MAX_LAST:
                    self._last.popitem(last=False)
        return is_for_us

    def _decide(
        self, connection: apsw.Connection, update: Incoming, excess: int, code: str, now_ms: int
    ) -> tuple[int, Verdict]:
        """Decide on one update and store the consequences, inside the transaction.

        `excess` is the number of messages over the rate limit, `code` a pairing code for a stranger. Returns
        the chat to which something was stored, or 0, and the verdict.
        """
        router = self._parts.router
        if router.person(connection, update.place) is None:
            if update.verb != "message" or not router.offer(connection, update, code, now_ms):
                return 0, "ignored"
            chat_id = chats.get_or_create_chat(connection, update.place).id
            return self._post_text(connection, chat_id, _offer_text(code), now_ms), "offered"
        if chats.is_received(connection, update.place.channel, update.update_id):
            return 0, "known"
        if excess:
            chat_id = chats.get_or_create_chat(connection, update.place).id
            if excess > 1:
                return 0, "flooded"
            text = (
                f"That was a lot at once: {self._parts.settings.flood_per_minute} messages a minute are read."
            )
            return self._post_text(connection, chat_id, f"{text} This one was not.", now_ms), "flooded"
        if update.verb == "edit":
            return self._handle_edit(connection, update, now_ms)
        if update.verb == "reaction":
            self._store_reaction(connection, update, now_ms)
            return 0, "known"
        row = chats.add_update(connection, update.place, update.update_id, to_json(update), now_ms)
        return chats.get_or_create_chat(connection, update.place).id, "known" if row is None else "taken"

    def _handle_edit(self, connection: apsw.Connection, update: Incoming, now_ms: int) -> tuple[int, Verdict]:
        """Replace an edited message that still waits, and drop a deleted one.

        If a turn works on the message, the turn reads the change. If the message was answered, post that the
        edit came too late. An edit that changes no word is ignored: platforms send one for a link's preview.
        """
        chat_id = chats.get_or_create_chat(connection, update.place).id
        has_contents = bool(update.text or update.files)
        if has_contents and (latest := chat_changes.read_latest_update(connection, chat_id, update.ref)):
            former = from_json(latest, Incoming)
            if (former.text, former.files) == (update.text, update.files):
                return 0, "known"
        body = to_json(msgspec.structs.replace(update, verb="message"))
        waits = chat_changes.replace_waiting_update(
            connection, chat_id, update.ref, body if has_contents else ""
        )
        begun = "" if waits else chat_changes.read_begun_update(connection, chat_id, update.ref)
        if begun:
            old_text = short(from_json(begun, Incoming).text, _MAX_SHOWN_CHARS)
            body = to_json(msgspec.structs.replace(update, quoted=old_text))
        row = chats.add_update(connection, update.place, update.update_id, body, now_ms)
        if begun:
            return chat_id, "taken"
        if row is not None:
            chats.set_update_state(connection, row, "done")  # stored only so that it counts once
        if not waits and has_contents:
            return self._post_text(connection, chat_id, EDITED_TOO_LATE, now_ms), "known"
        return 0, "known"

    def _store_reaction(self, connection: apsw.Connection, update: Incoming, now_ms: int) -> None:
        """Store a reaction to one of our messages, for the person's next message. A reaction that is removed
        before that is dropped."""
        sent = chat_changes.find_sent(connection, update.place, update.ref)
        if sent is None:
            return
        chat, body = sent
        if update.is_removed:
            chat_changes.drop_reaction(connection, chat.id, update.ref, update.text)
            return
        quoted = short(from_json(body, Outgoing).text, _MAX_SHOWN_CHARS)
        stored = msgspec.structs.replace(update, place=chat.place, quoted=quoted)
        chat_changes.add_reaction(connection, chat.place, update.update_id, to_json(stored), now_ms)

    def _post_text(self, connection: apsw.Connection, chat_id: int, text: str, now_ms: int) -> int:
        chats.queue_messages(connection, chat_id, [msgspec.json.encode(Outgoing(text)).decode()], now_ms)
        return chat_id

    async def _close(self, chat_id: int, ref: str, text: str) -> None:
        """Post the decision on a question. It replaces the message `ref` and its buttons, or is a new message
        if `ref` is empty."""
        body = msgspec.json.encode(Outgoing(text, edits=ref)).decode()
        now_ms = self._parts.clock.unix_ms()
        await self._parts.database.append(lambda db: chats.queue_messages(db, chat_id, [body], now_ms))
        self._parts.deliveries.wake(chat_id)

    async def _show_missing(self, press: Incoming) -> None:
        """Resend the messages that may be missing in the chat of a pressed button. A second press sends
        none."""
        parts, now_ms = self._parts, self._parts.clock.unix_ms()

        def work(connection: apsw.Connection) -> tuple[int, int]:
            if parts.router.person(connection, press.place) is None:
                return 0, 0
            chat_id = chats.get_or_create_chat(connection, press.place).id
            return chat_id, outbox.resend_missing(connection, chat_id, now_ms)

        chat_id, count = await parts.database.append(work)
        if count:
            parts.deliveries.wake(chat_id)
        with suppress(SendFailed):
            text = "Here it is." if count else "It is shown."
            await parts.channels[press.place.channel].answer(press, text)

    async def _press(self, update: Incoming) -> None:
        """Decide a question by a pressed button."""
        parts, location = self._parts, update.place
        if update.text == outbox.SHOW:
            await self._show_missing(update)
            return
        chat_id, question_text = parts.asking.chat_of(update.text), parts.asking.question_text(update.text)
        summary = parts.asking.summary_of(update.text)

        def read(connection: apsw.Connection) -> tuple[ChatPlace, ChatUser | None]:
            asked = chats.get_chat(connection, chat_id).place if chat_id else location
            return asked, parts.router.person(connection, location)

        question_place, person = await parts.database.read(read)
        text = OVER
        if person is None:
            text = REFUSED
        elif (question_place.channel, question_place.chat) == (location.channel, location.chat):
            is_own = question_place.user == location.user
            text = parts.asking.handle_press(chat_id, update.text, may_approve=person.approves, is_own=is_own)
        channel = parts.channels[location.channel]
        if question_text and parts.asking.is_decided(update.text):
            name = visible(update.user_name, 60)
            if update.ref and channel.limits.can_edit:
                await self._close(chat_id, update.ref, f"{question_text}\n\n**{text}** {name}")
            else:
                await self._close(chat_id, "", " ".join(filter(None, (f"**{text}**", name, summary))))
        with suppress(SendFailed):  # the decision holds even if this notice fails
            await channel.answer(update, text)
        log.info("press by %s on %s: %s", visible(update.user_name, 60), channel.name, text)


def _offer_text(code: str) -> str:
    return (
        f"This assistant is private. Your pairing code is `{code}`, good for {CODE_S // 60} minutes.\n"
        f"Whoever runs it can let you in with: `whet gateway pair accept {code}`"
    )
