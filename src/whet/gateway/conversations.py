"""Turn waiting updates into turns, in order within a conversation, and for all conversations in parallel.

A conversation has a task only while updates wait or a turn runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, Protocol

from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import Incoming
from whet.contract.errors import StoreError, WhetError
from whet.contract.messages import ImagePart
from whet.contract.texts import from_json
from whet.gateway.acts import ActReader, add_reactions, describe_change, take_reactions
from whet.gateway.chat_record import MAX_WAITING, ConversationParts, ConversationRows
from whet.gateway.chat_turn import BROKE, ChatTurn, error_line, steer
from whet.store import chat_changes, chats
from whet.store.chats import InRow

log: logging.Logger = logging.getLogger("whet.gateway")
_AGAIN_S = 5.0
_MAX_TEXT = 100_000
EDITED_TOO_LATE = "An edited message is read only until it is answered; that one was. Send it again."


class Conversations:
    """The active conversations of one process."""

    def __init__(self, parts: ConversationParts, commands: CommandRunner) -> None:
        self._parts = parts
        self._commands = commands
        self._active: dict[int, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._has_recovered = False

    @property
    def count(self) -> int:
        """The number of active conversations."""
        return len(self._active)

    async def recover(self) -> None:
        """Continue the turns and updates that an earlier process left, on channels that still exist."""
        parts = self._parts
        for chat_id, begun in await parts.database.read(lambda db: chats.list_open_chats(db, parts.channels)):
            self.nudge(chat_id, resume=begun)
        self._has_recovered = True

    def nudge(self, chat_id: int, *, resume: bool = False) -> None:
        """Wake or start a conversation, because an update waits. `resume` first continues a turn."""
        running = self._active.get(chat_id)
        if running is not None:
            running.wake.set()
        elif not self._closing:
            resumes = resume if self._has_recovered else None
            conversation = Conversation(self._parts, self._commands, chat_id, resume=resumes)
            self._active[chat_id] = conversation
            task = asyncio.create_task(self._run(conversation))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self, limit_s: float) -> bool:
        """Start nothing new, and wait up to `limit_s` for running turns. Returns False if some still run."""
        self._closing = True
        for conversation in self._active.values():
            conversation.closing = True
            conversation.wake.set()
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=limit_s)
            return not pending
        return True

    async def _run(self, conversation: Conversation) -> None:
        """Run a conversation until it is idle. If the store fails, try again later."""
        try:
            while True:
                try:
                    await conversation.process()
                    return
                except StoreError as error:
                    log.warning("conversation %d waits: %s", conversation.chat_id, error.message)
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self._active.pop(conversation.chat_id, None)


class CommandRunner(Protocol):
    """Runs the slash commands of a conversation."""

    def parse(self, update: Incoming) -> tuple[str, str] | None:
        """Return a message's command and its argument, or None if it is not a command."""
        ...

    async def waits(self, conversation: Conversation, name: str) -> bool:
        """Return whether a command must wait for the end of a turn. An unknown command need not."""
        ...

    async def run(self, conversation: Conversation, name: str, argument: str) -> None:
        """Run a command and post its output. Raises WhetError if it is refused."""
        ...


