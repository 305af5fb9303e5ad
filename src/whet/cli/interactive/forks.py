"""Fork a session (`/fork`), choose among its forks (`/tree`), and show forks in lists of sessions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from whet.clock import iso
from whet.contract.errors import ConfigError
from whet.contract.texts import parse_typed_number, plural
from whet.log import mask
from whet.store import forks
from whet.terminal import wording
from whet.terminal.output import age

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl


def title_text(node: forks.TreeRow) -> str:
    """Return a session's title. A fork's title is indented below that of the session it was copied from."""
    marks = "[archived] " * node.row.archived + "[private] " * node.row.private
    title = marks + (wording.printable(mask(node.row.title)) or "(no title)")
    return f"└{'──' * (node.depth - 1)} {title}" if node.depth else title


def tree_line(node: forks.TreeRow, open_id: str, now: datetime, *, with_id: bool = True) -> str:
    """Return a session as a line of a list. The open session is marked with a star."""
    mark, name = "*" if node.row.id == open_id else " ", f"{node.row.id}  " if with_id else ""
    return f"{mark} {name}{age(node.row.last_active, now):>8}  {title_text(node)}"


async def fork_session(chat: ChatControl, argument: str) -> None:
    """Continue in a copy of the session."""
    turn = parse_typed_number(argument)
    if argument and turn is None:
        raise ConfigError(
            f"{argument[:40]!r} is not a turn", hint="/rewind lists the turns with their numbers"
        )
    old, new_id = chat.session.id, chat.services.clock.new_id()
    now = iso(chat.services.clock.now())
    row = await chat.services.database.write(lambda db: forks.fork(db, old, turn or 0, new_id, now))
    await chat.switch_to(await chat.opener.open_session(row.id, leaving=chat.session))
    chat.say("this is a copy now; the original is kept, and /tree shows both", "dim")


async def choose_fork(chat: ChatControl, argument: str) -> None:
    """Show the forks of the session and open the chosen one."""
    open_id = chat.session.id
    nodes = await chat.services.database.read(lambda db: forks.list_family(db, open_id))
    if len(nodes) == 1:
        chat.say("this session has no forks; /fork makes one", "dim")
        return
    now = chat.services.clock.now()
    choices = [(tree_line(node, open_id, now, with_id=False), _preview(node)) for node in nodes]
    picked = await chat.choose("Go on in which one?", choices)
    if picked is not None and nodes[picked].row.id != open_id:
        await chat.commands.get("resume").run(chat, nodes[picked].row.id)


def _preview(node: forks.TreeRow) -> str:
    suffix = f", of its own after turn {node.turn}" if node.origin else ""
    return f"{plural(node.row.turns, 'turn')}{suffix} · {node.row.id}"
