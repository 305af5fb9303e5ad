"""`/inbox` in a conversation, wherever it is: what waits for the person, what reviews were refused and why,
and one word to take it or drop it.

It decides on the notes and skills of whoever the conversation belongs to, and of nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.app.slash import SlashCommand
from whet.cli.wording import printable
from whet.contract.errors import ConfigError
from whet.contract.texts import typed_number
from whet.store import news
from whet.store.ledger import LedgerRow

if TYPE_CHECKING:
    from whet.cli.commands import ChatControl

_SHOWN = 20
_TEXT_CHARS = 300
_USAGE = "/inbox, /inbox accept NUMBER, /inbox reject NUMBER"


async def _inbox(chat: ChatControl, rest: str) -> None:
    if rest:
        await _decide(chat, *rest.split())
        return
    profile, database = chat.desk.profile, chat.desk.database
    rows: list[LedgerRow] = await database.read(lambda db: news.waiting(db, profile))
    refused: list[LedgerRow] = await database.read(lambda db: news.refusals(db, profile))
    await database.append(lambda db: news.tell(db, profile))
    if not rows and not refused:
        chat.say("nothing waits for you, and nothing was refused", "dim")
    for title, some in (("waits for you", rows), ("refused", refused)):
        for row in some[:_SHOWN]:
            _show(chat, title, row)
        if len(some) > _SHOWN:
            chat.say(f"and {len(some) - _SHOWN} more: whet review inbox", "dim")
    if decidable := [row for row in (*rows, *refused) if row in rows or row.kind == "memory"]:
        chat.say(f"/inbox accept {decidable[0].id} takes it, /inbox reject {decidable[0].id} drops it", "dim")


def _show(chat: ChatControl, title: str, row: LedgerRow) -> None:
    text = " ".join((row.after or f"removes: {row.before}").split())[:_TEXT_CHARS]
    chat.say(printable(f"{row.id} {title} ({row.kind} {row.item}): {text}"))
    if row.reason:
        chat.say(printable(f"  because: {row.reason}"), "dim")


async def _decide(chat: ChatControl, word: str, *numbers: str) -> None:
    decide = {"accept": chat.desk.accept, "reject": chat.desk.reject}.get(word)
    ids = [typed_number(one) for one in numbers]
    if decide is None or not ids or None in ids:
        raise ConfigError(f"/inbox knows no {' '.join((word, *numbers))[:40]!r}", hint=_USAGE)
    for number in ids:
        row = await decide(number or 0)
        done = {"active": "in force", "rejected": "dropped"}.get(row.state, f"{row.state} ({row.reason})")
        chat.say(printable(f"{row.id} {row.kind} {row.item}: {done}"))


def inbox_command() -> SlashCommand[ChatControl]:
    """Give the command."""
    text = "See what waits or was refused; accept or reject it."
    return SlashCommand("inbox", text, _inbox, "[accept|reject NUMBER]", anytime=True, remote=True)
