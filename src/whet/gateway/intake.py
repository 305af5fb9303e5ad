"""Process updates from the platforms: store them before they are acknowledged, keep strangers out, apply the
rate limit.

This module decides whose updates count; `conversations.py` acts on them.
"""

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
    """Takes the updates of every channel. The filter returns the new updates that plugins let through."""

    def __init__(
        self,
        parts: ConversationParts,
        conversations: Conversations,
        update_filter: UpdateFilter | None = None,
    ) -> None:
        self._parts = parts
        self._conversations = conversations
        self._passed = update_filter
        self._last: OrderedDict[ChatPlace, tuple[Incoming, float]] = OrderedDict()
        self.heard: asyncio.Event = asyncio.Event()
        """Set once something came in."""

    async def take(self, updates: Sequence[Incoming]) -> None:
        """Store updates and wake their conversations; durable on return. Raises StoreError."""
        kept_updates = [update for update in updates if update.verb != "press"]
        if self._passed is not None:
            kept_updates = await self._passed(kept_updates)
        if kept_updates:
            await self._store(kept_updates)
        for update in updates:
            if update.verb == "press":
                await self._press(update)
        if updates:
            self.heard.set()

    async def _store(self, updates: Sequence[Incoming]) -> None:
        parts = self._parts
        updates = [incoming for incoming in updates if self._is_for_us(incoming)]
        if not updates:
            return
        looked = parts.database.read_now(
            lambda db: [
                (incoming, chats.is_received(db, incoming.place.channel, incoming.update_id))
                for incoming in updates
            ]
        )
        now_ms = parts.clock.unix_ms()
        judged = [
            (
                incoming,
                (
                    0
                    if is_known
                    else parts.router.over_rate_limit(incoming.place, incoming.at_s or now_ms / 1000),
                    new_code(),
                ),
            )
            for incoming, is_known in looked
        ]

        def work(connection: apsw.Connection) -> list[tuple[int, Verdict]]:
            return [self._decide(connection, update, how, now_ms) for update, how in judged]

        for chat_id, verdict in await parts.database.append(work):
            if verdict == "taken":
                self._conversations.nudge(chat_id)
            elif chat_id:  # a message to them was queued
                parts.deliveries.wake(chat_id)

    def _is_for_us(self, update: Incoming) -> bool:
        """Return whether an update is addressed to the bot, or belongs to the last one in a group that
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
        self, connection: apsw.Connection, update: Incoming, how: tuple[int, str], now_ms: int
    ) -> tuple[int, Verdict]:
        """Decide on one update and store the consequences, inside the transaction."""
        router, (over, code) = self._parts.router, how
        if router.person(connection, update.place) is None:
            if update.verb != "message" or not router.offer(connection, update, code, now_ms):
                return 0, "ignored"
            chat_id = chats.get_or_create_chat(connection, update.place).id
            return self._post_text(connection, chat_id, _offer_text(code), now_ms), "offered"
        if chats.is_received(connection, update.place.channel, update.update_id):
            return 0, "known"
        if over:
            chat_id = chats.get_or_create_chat(connection, update.place).id
            if over > 1:
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
        """Replace an edited message that still waits, and drop a deleted one. If a turn works on it, the
        change is read by the turn. If it was answered, post a message that says so. An edit that changes no
        word is none: platforms send one for a preview or a new tag of the member."""
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
            was = short(from_json(begun, Incoming).text, _MAX_SHOWN_CHARS)
            body = to_json(msgspec.structs.replace(update, quoted=was))
        row = chats.add_update(connection, update.place, update.update_id, body, now_ms)
        if begun:
            return chat_id, "taken"
        if row is not None:
            chats.set_update_state(connection, row, "done")  # stored only so that it counts once
        if not waits and has_contents:
            return self._post_text(connection, chat_id, EDITED_TOO_LATE, now_ms), "known"
        return 0, "known"

    def _store_reaction(self, connection: apsw.Connection, update: Incoming, now_ms: int) -> None:
        """Store a reaction to a message of ours in the reacting person's own conversation: the next message
        there brings it along. A reaction that is taken back before is dropped."""
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
        """Say how a question was decided: in place of the message `ref`, which loses its buttons, or in a
        message of its own if `ref` is empty."""
        body = msgspec.json.encode(Outgoing(text, edits=ref)).decode()
        now_ms = self._parts.clock.unix_ms()
        await self._parts.database.append(lambda db: chats.queue_messages(db, chat_id, [body], now_ms))
        self._parts.deliveries.wake(chat_id)

    async def _show_missing(self, press: Incoming) -> None:
        """Send again the messages that may be missing in the chat of a pressed button. A second press sends
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
        """Decide by a button. A press that a crash interrupts arrives again, when the question is over."""
        parts, location = self._parts, update.place
        if update.text == outbox.SHOW:
            await self._show_missing(update)
            return
        chat_id, question_text = parts.asking.chat_of(update.text), parts.asking.question_text(update.text)
        summary = parts.asking.summary_of(update.text)

        def read(connection: apsw.Connection) -> tuple[ChatPlace, ChatUser | None]:
            there = chats.get_chat(connection, chat_id).place if chat_id else location
            return there, parts.router.person(connection, location)

        there, person = await parts.database.read(read)
        text = OVER
        if person is None:
            text = REFUSED
        elif (there.channel, there.chat) == (location.channel, location.chat):
            is_own = there.user == location.user
            text = parts.asking.handle_press(chat_id, update.text, may_approve=person.approves, is_own=is_own)
        channel = parts.channels[location.channel]
        if question_text and parts.asking.is_decided(update.text):
            by = visible(update.user_name, 60)
            if update.ref and channel.limits.can_edit:
                await self._close(chat_id, update.ref, f"{question_text}\n\n**{text}** {by}")
            else:
                await self._close(chat_id, "", " ".join(filter(None, (f"**{text}**", by, summary))))
        with suppress(SendFailed):  # it is decided even if this notice fails
            await channel.answer(update, text)
        log.info("press by %s on %s: %s", visible(update.user_name, 60), channel.name, text)


def _offer_text(code: str) -> str:
    return (
        f"This assistant is private. Your pairing code is `{code}`, good for {CODE_S // 60} minutes.\n"
        f"Whoever runs it can let you in with: `whet gateway pair accept {code}`"
    )
