"""Read and write the stored data of a conversation: its chat and session, its person, updates and
messages."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import apsw
import msgspec

from whet.app.conversations.hosted import SessionHost
from whet.app.services import Services
from whet.channels.pieces import split_message
from whet.clock import Clock
from whet.config.schema import GatewaySettings
from whet.contract.channels import Channel, ChatPlace, Outgoing
from whet.gateway.acts import WaitingAct
from whet.gateway.deliveries import DRAFT, Deliveries
from whet.gateway.drafts import Drafts
from whet.gateway.files import ChatFiles
from whet.gateway.open_questions import ChatQuestions, QuestionRoute
from whet.gateway.router import ChatUser, Router
from whet.store import chats, sessions
from whet.store.chats import ChatRecord, InRow
from whet.store.database import StateDatabase

MAX_WAITING = 500
"""The number of updates that are read at a time."""


class ConversationParts(msgspec.Struct, frozen=True):
    """The objects that all conversations use."""

    services: Services
    hosted: SessionHost
    database: StateDatabase
    clock: Clock
    settings: GatewaySettings
    channels: dict[str, Channel]
    router: Router
    deliveries: Deliveries
    drafts: Drafts
    asking: ChatQuestions
    files: ChatFiles


class ConversationRows:
    """The stored data of one conversation.

    The chat's row is read once, because only this class changes it. Rows that an index finds are read without
    a thread, which would take longer than the query.
    """

    def __init__(self, parts: ConversationParts, chat: ChatRecord) -> None:
        self.parts = parts
        self.chat = chat

    @classmethod
    async def load(cls, parts: ConversationParts, chat_id: int) -> ConversationRows:
        """Read a conversation. Raises StoreError."""
        return cls(parts, parts.database.read_now(lambda db: chats.get_chat(db, chat_id)))

    @property
    def place(self) -> ChatPlace:
        """The chat that the conversation is in."""
        return self.chat.place

    @property
    def channel(self) -> Channel:
        """The channel of the conversation."""
        return self.parts.channels[self.place.channel]

    async def person(self) -> ChatUser | None:
        """Return the person of the conversation, or None if they are no longer permitted."""
        router = self.parts.router
        user = router.find_in_file(self.place)
        return user or self.parts.database.read_now(lambda db: router.person(db, self.place))

    async def session_id(self, person: ChatUser) -> str:
        """Return the conversation's session. Creates one if there is none, or if the person's profile has
        changed."""
        session_id = self.chat.session_id
        if not session_id:
            return await self.begin_session(person)
        profile = self.parts.database.read_now(lambda db: sessions.profile_of(db, session_id))
        if profile == self.parts.router.profile(person, self.place):
            return session_id
        return await self.begin_session(person, succeeds_current=False)

    async def begin_session(
        self, person: ChatUser, title: str = "", warm: str = "", *, succeeds_current: bool = True
    ) -> str:
        """Create a session for the conversation. With `succeeds_current`, it succeeds the current one."""
        parts = self.parts
        profile = parts.router.profile(person, self.place)
        session_id = await parts.hosted.new_session(
            title=title,
            warm=warm,
            source=self.place.channel,
            profile=profile,
            workspace=parts.files.workspace(profile),
            leaving=self.chat.session_id if succeeds_current else "",
        )
        await parts.database.append(lambda db: chats.set_session(db, self.chat.id, session_id))
        self.chat: ChatRecord = msgspec.structs.replace(self.chat, session_id=session_id)
        return session_id

    async def post(self, messages: Sequence[Outgoing]) -> None:
        """Queue messages to the person. Durable on return."""
        await self._post(messages, self.chat.id)

    async def say(self, text: str) -> None:
        """Queue text to the person, split into as many messages as needed."""
        await self.post([Outgoing(piece) for piece in split_message(text, self.channel.limits.message_chars)])

    async def waiting(self) -> list[InRow]:
        """Return the waiting updates, oldest first."""
        return self.parts.database.read_now(lambda db: chats.list_waiting(db, self.chat.id, MAX_WAITING))

    async def mark(self, row: InRow, state: chats.InState) -> None:
        """Set an update's state. Durable on return."""
        await self.parts.database.append(lambda db: chats.set_update_state(db, row.id, state))

    async def join(self, act: WaitingAct) -> InRow:
        """Store an act of several messages as one update, and return its row. Durable on return."""
        first, *others = act.rows
        body = msgspec.json.encode(act.update).decode()

        def work(connection: apsw.Connection) -> None:
            chats.replace_body(connection, first.id, body)
            for row in others:
                chats.set_update_state(connection, row.id, "done")

        await self.parts.database.append(work)
        return msgspec.structs.replace(first, body=body)

    async def cross_off(self, row: InRow | None) -> bool:
        """Mark the input of a turn that can't run as dropped or done. Returns whether any was unfinished."""

        def drop_input(connection: apsw.Connection) -> bool:
            is_waiting = row is not None and chats.is_waiting(connection, row.id)
            had_begun = chats.finish_taken_updates(connection, self.chat.id)
            if row is not None:
                chats.set_update_state(connection, row.id, "dropped")
            return is_waiting or had_begun

        return await self.parts.database.append(drop_input)

    def queue_answer(self, connection: apsw.Connection, text: str, now_ms: int) -> None:
        """Queue an answer inside a transaction. Its first message replaces the draft."""
        messages = [
            Outgoing(piece) for piece in split_message(text, self.channel.limits.message_chars) if piece
        ]
        if messages:
            messages[0] = msgspec.structs.replace(messages[0], edits=DRAFT)
        chats.queue_messages(connection, self.chat.id, _encode_messages(messages), now_ms)

    def question_route(self, chat: ChatRecord | None = None) -> QuestionRoute:
        """Return the route for questions in this conversation, or in another one."""
        chat = chat or self.chat
        location = chat.place
        return QuestionRoute(
            chat.id,
            (location.channel, location.chat),
            lambda messages: self._post(messages, chat.id),
            self._has_arrived,
            self.parts.channels[location.channel].limits,
            self._precedes,
        )

    async def approver(self) -> QuestionRoute | None:
        """Return the route to a person who may decide: in this group if they have talked here, otherwise in
        their private chat. Returns None if there is no such person."""
        location, approvers = self.place, self.parts.router.approvers(self.place.channel)

        def find(connection: apsw.Connection) -> ChatRecord | None:
            users = [user for channel, user in approvers if location.is_group and channel == location.channel]
            if any(chats.find_user_chat(connection, location.channel, user, location.chat) for user in users):
                return self.chat
            records = (chats.find_user_chat(connection, channel, user) for channel, user in approvers)
            return next((chat for chat in records if chat is not None), None)

        chat = await self.parts.database.read(find)
        return None if chat is None else self.question_route(chat)

    async def _post(self, messages: Sequence[Outgoing], chat_id: int) -> Sequence[int]:
        now_ms = self.parts.clock.unix_ms()
        numbers = await self.parts.database.append(
            lambda db: chats.queue_messages(db, chat_id, _encode_messages(messages), now_ms)
        )
        self.parts.deliveries.wake(chat_id)
        return numbers

    def _has_arrived(self, messages: Sequence[int]) -> bool:
        return self.parts.database.read_now(lambda db: chats.has_arrived(db, messages))

    def _precedes(self, ref: str, messages: Sequence[int]) -> bool:
        """Return whether a message is older than one of ours. Platform ids that are numbers grow with time.

        A message that is delivered late may be older than a question that was posted before it arrived.
        """
        refs = self.parts.database.read_now(lambda db: chats.read_refs(db, messages))
        number = _parse_number(ref)
        others = [other for other in map(_parse_number, refs) if other is not None]
        return number is not None and any(other > number for other in others)


def _parse_number(ref: str) -> Decimal | None:
    text = ref.rpartition("/")[2]  # Slack's may begin with a channel
    return Decimal(text) if text.isascii() and text.replace(".", "", 1).isdigit() else None


def _encode_messages(messages: Sequence[Outgoing]) -> list[str]:
    return [msgspec.json.encode(message).decode() for message in messages]
