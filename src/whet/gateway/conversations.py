"""Conversations at work: what waits in the inbox becomes turns, in order, one conversation beside the other.

A conversation has a task only while something waits or runs in it. It does not know any platform.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, Protocol

from whet.contract.channels import Incoming
from whet.contract.errors import StoreError, WhetError
from whet.contract.messages import ImagePart
from whet.contract.texts import from_json
from whet.gateway.chat_record import MOST_WAITING, ConversationParts, ConversationRows
from whet.gateway.chat_turn import BROKE, ChatTurn, line_of, steer
from whet.store import chats
from whet.store.chats import InRow

log: logging.Logger = logging.getLogger("whet.gateway")
_AGAIN_S = 5.0
_MOST_TEXT = 100_000


class Conversations:
    """The conversations of one process that have something to do."""

    def __init__(self, parts: ConversationParts, commands: CommandRunner) -> None:
        self._parts = parts
        self._commands = commands
        self._at_work: dict[int, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._has_recovered = False

    @property
    def count(self) -> int:
        """How many have something to do."""
        return len(self._at_work)

    async def recover(self) -> None:
        """Go on with everything that an earlier process left on the channels that there still are."""
        parts = self._parts
        for chat_id, begun in await parts.database.read(lambda db: chats.open_chats(db, parts.channels)):
            self.nudge(chat_id, resume=begun)
        self._has_recovered = True

    def nudge(self, chat_id: int, *, resume: bool = False) -> None:
        """Say that something waits in a conversation."""
        found = self._at_work.get(chat_id)
        if found is not None:
            found.wake.set()
        elif not self._closing:
            resumes = resume if self._has_recovered else None
            one = Conversation(self._parts, self._commands, chat_id, resume=resumes)
            self._at_work[chat_id] = one
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

    async def waits(self, conversation: Conversation, name: str) -> bool:
        """Whether a command of that name waits for a turn's end; an unknown one is answered at once."""
        ...

    async def run(self, conversation: Conversation, name: str, rest: str) -> None:
        """Run a command and post what it says. Raises WhetError to say no."""
        ...


