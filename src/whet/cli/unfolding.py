"""Calls shown whole, from the store: arguments and result of each of a session, also of compacted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from whet.agent.session import Session
from whet.cli import wording
from whet.contract.errors import NotFound
from whet.contract.messages import Message, ToolCall
from whet.contract.texts import NOT_JSON, from_json, typed_number
from whet.store import facts
from whet.store.export import messages

if TYPE_CHECKING:
    from whet.cli.commands import ChatControl
    from whet.store.database import StateDatabase

_LISTED = 20
_MOST_LINES = 400


class WholeCall(msgspec.Struct, frozen=True):
    """A call and its result; None while it runs."""

    call: ToolCall
    result: Message | None

    def line(self, width: int) -> str:
        """Name it in a line."""
        mark = "…" if self.result is None else "✗" if self.result.is_error else "●"
        return wording.call_line(
            self.call.name, wording.subject(self.call.arguments), width, mark=mark, tail=""
        )

    def whole(self) -> list[str]:
        """Give its arguments and its result as they are, each under its name."""
        rows = [f"  {key}: {text}" for key, text in _arguments(self.call.arguments)]
        rows += self.result.text.split("\n") if self.result is not None else ["(no result yet)"]
        lines = [line for row in rows for line in wording.exact(row).split("\n")]
        left = len(lines) - _MOST_LINES
        return lines if left <= 0 else [*lines[:_MOST_LINES], f"… {left:,} more lines"]


async def calls_of(database: StateDatabase, session: Session) -> list[WholeCall]:
    """Give every call of a session, oldest first."""
    found = await database.read(lambda db: list(messages(db, session.id)))
    results = {message.tool_call_id: message for message in found if message.role == "tool"}
    return [WholeCall(call, results.get(call.id)) for message in found for call in message.tool_calls]


async def unfold(chat: ChatControl, number: int) -> None:
    """Show the `number`th call whole, counted from 1. Raises NotFound."""
    calls = await calls_of(chat.app.database, chat.session)
    if not 1 <= number <= len(calls):
        raise NotFound(f"there is no call {number}" if calls else "no call was made in this session")
    call = calls[number - 1]
    chat.say(f"\n{call.line(chat.width() - 12)}  ({number} of {len(calls)})", "bold")
    chat.say("\n".join(call.whole()), "")


async def calls(chat: ChatControl, rest: str) -> None:
    """List the latest calls with their numbers, or show one whole."""
    if (wanted := typed_number(rest)) is not None:
        await unfold(chat, wanted)
        return
    found = await calls_of(chat.app.database, chat.session)
    for number, call in list(enumerate(found, 1))[-_LISTED:]:
        chat.say(f"{number:>4}  {call.line(chat.width() - 6)}", "")
    chat.say("/calls N shows one whole, Ctrl-O the last one" if found else "no call was made yet")


async def receipt(chat: ChatControl, rest: str) -> None:
    """Show what the last turn's calls did, or a turn's, each file and command. Raises NotFound."""
    live = chat.session.log.live
    wanted = typed_number(rest)
    turn = live.last_turn if wanted is None else wanted
    made = await chat.app.database.read(lambda db: facts.receipt(db, live.key, turn))
    if made is None:
        raise NotFound(f"turn {turn} changed, ran and sent nothing", hint="/receipt TURN shows another one")
    chat.say(
        "\n".join((wording.receipt(made, chat.width()), *(f"  {wording.exact(row)}" for row in made.rows))),
        "",
    )


def _arguments(text: str) -> list[tuple[str, str]]:
    try:
        found = from_json(text or "{}", dict[str, object])
    except NOT_JSON:
        return [("arguments", text)]
    return [(key, value if isinstance(value, str) else str(value)) for key, value in found.items()]
