"""One open conversation: its log, model link, tools and limits, and the observers of its turns.

Created by `app/conversations/session_builder.py` and, for reviews, by `review/fork.py`. A session is
immutable and is used by one task at a time; only its inbox may be touched while a turn runs. It depends on
the store and the contracts only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import msgspec

from whet.clock import Clock
from whet.contract.events import Emit, EndReason, Event, Notice, Steered, TurnEnd
from whet.contract.messages import ImagePart, Message, Part, TextOrigin, TextPart, Usage
from whet.contract.protocols import Context, Gate, ModelInfo, ModelLink, Person
from whet.contract.receipts import TurnReceipt
from whet.contract.tools import Buffers, Tool
from whet.late import LatePart
from whet.store import turns
from whet.store.jobs import QueuedJob, TransactionWork, queue_nothing
from whet.store.transcript import Transcript, TurnRecord


class TurnLimits(msgspec.Struct, frozen=True):
    """The limits of one turn: model calls, seconds without those spent asking a person, and characters of one
    answer (0: no cap)."""

    steps: int
    turn_s: float | None
    answer_chars: int = 0


class InboxEntry(msgspec.Struct, frozen=True):
    """A queued message.

    `on_stored` is extra work for the transaction that stores it. `notice` is shown to people in place of a
    message that no person typed. `row` is the message's number if it is an accepted message, else 0.
    """

    message: Message
    on_stored: TransactionWork = queue_nothing
    notice: str = ""
    row: int = 0

    @property
    def event(self) -> Event:
        """The event that people see once the message is stored."""
        return Notice(self.notice) if self.notice else Steered(self.message.text)


def accepted_entry(row: int, message: Message) -> InboxEntry:
    """Return the entry of an accepted message, which is removed once the transcript has it."""
    return InboxEntry(message, turns.remove_at_end((row,), queue_nothing), row=row)


def no_arrival() -> InboxEntry | None:
    """Return None: nothing arrives from outside the inbox."""
    return None


class Inbox:
    """The messages for a running turn, which reads them before its next step.

    `next_arrival` returns an entry from outside the inbox, such as a helper's result, or None. It returns the
    same entry until the transcript has stored it.
    """

    def __init__(self, next_arrival: Callable[[], InboxEntry | None] = no_arrival) -> None:
        self._waiting: deque[InboxEntry] = deque()
        self._next_arrival = next_arrival

    def __bool__(self) -> bool:
        """Return whether any message is queued."""
        return bool(self._waiting) or self._next_arrival() is not None

    @property
    def has_typed_message(self) -> bool:
        """Return whether a message that a person typed is queued."""
        return any(not entry.notice for entry in self._waiting)

    def put(self, message: Message, on_stored: TransactionWork = queue_nothing) -> None:
        """Queue a message behind all others."""
        self.add(InboxEntry(message, on_stored))

    def add(self, entry: InboxEntry) -> None:
        """Queue an entry behind all others."""
        self._waiting.append(entry)

    @asynccontextmanager
    async def first_entry(
        self, message: Message | None, on_stored: TransactionWork, log: Transcript, *, is_fresh: bool
    ) -> AsyncGenerator[InboxEntry | None]:
        """Provide the entry that begins a turn; if the turn can't begin, `message` is not queued.

        Messages that an ended process had accepted come first, then `message`, then the queued entries.
        Reads the session from the store, unless the caller has just done so (`is_fresh`).
        """
        incoming = None if message is None else InboxEntry(message, on_stored)
        try:
            queued_ids = {entry.row for entry in self._waiting if entry.row and not is_fresh}
            if not is_fresh:
                await log.writer.refresh()
            yield self._recover(incoming, log.live.accepted, queued_ids)
        except BaseException:
            self._waiting = deque(entry for entry in self._waiting if entry is not incoming)
            raise

    def _recover(
        self, incoming: InboxEntry | None, rows: Sequence[turns.AcceptedMessage], queued_ids: set[int]
    ) -> InboxEntry | None:
        """Return the entry that begins the turn. Queue the messages that an ended process left, and
        `incoming` after them, in front of all others.

        Drops the entries in `queued_ids` that are no longer in `rows`: another process has stored them.
        """
        removed_ids = queued_ids - {row.id for row in rows}
        waiting_ids = {entry.row for entry in self._waiting}
        entries = [
            accepted_entry(row.id, row.message) for row in rows if row.is_left and row.id not in waiting_ids
        ]
        if not entries and not removed_ids:
            return incoming
        if incoming is not None:
            entries.append(incoming)
        others = [entry for entry in self._waiting if entry.row not in removed_ids]
        self._waiting = deque([*entries[1:], *others])
        return entries[0] if entries else None

    def put_first(self, entry: InboxEntry) -> None:
        """Queue a turn's own message before those that arrived meanwhile."""
        self._waiting.appendleft(entry)

    def take(self) -> InboxEntry:
        """Remove and return the oldest entry. Raises IndexError if the inbox is empty."""
        if not self._waiting and (arrived := self._next_arrival()) is not None:
            return arrived
        return self._waiting.popleft()

    def take_back(self) -> list[InboxEntry]:
        """Remove and return all queued entries that no turn has read."""
        entries = list(self._waiting)
        self._waiting.clear()
        return entries


