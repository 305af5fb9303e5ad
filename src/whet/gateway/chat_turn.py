"""A turn of a conversation: what it took in is crossed off, and its answer queued, in the turn's own
transactions, so that a crash at any moment loses, doubles and reorders nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import apsw

from whet.app.hosted import Receipt, no_begin
from whet.contract.errors import StoreError, WhetError
from whet.contract.events import EndReason, Event, Notice
from whet.contract.messages import ImagePart
from whet.gateway.asking import ChatPerson
from whet.gateway.chat_record import ConversationRows
from whet.gateway.drafts import MessageDraft
from whet.gateway.router import ChatUser
from whet.log import mask
from whet.store import chats, news
from whet.store.chats import InRow
from whet.store.jobs import AtEnd, Queued
from whet.store.transcript import TurnRecord

log: logging.Logger = logging.getLogger("whet.gateway")
BROKE = "something went wrong; the log has it"


class ChatTurn:
    """One turn. `begun` is done when it runs; `row` is the update that it answers, where there is one."""

    def __init__(self, record: ConversationRows, row: InRow | None) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._record = record
        self._row = row

    async def run(self, text: str | None, images: Sequence[ImagePart]) -> None:
        """Run it to its end; `text` None resumes an unfinished one. Raises StoreError where it could not
        begin; then it is tried again."""
        record, parts = self._record, self._record.parts
        person = await record.person()
        if person is None:  # let in once, and not any more
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
            await record.say(line_of(error))
        except Exception as error:  # the conversation's boundary: what waits goes on
            log.error("conversation %d: a turn broke", record.chat.id, exc_info=error)
            if await record.cross_off(self._row):  # else the turn's end has said it
                await record.say(f"⚠️ {BROKE}")
        finally:
            await parts.drafts.end(record.chat.id)
            parts.deliveries.wake(record.chat.id)

    async def _submit(
        self, person: ChatUser, text: str | None, images: Sequence[ImagePart], draft: MessageDraft
    ) -> None:
        record = self._record
        asked = ChatPerson(
            record.parts.asking, record.desk(), person.name, None if person.approves else record.approver
        )
        session_id = await record.session_id(person)
        profile = record.parts.router.profile(person, record.place)
        notices: list[str] = []

        def emit(event: Event) -> None:
            if isinstance(event, Notice) and event.must_show:
                notices.append(mask(event.text))
            draft.hear(event)

        receipt = _receipt(record, self._row, begun=self._begin, told=profile, notices=notices)
        await record.parts.hosted.submit(session_id, text, images, emit=emit, person=asked, receipt=receipt)

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)


async def steer(record: ConversationRows, row: InRow, text: str, images: Sequence[ImagePart]) -> None:
    """Give a message to the turn that runs. Where that has just answered, the answer goes out before the turn
    goes on."""
    hosted, session_id = record.parts.hosted, record.chat.session_id
    receipt = _receipt(record, row, steered=session_id)
    await hosted.submit(session_id, text, images, emit=_ignore, busy="steer", receipt=receipt)


def _receipt(
    record: ConversationRows,
    row: InRow | None,
    *,
    steered: str = "",
    begun: Callable[[], None] = no_begin,
    told: str | None = None,
    notices: Sequence[str] = (),
) -> Receipt:
    """Say what is stored with a message; `steered` is the session whose running turn it is given to, `told`
    the profile whose news go out below the answer (None: nobody's), with the turn's `notices`."""
    now_ms = record.parts.clock.unix_ms()

    def stored(connection: apsw.Connection) -> Sequence[Queued]:
        if row is not None:
            chats.mark(connection, row.id, "begun")
        session = record.parts.hosted.opened(steered) if steered else None
        if session is not None and session.log.live.turn_number:
            last = session.log.messages[-1]
            if last.is_final:
                record.answer_in(connection, last.text, now_ms)
        return ()

    def ended(turn: TurnRecord, reason: EndReason, text: str) -> AtEnd:
        now_ms = record.parts.clock.unix_ms()

        def work(connection: apsw.Connection) -> Sequence[Queued]:
            chats.finish_begun(connection, record.chat.id)
            below = "".join(f"\n\n_{line}_" for line in notices)
            below += _done(connection, turn) + _learned(connection, told)
            record.answer_in(connection, _answer(turn, reason, text) + below, now_ms)
            return ()

        return work

    return Receipt(stored, ended, begun)


def _answer(turn: TurnRecord, reason: EndReason, text: str) -> str:
    """Write what a turn came to: its answer, and why it ended where it did not end well."""
    if reason == "answered":
        return text or "(no answer)"
    if reason == "cancelled":
        return "Stopped."
    why = mask(" ".join(turn.error.split()))[:400] or {"budget": "the turn reached its limit"}.get(
        reason, BROKE
    )
    return f"{text}\n\n⚠️ {why}".strip()


def _done(connection: apsw.Connection, turn: TurnRecord) -> str:
    """Say what a turn's calls did, below what the model says; nothing where they had no effect."""
    if not turn.tool_calls:
        return ""
    from whet.store import facts, sessions  # noqa: PLC0415 - only after a turn with calls

    done = facts.receipt(connection, sessions.key_of(connection, turn.session_id), turn.number)
    return f"\n\n{mask(done.line)}" if done is not None else ""


def _learned(connection: apsw.Connection, profile: str | None) -> str:
    """Say what was learned, refused and put aside since this person was last told; once."""
    line = "" if profile is None else news.tell(connection, profile).line_with("/inbox", "/memory")
    return f"\n\n_{line}_" if line else ""


def line_of(error: WhetError) -> str:
    """Write an error as one line for a person."""
    hint = f" ({error.hint})" if error.hint else ""
    return mask(f"{error.message}{hint}")


def _ignore(event: Event) -> None:
    """Show nothing: the running turn's own listener does."""
