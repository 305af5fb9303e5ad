"""Run the turn of a conversation, and queue its answer.

The input is marked as done, and the answer is queued, in the transactions that store the turn. So a crash at
any moment neither loses nor repeats nor reorders anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import apsw

from whet.app.conversations.hosted import TurnWrites, no_begin
from whet.contract.errors import StoreError, WhetError
from whet.contract.events import ConfirmationAsked, EndReason, Event, Notice, show_nothing
from whet.contract.messages import ImagePart
from whet.gateway.asking import ChatPerson
from whet.gateway.chat_record import ConversationRows
from whet.gateway.drafts import MessageDraft
from whet.gateway.router import ChatUser
from whet.log import mask
from whet.store import chats, lesson_counts
from whet.store.chats import InRow
from whet.store.jobs import QueuedJob, TransactionWork
from whet.store.transcript import TurnRecord

log: logging.Logger = logging.getLogger("whet.gateway")
BROKE = "something went wrong; the log has it"


class ChatTurn:
    """One turn. `begun` completes when it starts to run; `row` is the update that it answers, or None."""

    def __init__(self, record: ConversationRows, row: InRow | None) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._record = record
        self._row = row

    async def run(self, text: str | None, images: Sequence[ImagePart]) -> None:
        """Run the turn to its end. If `text` is None, resume an unfinished one. Raises StoreError if it could
        not begin; the caller then tries again."""
        record, parts = self._record, self._record.parts
        person = await record.person()
        if person is None:  # the permission was withdrawn meanwhile
            await record.cross_off(self._row)
            return
        draft = MessageDraft(
            parts.database,
            record.channel,
            record.chat,
            parts.deliveries,
            first_after_s=parts.settings.stream_after_s,
        )
        parts.drafts.begin(draft)
        try:
            await self._submit(person, text, images, draft)
        except StoreError:
            raise
        except WhetError as error:
            await record.cross_off(self._row)
            await record.say(error_line(error))
        except Exception as error:  # the conversation's boundary: waiting messages are still processed
            log.error("conversation %d: a turn broke", record.chat.id, exc_info=error)
            if await record.cross_off(self._row):  # otherwise the turn's end has reported it
                await record.say(f"⚠️ {BROKE}")
        finally:
            await parts.drafts.end(record.chat.id)
            parts.deliveries.wake(record.chat.id)

    async def _submit(
        self, person: ChatUser, text: str | None, images: Sequence[ImagePart], draft: MessageDraft
    ) -> None:
        record = self._record
        chat_person = ChatPerson(
            record.parts.asking,
            record.question_route(),
            person.name,
            None if person.approves else record.approver,
            person.time_zone,
        )
        session_id = await record.session_id(person)
        profile = record.parts.router.profile(person, record.place)
        notices: list[str] = []
        waits: list[asyncio.Task[None]] = []

        def emit(event: Event) -> None:
            if isinstance(event, Notice) and event.must_show:
                notices.append(mask(event.text))
            elif isinstance(event, ConfirmationAsked):  # so that the person knows why nothing happens
                waits.append(asyncio.create_task(record.say(mask(f"⏳ {event.text}"))))
            draft.handle_event(event)

        writes = _make_writes(record, self._row, begun=self._begin, news_profile=profile, notices=notices)
        try:
            await record.parts.hosted.submit(
                session_id, text, images, emit=emit, person=chat_person, writes=writes
            )
        finally:
            await asyncio.gather(*waits, return_exceptions=True)

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)


async def steer(record: ConversationRows, row: InRow, text: str, images: Sequence[ImagePart]) -> None:
    """Add a message to the running turn. If that turn has just answered, the answer is sent before the turn
    continues."""
    hosted, session_id = record.parts.hosted, record.chat.session_id
    writes = _make_writes(record, row, steered=session_id)
    # the listener of the running turn shows its events
    await hosted.submit(session_id, text, images, emit=show_nothing, busy="steer", writes=writes)


def _make_writes(
    record: ConversationRows,
    row: InRow | None,
    *,
    steered: str = "",
    begun: Callable[[], None] = no_begin,
    news_profile: str | None = None,
    notices: Sequence[str] = (),
) -> TurnWrites:
    """Return the writes that join the turn's transactions: the state of its input, and its answer.

    `steered` is the session whose running turn the message joins. Below the answer, `notices` and the lessons
    of the person `news_profile` are reported, or none if that is None.
    """
    now_ms = record.parts.clock.unix_ms()

    def store_begin(connection: apsw.Connection) -> Sequence[QueuedJob]:
        if row is not None:
            chats.set_update_state(connection, row.id, "begun")
        session = record.parts.hosted.find_open(steered) if steered else None
        if session is not None and session.log.live.turn_number:
            last = session.log.messages[-1]
            if last.is_final:
                record.queue_answer(connection, last.text, now_ms)
        return ()

    def at_end(turn: TurnRecord, reason: EndReason, text: str) -> TransactionWork:
        now_ms = record.parts.clock.unix_ms()

        def store_end(connection: apsw.Connection) -> Sequence[QueuedJob]:
            chats.finish_taken_updates(connection, record.chat.id)
            footer = "".join(f"\n\n_{line}_" for line in notices)
            footer += _effects_line(connection, turn) + _lessons_line(connection, news_profile)
            record.queue_answer(connection, answer_text(turn, reason, text) + footer, now_ms)
            return ()

        return store_end

    return TurnWrites(store_begin, at_end, begun)


def answer_text(turn: TurnRecord, reason: EndReason, text: str) -> str:
    """Return the answer of a turn, and the reason if it ended without one."""
    if reason == "answered":
        return text or "(no answer)"
    if reason == "cancelled":
        return "Stopped."
    default = "the turn reached its limit" if reason == "budget" else BROKE
    why = mask(" ".join(turn.error.split()))[:400] or default
    return f"{text}\n\n⚠️ {why}".strip()


def _effects_line(connection: apsw.Connection, turn: TurnRecord) -> str:
    """Return a line about the effects of a turn's calls, or an empty string if there are none."""
    if not turn.tool_calls:
        return ""
    from whet.store import facts, sessions  # noqa: PLC0415 - only after a turn with calls

    receipt = facts.build_receipt(connection, sessions.key_of(connection, turn.session_id), turn.number)
    return f"\n\n{mask(receipt.line)}" if receipt is not None else ""


def _lessons_line(connection: apsw.Connection, profile: str | None) -> str:
    """Return a line about new lessons since the last report to this person, and mark them as reported."""
    if profile is None:
        return ""
    line = lesson_counts.take_unread(connection, profile).line_with("/inbox", "/memory")
    return f"\n\n_{line}_" if line else ""


def error_line(error: WhetError) -> str:
    """Format an error as one line for a person."""
    hint = f" ({error.hint})" if error.hint else ""
    return mask(f"{error.message}{hint}")
