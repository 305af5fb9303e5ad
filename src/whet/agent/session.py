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
from whet.contract.messages import ImagePart, Message, Part, TextPart, Usage
from whet.contract.protocols import Context, Gate, ModelInfo, ModelLink, Person
from whet.contract.receipts import TurnReceipt
from whet.contract.tools import Buffers, Tool
from whet.late import LatePart
from whet.store import turns
from whet.store.jobs import AtEnd, QueuedJob, queue_nothing
from whet.store.transcript import Transcript, TurnRecord
from whet.store.turns import AcceptedMessage


class TurnLimits(msgspec.Struct, frozen=True):
    """The limits of one turn: model calls, seconds without those spent asking a person, and characters of one
    answer (0: no cap)."""

    steps: int
    turn_s: float | None
    answer_chars: int = 0


class InboxEntry(msgspec.Struct, frozen=True):
    """A queued message. `receipt` adds work to the transaction that stores it, `notice` is shown to people
    instead of the message if no person typed it, and `row` is its number if it is an accepted message."""

    message: Message
    receipt: AtEnd = queue_nothing
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
    """Return no entry."""
    return None


class Inbox:
    """The messages for a running turn, which reads them before its next step. `arrival` returns the next
    entry that another component keeps until it is stored here, or None."""

    def __init__(self, arrival: Callable[[], InboxEntry | None] = no_arrival) -> None:
        self._waiting: deque[InboxEntry] = deque()
        self._arrival = arrival

    def __bool__(self) -> bool:
        """Return whether any message is queued."""
        return bool(self._waiting) or self._arrival() is not None

    @property
    def has_words(self) -> bool:
        """Return whether a message waits that is not a result of the session's own helpers."""
        return any(not entry.notice for entry in self._waiting)

    def put(self, message: Message, receipt: AtEnd = queue_nothing) -> None:
        """Queue a message behind all others."""
        self.add(InboxEntry(message, receipt))

    def add(self, entry: InboxEntry) -> None:
        """Queue an entry behind all others."""
        self._waiting.append(entry)

    @asynccontextmanager
    async def recovered(
        self, message: Message | None, receipt: AtEnd, log: Transcript, *, is_fresh: bool
    ) -> AsyncGenerator[InboxEntry | None]:
        """Provide the entry that a turn begins with: the oldest message that an ended process had accepted,
        or else `message`. The others are queued in their order, `message` last, unless the turn can't begin.
        The session is read again, unless it `is_fresh`.
        """
        incoming = None if message is None else InboxEntry(message, receipt)
        try:
            queued_ids = {entry.row for entry in self._waiting if entry.row and not is_fresh}
            if not is_fresh:
                await log.writer.refresh()
            yield self._recover(incoming, log.live.accepted, queued_ids)
        except BaseException:
            self._waiting = deque(entry for entry in self._waiting if entry is not incoming)
            raise

    def _recover(
        self, incoming: InboxEntry | None, rows: Sequence[AcceptedMessage], queued_ids: set[int]
    ) -> InboxEntry | None:
        """`queued_ids` are the accepted messages that were queued before `rows` were read."""
        removed_ids = queued_ids - {row.id for row in rows}
        known_ids = {entry.row for entry in self._waiting}
        left = [
            accepted_entry(row.id, row.message) for row in rows if row.is_left and row.id not in known_ids
        ]
        if not left and not removed_ids:
            return incoming
        others = [entry for entry in self._waiting if entry.row not in removed_ids]
        first = [*left, *((incoming,) if incoming is not None else ())]
        self._waiting = deque([*first[1:], *others])
        return first[0] if first else None

    def put_first(self, entry: InboxEntry) -> None:
        """Queue a turn's own message before those that arrived meanwhile."""
        self._waiting.appendleft(entry)

    def take(self) -> InboxEntry:
        """Remove and return the oldest entry. Raises IndexError if the inbox is empty."""
        if not self._waiting and (arrived := self._arrival()) is not None:
            return arrived
        return self._waiting.popleft()

    def take_back(self) -> list[InboxEntry]:
        """Remove and return all queued entries that no turn has read."""
        entries = list(self._waiting)
        self._waiting.clear()
        return entries


class CallRound(msgspec.Struct, frozen=True):
    """The calls of one step that are about to run, by their tools. `only_reads`: they are commands that can
    change no file."""

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
        """Return the message that begins a turn as it will be stored, unchanged or extended."""
        return message

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> AtEnd:
        """Return the work that joins the transaction ending the turn; it can store rows and queue jobs."""
        return queue_nothing

    def expect_calls(self, session: Session, tools: Sequence[Tool]) -> None:
        """Receive the tools of a reply's calls before the gate decides; an empty list follows if no call runs
        after all."""

    async def before_calls(self, session: Session, step: CallRound, emit: Emit) -> object:
        """See the calls of a step that the gate allowed, before the first of them runs.

        Returns a token for `after_calls`, or None to skip that call.
        """
        return None

    async def after_calls(self, session: Session, token: object, emit: Emit) -> None:
        """See that the calls have ended, cancelled ones included. Not called after a crash."""

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """See the end of a turn, without its receipt. It is stored by now, and not shown yet."""

    def take_notices(self) -> Sequence[str]:
        """Return the observer's failures that a person must know, each once, after the end of a turn."""
        return ()


