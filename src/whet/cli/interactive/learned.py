"""/learned: list the changes that reviews learned, show one in full, or undo it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from whet.clock import local_minute
from whet.contract.errors import ConfigError, NotFound
from whet.contract.origin import Origin
from whet.contract.texts import parse_typed_number, plural
from whet.store import ledger, lesson_counts
from whet.terminal.wording import cut, printable

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl

_USAGE = "/learned, /learned today, /learned all, /learned NUMBER, or /learned undo NUMBER"
_LISTED, _TEXT_CHARS = 30, 240
_STATES = {"active": "learned", "inbox": "waits", "quarantined": "waits", "undone": "taken back"}


async def show_learned(chat: ChatControl, argument: str) -> None:
    """List the changes of today or, with `all`, the latest ones; show one in full by its number; `undo`
    one."""
    from whet.review.triggers import day_start  # noqa: PLC0415 - the chat starts without it

    number = parse_typed_number(argument)
    if number is not None:
        await _show_row(chat, number)
        return
    if argument.startswith("undo "):
        await _undo(chat, argument)
        return
    if argument not in ("", "today", "all"):
        raise ConfigError(f"/learned knows no {argument[:40]!r}", hint=_USAGE)
    since = "" if argument == "all" else day_start(chat.services.clock.now())
    profile = chat.learning.profile
    rows = await chat.learning.database.read(lambda db: ledger.select(db, _LISTED, profile=profile))
    await chat.learning.database.append(lambda db: lesson_counts.take_unread(db, profile))
    rows = [row for row in rows if row.at >= since]
    for row in rows:
        state = _STATES.get(row.state, row.state)
        text = cut(" ".join((row.after or f"removes: {row.before}").split()), _TEXT_CHARS)
        item = row.item if row.item == row.kind else f"{row.kind} {row.item}"
        line = printable(f"{row.id:>4}  {state}  {item}: {text}")
        wrapped = textwrap.wrap(line, max(chat.width() - 3, 20), subsequent_indent=" " * 6)
        chat.say("\n".join(f"  {part}" for part in wrapped))
    if rows:
        chat.say("/learned NUMBER shows one whole, /learned undo NUMBER takes it back", "dim")
    else:
        chat.say("nothing was learned" + (" today" if since else " yet"), "dim")


async def _undo(chat: ChatControl, argument: str) -> None:
    """Undo a change. The undo is a change itself. Raises NotFound or CannotUndo."""
    number = parse_typed_number(argument.removeprefix("undo "))
    if number is None:
        raise ConfigError(f"/learned knows no {argument[:40]!r}", hint=_USAGE)
    origin = Origin("user", session_id=chat.session.id, platform=chat.services.source)
    row = await chat.learning.undo(number, origin)
    chat.say(f"change {number} is taken back; /learned undo {row.id} brings it back", "dim")


async def _show_row(chat: ChatControl, number: int) -> None:
    row = await chat.learning.get_change(number)
    if row.profile != chat.learning.profile:
        raise NotFound(f"there is no change {number}", hint=_USAGE)
    await chat.page(printable("\n".join(_describe(row))))


def _describe(row: ledger.LedgerRow) -> list[str]:
    """Return a change in full: its text, its reason and the quotes that are its evidence."""
    lines = [f"change {row.id}, {local_minute(row.at)}: {row.action} {row.kind} {row.item} ({row.state})", ""]
    lines += [f"- {line}" for line in row.before.splitlines()]
    lines += [f"+ {line}" for line in row.after.splitlines()]
    if row.reason:
        lines += ["", f"because: {row.reason}"]
    if row.evidence:
        lines += ["", f"{plural(len(row.evidence), 'quote')}:"]
    for quote in row.evidence:
        source = (
            f"{quote.role}, message {quote.seq} of {quote.session_id}" if quote.session_id else quote.role
        )
        lines.append(f'  "{quote.quote}" ({source})')
    return lines
