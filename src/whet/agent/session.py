"""One open conversation: its log, its model link, its tools and limits.

Built only by `app/session_builder.py`. A session is used by one task at a time; `steer` is the one thing that
may be touched while a turn runs. It knows the store and contracts, nothing concrete else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from whet.clock import Clock
from whet.contract.events import EndReason, TurnEnd
from whet.contract.messages import ImagePart, Message, Part, TextPart, Usage
from whet.contract.protocols import Context, Gate, ModelInfo, ModelLink, Person
from whet.contract.tools import Buffers, Tool
from whet.store.jobs import AtEnd, nothing
from whet.store.transcript import Transcript, TurnRecord


class TurnLimits(msgspec.Struct, frozen=True):
    """What one turn may spend: model calls, and seconds without those a person was asked in."""

    steps: int
    turn_s: float


def no_jobs(turn: TurnRecord, reason: EndReason) -> AtEnd:
    """Enqueue nothing when a turn ends."""
    return nothing


async def unchanged(message: Message) -> Message:
    """Give a person's message as it is."""
    return message


async def nothing_more(end: TurnEnd) -> None:
    """Do nothing after a turn."""


class Session(msgspec.Struct):
    """An open conversation. `jobs_at_end` gives what the turn's end transaction does besides: it queues jobs;
    `note` gives what is added to a person's message when it is made (time, folder). `before_turn` may add to
    a message before it is stored, `after_turn` sees each end; neither raises. `buffers`: what the person's
    editor holds of files."""

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
    jobs_at_end: Callable[[TurnRecord, EndReason], AtEnd] = no_jobs
    before_turn: Callable[[Message], Awaitable[Message]] = unchanged
    after_turn: Callable[[TurnEnd], Awaitable[None]] = nothing_more
    buffers: Buffers | None = None
    inbox: deque[Message] = msgspec.field(default_factory=deque[Message])

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

    def user_message(self, text: str, images: Sequence[ImagePart] = ()) -> Message:
        """Make a person's message with the note that belongs to it."""
        content: str | tuple[Part, ...] = (TextPart(text), *images) if images else text
        return Message(role="user", content=content, note=self.note())

    def leave(self) -> None:
        """Drop what was hung on its turns. Those functions know the session, and it would stay in memory with
        its transcript until the collector comes by."""
        self.note, self.jobs_at_end, self.before_turn, self.after_turn = str, no_jobs, unchanged, nothing_more

    def steer(self, text: str) -> None:
        """Queue text typed during a turn; it is stored and read before the next step."""
        self.inbox.append(Message(role="user", content=text))
