"""The chat's first lines, and those of a session that is opened: what answers, where one is, what was last.

It writes through the chat and changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli import picking
from whet.cli.mode import mode_of
from whet.cli.wording import clip, columns, printable
from whet.contract.texts import plural
from whet.sandbox.known import unheld
from whet.store import news

if TYPE_CHECKING:
    from whet.cli.commands import ChatControl

_RECALLED = 8


def greet(chat: ChatControl) -> None:
    """Say which model answers, in which mode and folder, and how to begin."""
    model, mode, width = chat.session.model, mode_of(chat.app.gate, chat.session), chat.width()
    head = f"whet · {model.model} · approvals {mode}"
    named = f"whet · {model.model} ({model.provider}) · approvals {mode}"
    chat.say(_fitting(width, named, head), "bold")
    chat.say(_fitting(width, *_shortened(chat.app.workspace, width)), "dim")
    if model.provider == "practice":
        told = "The practice model is a scripted stand-in, not a language model."
        chat.say(_fitting(width, told, "a scripted stand-in, no language model"), "yellow")
    if line := unheld(chat.app.settings.sandbox.mode, chat.app.home.whole):
        chat.say(printable(line), "yellow")
    told = "/help shows the commands, Esc stops a turn, Shift-Tab changes the mode, Ctrl-D quits"
    short = "/help, Esc stops, Shift-Tab: mode, Ctrl-D quits"
    chat.say(_fitting(width, told, short, "/help, Esc stops, Ctrl-D quits"), "dim")
    found = chat.app.database.write_now(news.tell)
    if found.line:
        chat.say(_fitting(width, found.line_with("/inbox", "whet memory log")), "dim")


async def say_where_we_are(chat: ChatControl) -> None:
    """After a session was opened: its title and size, and whether a turn is unfinished."""
    log = chat.session.log
    if log.messages:
        title = printable(log.session.title) or chat.session.id
        chat.say(f"\n{clip(title, chat.width() - 16)} · {plural(len(log.messages), 'message')}", "dim")
        for text, style in zip(picking.last_exchange(log.messages), ("bold", ""), strict=True):
            _recall(chat, text, style)
    if await log.unfinished_turn() is not None:
        chat.say(
            "The last turn was cut off. Enter /resume to go on with it, or say what to do next.", "yellow"
        )


def _recall(chat: ChatControl, text: str, style: str) -> None:
    """Show the end of what was said before."""
    if not style:
        chat.recall(text, _RECALLED)
        return
    rows = printable(text).strip().split("\n")
    shown = rows if len(rows) <= _RECALLED else ["…", *rows[-_RECALLED:]]
    if text.strip():
        chat.say("› " + "\n".join(shown), style)


def _fitting(width: int, *variants: str) -> str:
    """Give the first of `variants` that fits, else the last one cut."""
    return next((text for text in variants if columns(text) <= width), clip(variants[-1], width))


def _shortened(path: Path, width: int) -> tuple[str, str]:
    """Give a path in whole, with ~ for the home folder, and its end."""
    whole = printable(str(path))
    home = str(Path.home())
    whole = "~" + whole[len(home) :] if home != "/" and whole.startswith(home) else whole
    return whole, "…" + whole[-(width - 1) :]
