"""Forks at the terminal: `/fork`, `/tree`, and how a fork stands in a list of sessions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from whet.app.slash import SlashCommand
from whet.cli import wording
from whet.cli.output import age
from whet.clock import iso
from whet.contract.errors import ConfigError
from whet.contract.texts import plural, typed_number
from whet.store import forks
from whet.store.forks import TreeRow

if TYPE_CHECKING:
    from whet.cli.commands import ChatControl


def titled(one: TreeRow) -> str:
    """Give a session's title; a fork's stands below the one that it goes on from."""
    title = ("[private] " if one.row.private else "") + (wording.printable(one.row.title) or "(no title)")
    return f"└{'──' * (one.depth - 1)} {title}" if one.depth else title


def tree_line(one: TreeRow, here: str, now: datetime, *, with_id: bool = True) -> str:
    """Write a session as a line of a list; the one that is open has a star."""
    mark, name = "*" if one.row.id == here else " ", f"{one.row.id}  " if with_id else ""
    return f"{mark} {name}{age(one.row.last_active, now):>8}  {titled(one)}"


async def _fork(chat: ChatControl, rest: str) -> None:
    turn = typed_number(rest)
    if rest and turn is None:
        raise ConfigError(f"{rest[:40]!r} is no turn", hint="/rewind lists the turns with their numbers")
    old, new_id = chat.session.id, chat.app.clock.new_id()
    now = iso(chat.app.clock.now())
    row = await chat.app.database.write(lambda db: forks.fork(db, old, turn or 0, new_id, now))
    await chat.switch_to(await chat.app.open_session(row.id, leaving=chat.session))
    chat.say("this is a copy now; the original is kept, and /tree shows both", "dim")


async def _tree(chat: ChatControl, rest: str) -> None:
    here = chat.session.id
    found = await chat.app.database.read(lambda db: forks.family(db, here))
    if len(found) == 1:
        chat.say("this session has no forks; /fork makes one", "dim")
        return
    now = chat.app.clock.now()
    choices = [(tree_line(one, here, now, with_id=False), _place(one)) for one in found]
    picked = await chat.choose("Go on in which one?", choices)
    if picked is not None and found[picked].row.id != here:
        await chat.commands.get("resume").run(chat, found[picked].row.id)


def _place(one: TreeRow) -> str:
    own = f", of its own after turn {one.turn}" if one.origin else ""
    return f"{plural(one.row.turns, 'turn')}{own} · {one.row.id}"


def fork_commands() -> list[SlashCommand[ChatControl]]:
    """Give the commands, in the order that /help shows them."""
    return [
        SlashCommand("fork", "Go on in a copy of this session, as it was after a turn.", _fork, "[turn]"),
        SlashCommand("tree", "See the forks of this session, and go to one.", _tree),
    ]
