"""Calls in full, from the store: arguments and result of each call of a session, including compacted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from whet.agent.session import Session
from whet.contract.errors import NotFound
from whet.contract.messages import Message, ToolCall
from whet.contract.texts import NOT_JSON, from_json, parse_typed_number
from whet.store import facts
from whet.store.export import iter_messages
from whet.terminal import wording

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl
    from whet.store.database import StateDatabase

_LISTED = 20


class WholeCall(msgspec.Struct, frozen=True):
    """A call and its result. The result is None while the call runs."""

    call: ToolCall
    result: Message | None

    def line(self, width: int) -> str:
        """Return the call as one line."""
        mark = "…" if self.result is None else "✗" if self.result.is_error else "●"
        return wording.call_line(
            self.call.name, wording.subject(self.call.arguments), width, mark=mark, tail=""
        )

    def full_lines(self) -> list[str]:
        """Return the call's arguments and result in full, each under its name."""
        rows = [f"  {key}: {text}" for key, text in _arguments(self.call.arguments)]
        rows += self.result.text.split("\n") if self.result is not None else ["(no result yet)"]
        return [line for row in rows for line in wording.exact(row).split("\n")]


async def session_calls(database: StateDatabase, session: Session) -> list[WholeCall]:
    """Return every call of a session, oldest first."""
    transcript = await database.read(lambda db: list(iter_messages(db, session.id)))
    results = {message.tool_call_id: message for message in transcript if message.role == "tool"}
    return [WholeCall(call, results.get(call.id)) for message in transcript for call in message.tool_calls]


async def unfold(chat: ChatControl, number: int) -> None:
    """Show the `number`th call in full, counted from 1. Raises NotFound."""
    calls = await session_calls(chat.services.database, chat.session)
    if not 1 <= number <= len(calls):
        raise NotFound(f"there is no call {number}" if calls else "no call was made in this session")
    call = calls[number - 1]
    chat.say(f"\n{call.line(chat.width() - 12)}  ({number} of {len(calls)})", "bold")
    chat.say("\n".join(call.full_lines()), "")


async def show_calls(chat: ChatControl, arguments: str) -> None:
    """List the latest calls with their numbers, or show one in full."""
    if (requested := parse_typed_number(arguments)) is not None:
        await unfold(chat, requested)
        return
    all_calls = await session_calls(chat.services.database, chat.session)
    for number, call in list(enumerate(all_calls, 1))[-_LISTED:]:
        chat.say(f"{number:>4}  {call.line(chat.width() - 6)}", "")
    chat.say("/calls N shows one whole, Ctrl-O the last one" if all_calls else "no call was made yet")


async def show_receipt(chat: ChatControl, arguments: str) -> None:
    """Show the effects of the last or a given turn's calls, each file and command.

    Raises NotFound if the turn had none.
    """
    live = chat.session.log.live
    requested = parse_typed_number(arguments)
    turn = live.last_turn if requested is None else requested
    turn_receipt = await chat.services.database.read(lambda db: facts.build_receipt(db, live.key, turn))
    if turn_receipt is None:
        raise NotFound(f"turn {turn} changed, ran and sent nothing", hint="/receipt TURN shows another one")
    chat.say(
        "\n".join(
            (
                wording.receipt(turn_receipt, chat.width()),
                *(f"  {wording.exact(row)}" for row in turn_receipt.rows),
            )
        ),
        "",
    )


def _arguments(text: str) -> list[tuple[str, str]]:
    try:
        values = from_json(text or "{}", dict[str, object])
    except NOT_JSON:
        return [("arguments", text)]
    return [(key, value if isinstance(value, str) else str(value)) for key, value in values.items()]