class LateObserver(TurnObserver):
    """An observer that is created once there is something for it to see: an earlier message, a call, or a
    turn's end; with `only_calls` the end of a turn with calls. The first request of a new session does not
    wait for it."""

    def __init__(self, create: Callable[[], TurnObserver], *, only_calls: bool = False) -> None:
        self._part = LatePart(create)
        self._only_calls = only_calls

    async def before(self, session: Session, message: Message) -> Message:
        """Pass the message of a session that has others already."""
        return await self._part.get().before(session, message) if session.log.messages else message

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> AtEnd:
        """Return the observer's work."""
        if self._part.created is None and self._only_calls and not turn.may_have_tests:
            return queue_nothing
        return await self._part.get().at_end(session, turn, reason)

    def expect_calls(self, session: Session, tools: Sequence[Tool]) -> None:
        """Pass the tools on."""
        self._part.get().expect_calls(session, tools)

    async def before_calls(self, session: Session, step: CallRound, emit: Emit) -> object:
        """Return the observer's token."""
        return await self._part.get().before_calls(session, step, emit)

    async def after_calls(self, session: Session, token: object, emit: Emit) -> None:
        """Pass the token on."""
        await self._part.get().after_calls(session, token, emit)

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Pass the end on."""
        if self._part.created is not None:
            await self._part.created.after_turn(session, end)

    def take_notices(self) -> Sequence[str]:
        """Pass the notices on."""
        return () if self._part.created is None else self._part.created.take_notices()


class StoppedCall(msgspec.Struct, frozen=True):
    """What a call that was stopped had printed until then, and how long it ran."""

    printed: str
    duration_s: float


class Session(msgspec.Struct, frozen=True):
    """An open conversation.

    `note` returns the text added to a person's message when it is created (time, folder), `text_note` one
    on the message's own text (or an empty string), `observers` take
    part in its turns in this order, and `buffers` are the unsaved files of the person's editor. `stopped`
    holds the calls of the running turn that were stopped, by their ids.
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

    def user_message(self, text: str, images: Sequence[ImagePart] = ()) -> Message:
        """Return a user message with the session's note."""
        return user_message(text, images, "\n".join(filter(None, (self.note(), self.text_note(text)))))

    async def at_end(self, turn: TurnRecord, reason: EndReason) -> AtEnd:
        """Combine the work of all observers for the transaction that ends a turn, in their order."""
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


def user_message(text: str, images: Sequence[ImagePart] = (), note: str = "") -> Message:
    """Return a person's message."""
    content: str | tuple[Part, ...] = (TextPart(text), *images) if images else text
    return Message(role="user", content=content, note=note)


def shell_folder(log: Transcript) -> str:
    """Return the folder, relative to the workspace, in which the next command starts; "" is the workspace
    itself."""
    if not log.messages:
        return ""
    from whet.store import facts  # noqa: PLC0415 - not needed before the first message

    live = log.live
    previous = live.shell or facts.ShellFolder()
    through = live.step.seq if live.step else live.next_seq
    has_results = live.step is not None and live.step.results
    if live.is_shell_current or (live.open_turn is not None and not has_results):  # memory is as stored
        if live.epoch == 0 and all(message.role != "tool" for message in log.messages):
            return ""
        if previous.covers(live.epoch, through):
            return previous.folder
    db = log.writer.db
    live.shell = db.read_now(lambda c: facts.select_shell_folder(c, live.key, previous, through)())
    return live.shell.folder


def receipt_of(session: Session, turn: int) -> TurnReceipt | None:
    """Return the stored effects of a turn's calls, or None if they had none."""
    from whet.store import facts  # noqa: PLC0415 - only after a turn with calls

    key = session.log.live.key
    return session.log.writer.db.read_now(lambda connection: facts.build_receipt(connection, key, turn))


async def finish_observers(session: Session, turn: TurnRecord, end: TurnEnd, emit: Emit) -> TurnEnd:
    """Show the end to all observers, emit their notices, and return the end with its stored receipt and its
    helpers' usage."""
    for observer in session.observers:
        await observer.after_turn(session, end)
        for line in observer.take_notices():
            emit(Notice(line, must_show=True))
    if not turn.tool_calls:
        return end
    from whet.store import facts, helper_rows  # noqa: PLC0415 - only after a turn with calls

    log = session.log

    def look(connection: apsw.Connection) -> tuple[TurnReceipt | None, Usage]:
        usage = helper_rows.select_usage(connection, session.id, turn.number)
        receipt = facts.build_receipt(connection, log.live.key, turn.number)
        return receipt, usage()

    receipt, helpers = await log.writer.db.look(look)
    return msgspec.structs.replace(end, receipt=receipt, usage=end.usage + helpers)