class CallRound(msgspec.Struct, frozen=True):
    """The calls of one step that are about to run, by their tools. `only_reads`: all of them are commands
    that can't change a file."""

    turn: int
    step: int
    tools: Sequence[Tool]
    only_reads: bool = False


class TurnObserver:
    """An observer of the turns of sessions. Every hook does nothing by default, and none raises.

    A hook gets the session of the turn, so one observer can serve all sessions of a process. The order of
    a session's observers is decided in `app/conversations/session_builder.py`.
    """

    async def before(self, session: Session, message: Message) -> Message:
        """Return the message that begins a turn, unchanged or extended. It is stored as returned."""
        return message

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        """Return writes for the transaction that ends the turn; they can store rows and queue jobs."""
        return queue_nothing

    def expect_calls(self, session: Session, tools: Sequence[Tool]) -> None:
        """Receive the tools of a reply's calls before the gate decides, and an empty list if it allows
        none."""

    async def before_calls(self, session: Session, step: CallRound, emit: Emit) -> object:
        """See the calls of a step that the gate allowed, before the first of them runs.

        Returns a token that `after_calls` receives, or None if `after_calls` need not be called.
        """
        return None

    async def after_calls(self, session: Session, token: object, emit: Emit) -> None:
        """Run after the calls have ended, also if they were cancelled. Not called after a crash."""

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """See the end of a turn, without its receipt. It is already stored, but not yet shown."""

    def take_notices(self) -> Sequence[str]:
        """Return the failures that a person must know about, each once. Called after a turn's end."""
        return ()


class LateObserver(TurnObserver):
    """Creates an observer at its first event, so that a session's first request does not wait for its import.

    A message counts as an event only if it is not the session's first one. With `only_tests`, a turn's end
    counts only if a call may have run tests.
    """

    def __init__(self, create: Callable[[], TurnObserver], *, only_tests: bool = False) -> None:
        self._part = LatePart(create)
        self._only_tests = only_tests

    async def before(self, session: Session, message: Message) -> Message:
        return await self._part.get().before(session, message) if session.log.messages else message

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        if self._part.created is None and self._only_tests and not turn.may_have_tests:
            return queue_nothing
        return await self._part.get().at_end(session, turn, reason)

    def expect_calls(self, session: Session, tools: Sequence[Tool]) -> None:
        self._part.get().expect_calls(session, tools)

    async def before_calls(self, session: Session, step: CallRound, emit: Emit) -> object:
        return await self._part.get().before_calls(session, step, emit)

    async def after_calls(self, session: Session, token: object, emit: Emit) -> None:
        await self._part.get().after_calls(session, token, emit)

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        if self._part.created is not None:
            await self._part.created.after_turn(session, end)

    def take_notices(self) -> Sequence[str]:
        return () if self._part.created is None else self._part.created.take_notices()


class StoppedCall(msgspec.Struct, frozen=True):
    """The output of a call until it was stopped, and how long it ran."""

    printed: str
    duration_s: float