class Conversation:
    """One conversation while it is active."""

    def __init__(
        self, parts: ConversationParts, commands: CommandRunner, chat_id: int, *, resume: bool | None
    ) -> None:
        self.parts = parts
        self.chat_id = chat_id
        self.wake: asyncio.Event = asyncio.Event()
        self.closing = False
        self.record: ConversationRows
        self._commands = commands
        self._resume: bool | None = resume  # None: ask the store whether there is a turn to resume
        self._taken: set[int] = set()
        self._held: set[int] = set()
        self._reactions: Sequence[InRow] = ()
        self._is_stopping = False
        self._has_more = False
        self._acts = ActReader(lambda update: commands.parse(update) is not None)
        self._waits_for_more = False
        self._turn: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None and not self._turn.done()

    async def process(self) -> None:
        """Process waiting updates until there are none and no turn runs."""
        self.record = await ConversationRows.load(self.parts, self.chat_id)
        if self._resume is None:  # resume an unfinished turn before new input can reach it
            self._resume = self.parts.database.read_now(lambda db: chats.has_begun_turn(db, self.chat_id))
        if self._resume:
            self._resume = False
            if not await self._has_message():  # a message joins the unfinished turn, before its open calls
                self.begin_with(None)
        must_check = True
        while True:
            # A new row sets `wake`. Held rows are checked again when the turn begins and when it ends.
            while must_check or self.wake.is_set():
                self.wake.clear()
                must_check = not self.closing and await self._take_all()
            if self._turn is None and (self.closing or not self._waits_for_more):
                return
            await self._wait_for_turn_or_wake()
            must_check = bool(self._held) or self._has_more

    async def stop(self) -> tuple[bool, int]:
        """Cancel the turn and drop waiting messages. Returns whether a turn was cancelled, and the number of
        dropped messages."""
        waiting_ids = {row.id for row in await self.record.waiting()} | self._taken
        is_cancelled = self.parts.hosted.cancel(self.record.chat.session_id) or self._is_stopping
        self._is_stopping = False
        if self._turn is not None:
            if not is_cancelled:  # it waits for its session, or for a free slot
                is_cancelled = self._turn.cancel()
            await asyncio.wait({self._turn})
        dropped = await self.parts.database.append(
            lambda db: chats.drop_waiting_updates(db, self.chat_id, max(waiting_ids, default=0) + 1)
        )
        return is_cancelled, dropped

    def begin_with(
        self, text: str | None, images: Sequence[ImagePart] = (), row: InRow | None = None
    ) -> None:
        """Start a turn with a text, or resume an unfinished one if it is None. `row` is the update that it
        answers, or None if the text came from a command."""
        turn = ChatTurn(self.record, row)
        self._begun = turn.begun
        self._turn = asyncio.create_task(turn.run(text, images))

    async def _has_message(self) -> bool:
        """Return whether a message waits that the running turn should read."""
        if self.parts.settings.busy == "queue":
            return False
        updates = [from_json(row.body, Incoming) for row in await self.record.waiting()]
        first = next((update for update in updates if update.verb == "message"), None)
        return first is not None and self._commands.parse(first) is None

    async def _take_all(self) -> bool:
        """Process waiting updates in order. Returns whether to check again."""
        has_taken = holds = self._waits_for_more = False
        rows = await self.record.waiting()
        self._has_more = len(rows) >= MAX_WAITING
        self._reactions, rows = take_reactions(rows)
        for number, row in enumerate(rows):
            if row.id in self._taken:
                continue
            outcome = await self._take(row, rows[number + 1 :], holds=holds)
            if outcome == "again":
                return True  # later updates must not overtake it
            has_taken = has_taken or outcome == "taken"
            holds = holds or outcome == "held"
        return has_taken and self._has_more

    async def _wait_for_turn_or_wake(self) -> None:
        waker = asyncio.create_task(self.wake.wait())
        begins = () if self._begun is None or self._begun.done() else (self._begun,)
        turns = () if self._turn is None else (self._turn,)
        try:
            await asyncio.wait({waker, *turns, *begins}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
        self._collect()

    def _collect(self) -> None:
        """Clear a turn that has ended. Raises StoreError if it failed with that."""
        if self._turn is not None and self._turn.done():
            turn, self._turn = self._turn, None
            self._taken.clear()
            if not turn.cancelled():  # /stop cancels a turn that has not begun
                if turn.exception() is not None:
                    self._resume = None
                turn.result()

    async def _take(
        self, row: InRow, later_rows: Sequence[InRow], *, holds: bool
    ) -> Literal["taken", "held", "again"]:
        """Process an update, with later ones that belong to it.

        Returns "held" if it must wait: for the rest of its act, for the turn to begin or end, or because an
        earlier update is held (`holds`). Returns "again" if it must be processed again, because its turn has
        ended or the update has changed meanwhile.
        """
        update = from_json(row.body, Incoming)
        if update.verb == "edit":
            return await self._take_change(row, update)
        command = self._commands.parse(update)
        if command is not None:
            if (holds or self.is_running) and await self._commands.waits(self, command[0]):
                if row.id not in self._held:
                    await self.record.say(f"/{command[0]} waits for the end of this turn; /stop drops it")
                self._held.add(row.id)
                return "held"
            self._held.discard(row.id)
            # before it runs, so that a command that a crash interrupts is not run twice
            await self.record.mark(row, "done")
            await self._run_command(*command)
            return "taken"
        # a held message is older than the question, so it is not an answer
        is_reply = row.id not in self._held and not update.files and not update.is_forward
        if is_reply and await self._take_answer(row, update):
            return "taken"
        self._collect()
        # A turn that waits for a free slot can't receive input yet.
        if holds or (self._turn is not None and (self.parts.settings.busy == "queue" or not self._has_room)):
            self._held.add(row.id)
            return "held"
        return await self._take_act(row, later_rows)

    async def _take_act(self, row: InRow, later_rows: Sequence[InRow]) -> Literal["taken", "held", "again"]:
        """Start a turn with a message and the others of its act, or add them to the running turn."""
        act = self._acts.read([row, *later_rows], self.record.channel.limits)
        if act.wait_s:
            self._held.update(part.id for part in act.rows)
            self._waits_for_more = True
            asyncio.get_running_loop().call_later(act.wait_s, self.wake.set)
            return "held"
        self._held.difference_update(part.id for part in act.rows)
        act = add_reactions(act, self._reactions)
        if len(act.rows) > 1:
            row = await self.record.join(act)
            self._taken.update(part.id for part in act.rows[1:])
        text, images = await self._read(act.update)
        if self._turn is not None and not self._has_room:
            return "again"
        if self.parts.database.read_now(lambda db: chat_changes.read_waiting_body(db, row.id)) != row.body:
            return "again"  # it was edited or deleted while its files were fetched
        # only now, because everything that may fail is done: a taken row is not read again
        self._taken.add(row.id)
        if self._turn is None:
            self.begin_with(text, images, row)
        else:
            await steer(self.record, row, text, images)
        return "taken"

    async def _take_change(self, row: InRow, update: Incoming) -> Literal["taken", "held"]:
        """Pass an edit or deletion of a message to the turn that works on it. If the turn has ended, post
        that the edit came too late."""
        self._collect()
        if self._turn is None:
            await self.record.mark(row, "done")
            if update.text or update.files:
                await self.record.say(EDITED_TOO_LATE)
            return "taken"
        if not self._has_room:
            self._held.add(row.id)
            return "held"
        self._taken.add(row.id)
        await steer(self.record, row, describe_change(update), ())
        return "taken"

    async def _take_answer(self, row: InRow, update: Incoming) -> bool:
        """Handle a message as the answer to an open question, and post the decision. Returns False if it is
        not an answer."""
        location, asking = self.record.place, self.parts.asking
        room = (location.channel, location.chat)
        if not asking.is_waiting(room):
            return False
        person = await self.record.person()
        may_approve = person is not None and person.approves
        reply = asking.take_reply(
            self.chat_id, room, update.text, may_approve=may_approve, ref=update.ref, stop=self._stop_turn
        )
        if reply is None:
            return False
        await self.record.mark(row, "done")
        if reply.text:
            await self.record.say(reply.text)
        if reply.stops:
            await self._run_command("stop", "")
        return True

    def _stop_turn(self) -> None:
        self._is_stopping = self.parts.hosted.cancel(self.record.chat.session_id)

    @property
    def _has_room(self) -> bool:
        """Whether the turn runs, so that it can receive a message."""
        return self.parts.hosted.is_running(self.record.chat.session_id)

    async def _run_command(self, name: str, argument: str) -> None:
        try:
            await self._commands.run(self, name, argument)
        except StoreError:
            raise
        except WhetError as error:
            await self.record.say(error_line(error))
        except Exception as error:  # as for a turn
            log.error("conversation %d: /%s broke", self.chat_id, name, exc_info=error)
            await self.record.say(f"⚠️ {BROKE}")

    async def _read(self, update: Incoming) -> tuple[str, Sequence[ImagePart]]:
        person = await self.record.person()
        profile = self.parts.router.profile(person, self.record.place) if person else ""
        text, images = await self.parts.files.receive(self.record.channel, update, profile)
        if update.quoted:
            text = f"{wrap_in_tag('quoted', update.quoted)}\n{text}"
        if len(text) > _MAX_TEXT:
            text = f"{text[:_MAX_TEXT]}\n[{len(text) - _MAX_TEXT:,} more characters were left out]"
        return text, images
