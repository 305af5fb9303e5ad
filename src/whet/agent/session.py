"""One open conversation: its log, its model link, its tools and limits, and who takes part in its turns.

Made by `app/session_builder.py` and, for reviews, by `review/fork.py`. A session never changes and is used by
one task at a time; only its inbox may be touched while a turn runs. It knows the store and contracts,
nothing concrete else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import apsw
import msgspec

from whet.clock import Clock
from whet.contract.events import Emit, EndReason, Event, Notice, Steered, TurnEnd
from whet.contract.messages import ImagePart, Message, Part, TextPart, Usage
from whet.contract.protocols import Context, Gate, ModelInfo, ModelLink, Person
from whet.contract.receipts import TurnReceipt
from whet.contract.tools import Buffers, Tool
from whet.store.jobs import AtEnd, Queued, nothing
from whet.store.transcript import Transcript, TurnRecord


class TurnLimits(msgspec.Struct, frozen=True):
    """What one turn may spend: model calls, seconds without those a person was asked in, and the characters
    of one answer (0: no cap)."""

    steps: int
    turn_s: float | None
    answer_chars: int = 0


class InboxEntry(msgspec.Struct, frozen=True):
    """A message that waits, and what the transaction that stores it does besides. `told` is the line that
    people are shown instead of it where nobody has typed it."""

    message: Message
    receipt: AtEnd = nothing
    told: str = ""

    @property
    def event(self) -> Event:
        """What people see once it is stored."""
        return Notice(self.told) if self.told else Steered(self.message.text)


def no_arrival() -> InboxEntry | None:
    """Bring nothing."""
    return None


class Inbox:
    """What was said to a session while its turn runs; the turn reads it before its next step. `arrival` gives
    what is to be stored next of what comes from elsewhere and is kept there until then."""

    def __init__(self, arrival: Callable[[], InboxEntry | None] = no_arrival) -> None:
        self._waiting: deque[InboxEntry] = deque()
        self._arrival = arrival

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting) or self._arrival() is not None

    @property
    def has_words(self) -> bool:
        """Whether something waits that was said to the session, not a result of its own helpers."""
        return any(not entry.told for entry in self._waiting)

    def put(self, message: Message, receipt: AtEnd = nothing) -> None:
        """Add a message behind all others."""
        self.add(InboxEntry(message, receipt))

    def add(self, entry: InboxEntry) -> None:
        """Add a message as it is to be stored and shown, behind all others."""
        self._waiting.append(entry)

    def take(self) -> InboxEntry:
        """Take out what has waited longest. Raises IndexError where nothing waits."""
        if not self._waiting and (arrived := self._arrival()) is not None:
            return arrived
        return self._waiting.popleft()

    def take_back(self) -> list[Message]:
        """Take out everything: the messages that no turn has read."""
        left = [entry.message for entry in self._waiting]
        self._waiting.clear()
        return left


class CallRound(msgspec.Struct, frozen=True):
    """The calls of one step that are about to run, by their tools."""

    turn: int
    step: int
    tools: Sequence[Tool]


class TurnObserver:
    """Takes part in the turns of sessions; every hook does nothing unless it is overridden, and none raises.

    A hook gets the session that the turn is of: an observer need not keep it, and one can serve all sessions
    of a process. The order of a session's observers is decided in `app/session_builder.py`.
    """

    async def before(self, session: Session, message: Message) -> Message:
        """Give the message that begins a turn as it is to be stored: the same one, or one with more in it."""
        return message

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> AtEnd:
        """Give what the transaction that ends the turn does besides; it can store rows and queue jobs."""
        return nothing

    async def before_calls(self, session: Session, step: CallRound, emit: Emit) -> object:
        """See which calls of a step the gate allowed, before the first of them runs; what is given comes back
        in `after_calls`, which is not called where it is None."""
        return None

    async def after_calls(self, session: Session, token: object, emit: Emit) -> None:
        """See that the calls have ended, also where they were cancelled. Not called after a crash."""

    async def ended(self, session: Session, end: TurnEnd) -> None:
        """See a turn's end, without its receipt; it is stored by now, and not shown yet."""


class Session(msgspec.Struct, frozen=True):
    """An open conversation. `note` gives what is added to a person's message when it is made (time, folder),
    `observers` take part in its turns in this order, `buffers` is what the person's editor holds of files.
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
    note: Callable[[], str] = str
    observers: Sequence[TurnObserver] = ()
    buffers: Buffers | None = None
    inbox: Inbox = msgspec.field(default_factory=Inbox)

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
        """Everything this session has spent, stored turns and the running one."""
        return self.log.session.usage

    @property
    def last_answer(self) -> str:
        """The text of the last message where the model said it, else nothing."""
        last = self.log.messages[-1]
        return last.text if last.role == "assistant" else ""

    def user_message(self, text: str, images: Sequence[ImagePart] = ()) -> Message:
        """Make a person's message with the note that belongs to it."""
        return Message(role="user", content=_content(text, images), note=self.note())

    async def at_end(self, turn: TurnRecord, reason: EndReason) -> AtEnd:
        """Give what all observers do in the transaction that ends a turn, in their order."""
        works = [await observer.at_end(self, turn, reason) for observer in self.observers]

        def work(connection: apsw.Connection) -> Sequence[Queued]:
            return [job for one in works for job in one(connection)]

        return work

    def steer(self, text: str, images: Sequence[ImagePart] = ()) -> None:
        """Queue what a person says during a turn; it is stored and read before the next step."""
        self.inbox.put(Message(role="user", content=_content(text, images)))


def _content(text: str, images: Sequence[ImagePart]) -> str | tuple[Part, ...]:
    return (TextPart(text), *images) if images else text


def shell_folder(log: Transcript) -> str:
    """Give the folder, below the workspace, in which the next command begins; "" for the workspace itself."""
    if not log.messages:
        return ""
    from whet.store import facts  # noqa: PLC0415 - nothing of it is there before the first message

    live = log.live
    known = live.shell or facts.ShellFolder()
    through = live.step.seq if live.step else live.next_seq
    live.shell = log.writer.db.read_now(lambda db: facts.shell_folder(db, live.key, known, through))
    return live.shell.folder


def receipt_of(session: Session, turn: int) -> TurnReceipt | None:
    """Give what a turn's calls did, as stored; None where they had no effect."""
    from whet.store import facts  # noqa: PLC0415 - only after a turn with calls

    key = session.log.live.key
    return session.log.writer.db.read_now(lambda connection: facts.receipt(connection, key, turn))


def with_receipt(session: Session, turn: TurnRecord, end: TurnEnd) -> TurnEnd:
    """Give a turn's end with what its calls did, as it is stored once all observers have seen the end."""
    if not turn.tool_calls:
        return end
    return msgspec.structs.replace(end, receipt=receipt_of(session, turn.number))