class Session(msgspec.Struct, frozen=True):
    """An open conversation.

    `note` returns the text that is added to each message of the person (time, folder); `text_note` returns
    another text for the message it is given, or an empty string. `observers` are called in this order.
    `buffers` are the unsaved files of the person's editor. `stopped` holds the running turn's stopped calls
    by id.
    """

    log: Transcript
    link: ModelLink
    context: Context
    tools: Mapping[str, Tool]
    gate: Gate
    person: Person
    limits: TurnLimits
    clock: Clock
    workspace: Path
    note: Callable[[], str] = lambda: ""
    text_note: Callable[[str], str] = lambda text: ""
    observers: Sequence[TurnObserver] = ()
    buffers: Buffers | None = None
    inbox: Inbox = msgspec.field(default_factory=Inbox)
    stopped: dict[str, StoppedCall] = msgspec.field(default_factory=dict[str, StoppedCall])

    @property
    def id(self) -> str:
        """The session's id."""
        return self.log.session.id

    @property
    def model(self) -> ModelInfo:
        """The model that answers now."""
        return self.link.info

    @property
    def usage(self) -> Usage:
        """All usage of this session: stored turns and the running one."""
        return self.log.session.usage

    @property
    def last_answer(self) -> str:
        """The text of the last message if the model wrote it, else an empty string."""
        last = self.log.messages[-1]
        return last.text if last.role == "assistant" else ""

    def user_message(self, text: str, images: Sequence[ImagePart] = (), origin: TextOrigin = "") -> Message:
        """Return a user message with the session's note."""
        note = "\n".join(filter(None, (self.note(), self.text_note(text))))
        return user_message(text, images, note, origin)

    async def at_end(self, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        """Combine the writes of all observers for the transaction that ends a turn, in their order."""
        works = [await observer.at_end(self, turn, reason) for observer in self.observers]

        def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
            return [job for observer_work in works for job in observer_work(connection)]

        return work

    def steer(self, text: str, images: Sequence[ImagePart] = ()) -> None:
        """Queue a text during a turn, which reads it before its next step. Durable on return: a later turn
        reads it if the process ends before. Raises StoreError."""
        message = user_message(text, images)
        row = self.log.writer.db.write_now(lambda db: turns.accept_message(db, self.id, message))
        self.inbox.add(accepted_entry(row, message))


def user_message(
    text: str, images: Sequence[ImagePart] = (), note: str = "", origin: TextOrigin = ""
) -> Message:
    """Return a person's message."""
    content: str | tuple[Part, ...] = (TextPart(text), *images) if images else text
    return Message(role="user", content=content, note=note, origin=origin)


def shell_folder(log: Transcript) -> str:
    """Return the folder in which the next command starts, relative to the workspace ("": the workspace
    itself). Caches it in `log.live`."""
    if not log.messages:
        return ""
    from whet.store import facts  # noqa: PLC0415 - not needed before the first message

    live = log.live
    previous = live.shell or facts.ShellFolder()
    through = live.step.seq if live.step else live.next_seq
    has_results = live.step is not None and live.step.results
    # If all calls are stored and none came since the cached folder was read, it is still right.
    if live.is_shell_current or (live.open_turn is not None and not has_results):
        if live.epoch == 0 and all(message.role != "tool" for message in log.messages):
            return ""
        if previous.covers(live.epoch, through):
            return previous.folder

    def read(connection: apsw.Connection) -> facts.ShellFolder:
        read_row = facts.select_shell_folder(connection, live.key, previous, through)
        return read_row()

    live.shell = log.writer.db.read_now(read)
    return live.shell.folder


def receipt_of(session: Session, turn: int) -> TurnReceipt | None:
    """Return the stored effects of a turn's calls, or None if they had none."""
    from whet.store import facts  # noqa: PLC0415 - only after a turn with calls

    key = session.log.live.key
    return session.log.writer.db.read_now(lambda connection: facts.build_receipt(connection, key, turn))


async def notify_observers(session: Session, end: TurnEnd, emit: Emit) -> None:
    """Show a turn's end to all observers, and emit their notices."""
    for observer in session.observers:
        await observer.after_turn(session, end)
        for line in observer.take_notices():
            emit(Notice(line, must_show=True))


async def add_stored_effects(session: Session, turn: TurnRecord, end: TurnEnd) -> TurnEnd:
    """Return a turn's end with the receipt of its calls and the usage of its helpers, as they are stored."""
    if not turn.tool_calls:
        return end
    from whet.store import facts, helper_rows  # noqa: PLC0415 - only after a turn with calls

    log = session.log

    def look(connection: apsw.Connection) -> tuple[TurnReceipt | None, Usage]:
        read_usage = helper_rows.select_usage(connection, session.id, turn.number)
        receipt = facts.build_receipt(connection, log.live.key, turn.number)
        return receipt, read_usage()  # both queries were sent before, in one round trip to a server

    receipt, usage = await log.writer.db.look(look)
    return msgspec.structs.replace(end, receipt=receipt, usage=end.usage + usage)