class Conversation:
    """One conversation while it has something to do."""

    def __init__(
        self, parts: ConversationParts, commands: CommandRunner, chat_id: int, *, resume: bool | None
    ) -> None:
        self.parts = parts
        self.chat_id = chat_id
        self.wake: asyncio.Event = asyncio.Event()
        self.closing = False
        self.record: ConversationRows
        self._commands = commands
        self._resume: bool | None = resume  # None: the store knows whether there is a turn to go on with
        self._taken: set[int] = set()
        self._held: set[int] = set()
        self._has_more = False
        self._turn: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None and not self._turn.done()

    async def work(self) -> None:
        """Take what waits until nothing does and no turn runs."""
        self.record = await ConversationRows.load(self.parts, self.chat_id)
        if self._resume is None:  # what was begun is gone on with, before anything else gets into its turn
            self._resume = self.parts.database.read_now(lambda db: chats.is_begun(db, self.chat_id))
        if self._resume:
            self._resume = False
            if not await self._has_words():  # else they join the unfinished turn, before its open calls
                self.begin_with(None)
        looks = True
        while True:
            # A row that comes wakes this; one that is held is looked at again as the turn begins and ends.
            while looks or self.wake.is_set():
                self.wake.clear()
                looks = not self.closing and await self._take_all()
            if self._turn is None:
                return
            await self._turn_or_wake()
            looks = bool(self._held) or self._has_more

    async def stop(self) -> tuple[bool, int]:
        """Cancel the turn and drop what waits; gives whether one ran and how many messages were dropped."""
        waiting = {row.id for row in await self.record.waiting()} | self._taken
        ran = self.parts.hosted.cancel(self.record.chat.session_id)
        if self._turn is not None:
            if not ran:  # it waits for its session, or for room
                ran = self._turn.cancel()
            await asyncio.wait({self._turn})
        dropped = await self.parts.database.append(
            lambda db: chats.drop_waiting(db, self.chat_id, max(waiting, default=0) + 1)
        )
        return ran, dropped

    def begin_with(
        self, text: str | None, images: Sequence[ImagePart] = (), row: InRow | None = None
    ) -> None:
        """Run a turn with this text, which came from a command where there is no row; None goes on with an
        unfinished one."""
        turn = ChatTurn(self.record, row)
        self._begun = turn.begun
        self._turn = asyncio.create_task(turn.run(text, images))

    async def _has_words(self) -> bool:
        """Whether a message waits that is to be read by the turn, and not after it."""
        if self.parts.settings.busy == "queue":
            return False
        rows = await self.record.waiting()
        return bool(rows) and self._commands.parse(from_json(rows[0].body, Incoming)) is None

    async def _take_all(self) -> bool:
        """Take what waits, in order; gives whether to look again."""
        took = holds = False
        rows = await self.record.waiting()
        self._has_more = len(rows) >= MOST_WAITING
        for row in rows:
            if row.id in self._taken:
                continue
            taken = await self._take(row, holds=holds)
            if taken == "again":
                return True  # nothing that came later may overtake it
            took = took or taken == "taken"
            holds = holds or taken == "held"
        return took and self._has_more

    async def _turn_or_wake(self) -> None:
        assert self._turn is not None
        waker = asyncio.create_task(self.wake.wait())
        begins = () if self._begun is None or self._begun.done() else (self._begun,)
        try:
            await asyncio.wait({self._turn, waker, *begins}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
        self._collect()

    def _collect(self) -> None:
        """Put a turn that has ended away. Raises StoreError where it failed by one."""
        if self._turn is not None and self._turn.done():
            done, self._turn = self._turn, None
            self._taken.clear()
            if not done.cancelled():  # by /stop, before it had begun
                if done.exception() is not None:
                    self._resume = None
                done.result()

    async def _take(self, row: InRow, *, holds: bool) -> Literal["taken", "held", "again"]:
        """Do what an update asks for. held: it waits for the turn's beginning or end, as messages after it
        have to (`holds`); again: the turn that it was for has ended, so it is looked at again."""
        update = from_json(row.body, Incoming)
        command = self._commands.parse(update)
        if command is not None:
            if (holds or self.is_running) and await self._commands.waits(self, command[0]):
                if row.id not in self._held:
                    await self.record.say(f"/{command[0]} waits for the end of this turn; /stop drops it")
                self._held.add(row.id)
                return "held"
            self._held.discard(row.id)
            await self.record.mark(row, "done")  # first: a command that a crash cuts off is not run twice
            await self._command(*command)
            return "taken"
        is_reply = row.id not in self._held and not update.files  # what came before a question is no answer
        if is_reply and await self._answered(row, update.text):
            return "taken"
        self._collect()
        # A turn that waits for room can't be given anything yet; a /stop that comes after this can end it.
        if holds or (self._turn is not None and (self.parts.settings.busy == "queue" or not self._has_room)):
            self._held.add(row.id)
            return "held"
        self._held.discard(row.id)
        text, images = await self._read(update)
        if self._turn is not None and not self._has_room:
            return "again"
        self._taken.add(row.id)  # after what may fail: without a turn nobody would look at the row again
        if self._turn is None:
            self.begin_with(text, images, row)
        else:
            await steer(self.record, row, text, images)
        return "taken"

    async def _answered(self, row: InRow, text: str) -> bool:
        """Take a message as the answer to an open question of the room, and say what was decided."""
        place, asking = self.record.place, self.parts.asking
        room = (place.channel, place.chat)
        if not asking.is_waiting(room):
            return False
        person = await self.record.person()
        reply = asking.typed(self.chat_id, room, text, may=person is not None and person.approves)
        if reply is None:
            return False
        await self.record.mark(row, "done")
        if reply.text:
            await self.record.say(reply.text)
        if reply.stops:
            await self._command("stop", "")
        return True

    @property
    def _has_room(self) -> bool:
        """Whether the turn has begun to run, and so can be given a message."""
        return self.parts.hosted.is_running(self.record.chat.session_id)

    async def _command(self, name: str, rest: str) -> None:
        try:
            await self._commands.run(self, name, rest)
        except StoreError:
            raise
        except WhetError as error:
            await self.record.say(line_of(error))
        except Exception as error:  # as for a turn
            log.error("conversation %d: /%s broke", self.chat_id, name, exc_info=error)
            await self.record.say(f"⚠️ {BROKE}")

    async def _read(self, update: Incoming) -> tuple[str, Sequence[ImagePart]]:
        person = await self.record.person()
        profile = self.parts.router.profile(person, self.record.place) if person else ""
        text, images = await self.parts.files.receive(self.record.channel, update, profile)
        if len(text) > _MOST_TEXT:
            text = f"{text[:_MOST_TEXT]}\n[{len(text) - _MOST_TEXT:,} more characters were left out]"
        return text, images
