"""Show the arguments and the result of a session's calls in full, including compacted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.agent.session import Session
from whet.contract.errors import NotFound
from whet.contract.texts import parse_typed_number
from whet.store import facts
from whet.store.parts import CallPart, list_calls, read_parts
from whet.terminal import wording
from whet.terminal.past_turns import call_row, full_rows

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl
    from whet.store.database import StateDatabase

_LISTED = 20


async def session_calls(database: StateDatabase, session: Session) -> list[CallPart]:
    """Return every call of a session, oldest first."""
    return await database.read(lambda db: list_calls(read_parts(db, session.id)))


async def unfold(chat: ChatControl, number: int) -> None:
    """Show the `number`th call in full, counted from 1. Raises NotFound."""
    calls = await session_calls(chat.services.database, chat.session)
    if not 1 <= number <= len(calls):
        raise NotFound(f"there is no call {number}" if calls else "no call was made in this session")
    call = calls[number - 1]
    head = f"{call_row(call, chat.width() - 12, chat.marks)}  ({number} of {len(calls)})"
    await chat.page("\n".join(("", head, *full_rows(call), "")))


async def show_calls(chat: ChatControl, arguments: str) -> None:
    """List the latest calls with their numbers, or show one in full."""
    if (requested := parse_typed_number(arguments)) is not None:
        await unfold(chat, requested)
        return
    all_calls = await session_calls(chat.services.database, chat.session)
    for number, call in list(enumerate(all_calls, 1))[-_LISTED:]:
        chat.say(f"{number:>4}  {call_row(call, chat.width() - 6, chat.marks)}", "")
    chat.say("/calls N shows one whole, Ctrl-O the last one" if all_calls else "no call was made yet")


async def show_receipt(chat: ChatControl, arguments: str) -> None:
    """Show each file and command that the calls of the last turn, or of a given turn, changed or ran. Raises
    NotFound if there are none."""
    live = chat.session.log.live
    requested = parse_typed_number(arguments)
    turn = live.last_turn if requested is None else requested
    turn_receipt = await chat.services.database.read(lambda db: facts.build_receipt(db, live.key, turn))
    if turn_receipt is None:
        raise NotFound(f"turn {turn} changed, ran and sent nothing", hint="/receipt TURN shows another one")
    rows = (f"  {wording.exact(row)}" for row in turn_receipt.rows)
    await chat.page("\n".join((wording.receipt(turn_receipt, chat.width()), *rows, "")))
