"""Prepare the stored messages of a session for its page and for its export as a page."""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.messages import ImagePart, ToolCall
from whet.contract.receipts import TurnReceipt
from whet.question import Row
from whet.serve.board import prose, shown
from whet.store import facts, replay, sessions
from whet.store.parts import read_call, read_person
from whet.store.replay import ReplayedTurn, ReplayEntry

_MAX_ARGUMENTS, _ABOUT_CHARS = 6_000, 160


class PageCall(msgspec.Struct, frozen=True):
    """A call as the page shows it: its subject, its arguments, and the lines that it writes."""

    name: str
    about: str
    arguments: str
    rows: tuple[Row, ...] = ()


class ShownMessage(msgspec.Struct, frozen=True):
    """A message as the page shows it, with all texts ready for display.

    - `attached`: text that was sent with the person's typed text
    - `blocks`: the blocks of an answer; `calls`: its calls without a result
    - `did`: the receipt of the turn, for a final answer
    - `answers`: the call of a result
    - `starts_turn`: the turn, for its first message
    """

    entry: ReplayEntry
    text: str
    blocks: tuple[prose.ProseBlock, ...]
    calls: list[PageCall]
    images: tuple[ImagePart, ...]
    starts_turn: ReplayedTurn | None
    answers: PageCall | None = None
    did: TurnReceipt | None = None
    attached: str = ""


def list_page_messages(
    connection: apsw.Connection, session_id: str, first: int, limit: int
) -> list[ShownMessage]:
    """Return the messages from number `first` on. Raises NotFound."""
    entries = replay.list_entries(connection, session_id, first, limit)
    turns = replay.list_turns(connection, session_id, entries[0].turn, entries[-1].turn) if entries else {}
    return build_page_messages(entries, turns, _read_receipts(connection, session_id, entries))


def _read_receipts(
    db: apsw.Connection, session_id: str, entries: list[ReplayEntry]
) -> dict[int, TurnReceipt]:
    """Return the receipts of the turns whose answers are among the entries."""
    key = sessions.key_of(db, session_id)
    receipts = {
        entry.turn: facts.build_receipt(db, key, entry.turn) for entry in entries if _is_answer(entry)
    }
    return {turn: receipt for turn, receipt in receipts.items() if receipt is not None}


def _is_answer(entry: ReplayEntry) -> bool:
    return entry.message.role == "assistant" and not entry.message.tool_calls


def build_page_messages(
    entries: list[ReplayEntry], turns: dict[int, ReplayedTurn], receipts: dict[int, TurnReceipt]
) -> list[ShownMessage]:
    messages: list[ShownMessage] = []
    open_calls: dict[str, tuple[PageCall, list[PageCall]]] = {}
    before = -1
    for entry in entries:
        message = entry.message
        person = read_person(message)
        text = shown.text(person.text() if message.role == "user" else message.text)
        called = [(call.id, build_page_call(call)) for call in message.tool_calls]
        calls = [call for _, call in called]
        answered = open_calls.pop(message.tool_call_id, None) if message.role == "tool" else None
        if answered is not None:
            answered[1].remove(answered[0])
        messages.append(
            ShownMessage(
                entry,
                text,
                tuple(prose.split_blocks(text)) if message.role == "assistant" else (),
                calls,
                person.images,
                turns.get(entry.turn) if entry.turn != before else None,
                answered[0] if answered else None,
                receipts.get(entry.turn) if _is_answer(entry) else None,
                shown.text(person.attached) if message.role == "user" else "",
            )
        )
        open_calls |= {id_: (call, calls) for id_, call in called}
        before = entry.turn
    return messages


def build_page_call(call: ToolCall) -> PageCall:
    """Format a call for reading: written content as diff lines, other arguments one a line, unreadable
    arguments unchanged."""
    text = read_call(call, lambda value: shown.text(value, _MAX_ARGUMENTS))
    subject = text.subject
    is_whole = len(subject) <= _ABOUT_CHARS and "\n" not in subject
    others = [
        f"{name}: \n{value}" if "\n" in value else f"{name}: {value}" if name else value
        for name, value in text.others
        if not (is_whole and value == subject)
    ]
    arguments = shown.text("\n".join(others), _MAX_ARGUMENTS)
    return PageCall(shown.line(call.name, 60), shown.line(subject, _ABOUT_CHARS), arguments, text.rows)
