"""Conversations at work: what waits in the inbox becomes turns, in order, one conversation beside the other.

A conversation has a task only while something waits or runs in it. Which update a turn has taken in, and what
answers it, is stored with the turn itself, so that a crash at any moment loses, doubles and reorders nothing.
It does not know any platform.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, Protocol

import apsw
import msgspec

from whet.app.build import App
from whet.app.hosted import Receipt, SessionHost
from whet.clock import Clock
from whet.config.schema import GatewaySettings
from whet.contract.errors import StoreError, WhetError
from whet.contract.events import EndReason, Event
from whet.contract.messages import ImagePart
from whet.gateway.asking import ChatPerson, ChatQuestions, QuestionRoute
from whet.gateway.channel import GatewayChannel, Incoming, Outgoing
from whet.gateway.deliveries import DRAFT, Deliveries
from whet.gateway.drafts import Drafts, MessageDraft
from whet.gateway.files import ChatFiles
from whet.gateway.pieces import pieces
from whet.gateway.router import ChatUser, Router
from whet.log import mask
from whet.store import chats, sessions
from whet.store.chats import ChatRecord, InRow
from whet.store.database import StateDatabase
from whet.store.jobs import AtEnd, Queued
from whet.store.transcript import TurnRecord

log = logging.getLogger("whet.gateway")
_AGAIN_S = 5.0
_MOST_TEXT = 100_000
_BROKE = "something went wrong; the log has it"


class ConversationParts(msgspec.Struct, frozen=True):
    """What conversations are made of."""

    app: App
    hosted: SessionHost
    database: StateDatabase
    clock: Clock
    settings: GatewaySettings
    channels: dict[str, GatewayChannel]
    router: Router
    deliveries: Deliveries
    drafts: Drafts
    asking: ChatQuestions
    files: ChatFiles


class Conversations:
    """The conversations of one process that have something to do."""

    def __init__(self, parts: ConversationParts, commands: CommandRunner) -> None:
        self._parts = parts
        self._commands = commands
        self._at_work: dict[int, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def count(self) -> int:
        """How many have something to do."""
        return len(self._at_work)

    async def recover(self) -> None:
        """Go on with everything that an earlier process left on the channels that there still are."""
        parts = self._parts
        for chat_id, begun in await parts.database.read(lambda db: chats.open_chats(db, parts.channels)):
            self.nudge(chat_id, resume=begun)

    def nudge(self, chat_id: int, *, resume: bool = False) -> None:
        """Say that something waits in a conversation."""
        found = self._at_work.get(chat_id)
        if found is not None:
            found.wake.set()
        elif not self._closing:
            one = self._at_work[chat_id] = Conversation(self._parts, self._commands, chat_id, resume=resume)
            task = asyncio.create_task(self._run(one))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self, limit_s: float) -> bool:
        """Begin nothing more and give what runs this long; False where something still runs."""
        self._closing = True
        for one in self._at_work.values():
            one.closing = True
            one.wake.set()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=limit_s)
            return not left
        return True

    async def _run(self, one: Conversation) -> None:
        """Bring a conversation to rest. A store that fails is tried again later."""
        try:
            while True:
                try:
                    await one.work()
                    return
                except StoreError as error:
                    log.warning("conversation %d waits: %s", one.chat_id, error.message)
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self._at_work.pop(one.chat_id, None)


class CommandRunner(Protocol):
    """What a conversation does with slash commands."""

    def parse(self, update: Incoming) -> tuple[str, str] | None:
        """Give the command of a message and what follows it; None for a message that is none."""
        ...

    async def run(self, conversation: Conversation, name: str, rest: str) -> None:
        """Run a command and post what it says. Raises WhetError to say no."""
        ...


class Conversation:
    """One conversation while it has something to do."""

    def __init__(
        self, parts: ConversationParts, commands: CommandRunner, chat_id: int, *, resume: bool
    ) -> None:
        self.parts = parts
        self.chat_id = chat_id
        self.wake = asyncio.Event()
        self.closing = False
        self._commands = commands
        self._resume = resume
        self._taken: set[int] = set()
        self._held: set[int] = set()
        self._turn: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None and not self._turn.done()

    async def work(self) -> None:
        """Take what waits until nothing does and no turn runs."""
        if self._resume:
            self._resume = False
            self._turn = asyncio.create_task(self._run_turn(None, None, ()))
        while True:
            self.wake.clear()
            took = False if self.closing else await self._take_all()
            if took or (self.wake.is_set() and not self.closing):
                continue
            if self._turn is None:
                return
            await self._turn_or_wake()

    async def post(self, messages: Sequence[Outgoing], chat_id: int = 0) -> None:
        """Queue messages to the person, or to another conversation; durable on return."""
        to = chat_id or self.chat_id
        bodies = [msgspec.json.encode(message).decode() for message in messages]
        now_ms = self.parts.clock.unix_ms()
        await self.parts.database.append(lambda db: chats.post(db, to, bodies, now_ms))
        self.parts.deliveries.wake(to)

    async def say(self, text: str, *, quiet: bool = False) -> None:
        """Queue text to the person, in as many messages as it takes."""
        chat = self.chat()
        limit = self.parts.channels[chat.place.channel].limits.message_chars
        await self.post([Outgoing(piece, quiet=quiet) for piece in pieces(text, limit)])

    def chat(self) -> ChatRecord:
        """Give the conversation's row."""
        return self.parts.database.read_now(lambda db: chats.chat(db, self.chat_id))

    async def session_id(self, chat: ChatRecord) -> str:
        """Give the session that the conversation goes on in, begun where there is none, and where who talks
        here has another memory by now than the session has."""
        if not chat.session_id:
            return await self.begin_session(chat)
        person = self.person(chat)
        has = self.parts.database.read_now(lambda db: sessions.profile_of(db, chat.session_id))
        if person is None or has == self.parts.router.profile(person, chat.place):
            return chat.session_id
        return await self.begin_session(msgspec.structs.replace(chat, session_id=""))

    async def begin_session(self, chat: ChatRecord, title: str = "", warm: str = "") -> str:
        """Begin a session for the conversation, after the one that it had."""
        parts, place = self.parts, chat.place
        person = self.person(chat)
        profile = parts.router.profile(person, place) if person else f"stranger-{chat.id}"
        leaving = chat.session_id
        session_id = await parts.hosted.new_session(
            title=title,
            warm=warm,
            source=place.channel,
            profile=profile,
            workspace=parts.files.workspace(profile),
            leaving=leaving,
        )
        await parts.database.append(lambda db: chats.set_session(db, chat.id, session_id))
        return session_id

    def person(self, chat: ChatRecord) -> ChatUser | None:
        """Give who talks here; None for somebody who is not let in any more."""
        return self.parts.database.read_now(lambda db: self.parts.router.person(db, chat.place))

    async def stop(self) -> tuple[bool, int]:
        """Cancel the turn and drop what waits; gives whether one ran and how many messages were dropped."""
        chat = self.chat()
        waiting = {row.id for row in self._waiting()} | self._taken
        ran = self.parts.hosted.cancel(chat.session_id)
        if self._turn is not None:
            if not ran:  # it waits for its session, or for room
                ran = self._turn.cancel()
            await asyncio.wait({self._turn})
        dropped = await self.parts.database.append(
            lambda db: chats.drop_waiting(db, self.chat_id, max(waiting, default=0) + 1)
        )
        return ran, dropped

    def begin_with(self, text: str | None) -> None:
        """Run a turn with this text, which came from a command; None goes on with an unfinished one."""
        self._turn = asyncio.create_task(self._run_turn(None, text, ()))

    async def _take_all(self) -> bool:
        took = holds = False
        for row in self._waiting():
            taken = await self._take(row, holds=holds)
            if taken == "again":
                return True  # nothing that came later may overtake it
            took = took or taken == "taken"
            holds = holds or taken == "held"
        return took

    def _waiting(self) -> list[InRow]:
        rows = self.parts.database.read_now(lambda db: chats.waiting(db, self.chat_id, 500))
        return [row for row in rows if row.id not in self._taken]

    async def _turn_or_wake(self) -> None:
        assert self._turn is not None
        waker = asyncio.create_task(self.wake.wait())
        try:
            await asyncio.wait({self._turn, waker}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
        self._collect()

    def _collect(self) -> None:
        """Put a turn that has ended away. Raises StoreError where it failed by one."""
        if self._turn is not None and self._turn.done():
            done, self._turn = self._turn, None
            self._taken.clear()
            if not done.cancelled():  # by /stop, before it had begun
                done.result()

    async def _take(self, row: InRow, *, holds: bool) -> Literal["taken", "held", "again"]:
        """Do what an update asks for. held: it has to wait for the turn's end, as messages after it have to
        (`holds`); again: the turn that it was for has ended, so it is looked at anew."""
        update = msgspec.json.decode(row.body, type=Incoming)
        command = self._commands.parse(update)
        if command is not None:
            await self._mark(row, "done")  # first: a command that a crash cuts off is not run twice
            await self._command(*command)
            return "taken"
        is_reply = row.id not in self._held and not update.files  # what came before a question is no answer
        if is_reply and self.parts.asking.replied(self.chat_id, update.text):
            await self._mark(row, "done")
            return "taken"
        self._collect()
        if holds or (self._turn is not None and self.parts.settings.busy == "queue"):
            self._held.add(row.id)
            return "held"
        self._held.discard(row.id)
        self._taken.add(row.id)
        text, images = await self._read(update)
        if self._turn is not None and not await self._steered(row, text, images):
            self._taken.discard(row.id)
            return "again"
        if self._turn is None:
            self._turn = asyncio.create_task(self._run_turn(row, text, images))
        return "taken"

    async def _steered(self, row: InRow, text: str, images: Sequence[ImagePart]) -> bool:
        """Give a message to the turn that runs; False where that has ended meanwhile."""
        hosted, session_id = self.parts.hosted, self.chat().session_id
        while self._turn is not None and not hosted.is_running(session_id):
            if self._turn.done():
                self._collect()
                return False
            await asyncio.wait({self._turn}, timeout=0.05)  # it is being opened
        await hosted.submit(
            session_id, text, images, emit=_ignore, busy="steer", receipt=self._receipt(row, session_id)
        )
        return True

    async def _command(self, name: str, rest: str) -> None:
        try:
            await self._commands.run(self, name, rest)
        except StoreError:
            raise
        except WhetError as error:
            await self.say(_line(error))
        except Exception as error:  # as for a turn
            log.error("conversation %d: /%s broke", self.chat_id, name, exc_info=error)
            await self.say(f"⚠️ {_BROKE}")

    async def _read(self, update: Incoming) -> tuple[str, Sequence[ImagePart]]:
        chat = self.chat()
        person = self.person(chat)
        profile = self.parts.router.profile(person, chat.place) if person else ""
        channel = self.parts.channels[chat.place.channel]
        text, images = await self.parts.files.receive(channel, update, profile)
        if len(text) > _MOST_TEXT:
            text = f"{text[:_MOST_TEXT]}\n[{len(text) - _MOST_TEXT:,} more characters were left out]"
        return text, images

    async def _run_turn(self, row: InRow | None, text: str | None, images: Sequence[ImagePart]) -> None:
        """Run a turn to its end. Raises StoreError where it could not begin; then it is tried again."""
        parts, chat = self.parts, self.chat()
        person = self.person(chat)
        if person is None:  # let in once, and not any more
            await self._mark_all(row)
            return
        channel = parts.channels[chat.place.channel]
        draft = MessageDraft(
            parts.database, channel, chat, parts.deliveries, first_after_s=parts.settings.stream_after_s
        )
        parts.drafts.begin(draft)
        try:
            await parts.hosted.submit(
                await self.session_id(chat),
                text,
                images,
                emit=draft.hear,
                person=ChatPerson(
                    parts.asking, self._desk(chat), person.name, None if person.approves else self._approver
                ),
                receipt=self._receipt(row),
            )
        except StoreError:
            raise
        except WhetError as error:
            await self._mark_all(row)
            await self.say(_line(error))
        except Exception as error:  # the conversation's boundary: what waits goes on
            log.error("conversation %d: a turn broke", self.chat_id, exc_info=error)
            if await self._mark_all(row):  # else the turn's end has said it
                await self.say(f"⚠️ {_BROKE}")
        finally:
            await parts.drafts.end(self.chat_id)
            parts.deliveries.wake(self.chat_id)

    def _desk(self, chat: ChatRecord) -> QuestionRoute:
        """Give where questions are put that belong into a conversation."""
        place = chat.place
        return QuestionRoute(
            chat.id,
            (place.channel, place.chat),
            lambda messages: self.post(messages, chat.id),
            self.parts.channels[place.channel].limits.message_chars,
        )

    async def _approver(self) -> QuestionRoute | None:
        """Find who may decide for somebody who may not: in this group where they have talked here, else alone
        with them."""
        mine = self.chat()
        place, approvers = mine.place, self.parts.router.approvers(mine.place.channel)

        def find(connection: apsw.Connection) -> ChatRecord | None:
            here = [user for channel, user in approvers if place.is_group and channel == place.channel]
            if any(chats.of_user(connection, place.channel, user, place.chat) for user in here):
                return mine
            found = (chats.of_user(connection, channel, user) for channel, user in approvers)
            return next((chat for chat in found if chat is not None), None)

        chat = self.parts.database.read_now(find)
        return None if chat is None else self._desk(chat)

    def _receipt(self, row: InRow | None, steered: str = "") -> Receipt:
        """Say what is stored with a message. `steered`: the session whose running turn it is given to; where
        that had just answered, the answer goes out before the turn goes on."""
        now_ms = self.parts.clock.unix_ms()

        def stored(connection: apsw.Connection) -> Sequence[Queued]:
            if row is not None:
                chats.mark(connection, row.id, "begun")
            session = self.parts.hosted.opened(steered) if steered else None
            if session is not None and session.log.turn_number:
                last = session.log.messages[-1]
                bodies = self._written(connection, last.text) if last.is_final else []
                chats.post(connection, self.chat_id, bodies, now_ms)
            return ()

        return Receipt(stored, self._ended)

    def _written(self, connection: apsw.Connection, text: str) -> list[str]:
        """Write an answer as the messages that it takes, the first one in the draft's place."""
        place = chats.chat(connection, self.chat_id).place
        limit = self.parts.channels[place.channel].limits.message_chars
        messages = [Outgoing(piece) for piece in pieces(text, limit) if piece]
        if messages:
            messages[0] = msgspec.structs.replace(messages[0], edits=DRAFT)
        return [msgspec.json.encode(message).decode() for message in messages]

    def _ended(self, turn: TurnRecord, reason: EndReason, text: str) -> AtEnd:
        """Cross off what the turn took in and queue what answers it, in the turn's last transaction."""
        now_ms = self.parts.clock.unix_ms()

        def work(connection: apsw.Connection) -> Sequence[Queued]:
            chats.finish_begun(connection, self.chat_id)
            bodies = self._written(connection, _answer(turn, reason, text))
            chats.post(connection, self.chat_id, bodies, now_ms)
            return ()

        return work

    async def _mark(self, row: InRow, state: chats.InState) -> None:
        await self.parts.database.append(lambda db: chats.mark(db, row.id, state))

    async def _mark_all(self, row: InRow | None) -> bool:
        """Cross off what a turn took in that can't be run; gives whether any of it was open still."""

        def work(connection: apsw.Connection) -> bool:
            waits = row is not None and chats.is_waiting(connection, row.id)
            begun = chats.finish_begun(connection, self.chat_id)
            if row is not None:
                chats.mark(connection, row.id, "dropped")
            return waits or begun

        return await self.parts.database.append(work)


def _answer(turn: TurnRecord, reason: EndReason, text: str) -> str:
    """Write what a turn came to: its answer, and why it ended where it did not end well."""
    if reason == "answered":
        return text or "(no answer)"
    if reason == "cancelled":
        return "Stopped."
    why = mask(" ".join(turn.error.split()))[:400] or {"budget": "the turn reached its limit"}.get(
        reason, _BROKE
    )
    return f"{text}\n\n⚠️ {why}".strip()


def _line(error: WhetError) -> str:
    hint = f" ({error.hint})" if error.hint else ""
    return mask(f"{error.message}{hint}")


def _ignore(event: Event) -> None:
    """Show nothing: the running turn's own listener does."""
