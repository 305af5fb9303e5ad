"""Show the first lines of the chat, and the title and last turn of a reopened session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from whet.app.modes import read_mode
from whet.contract.texts import plural
from whet.sandbox.engine_cache import read_status
from whet.sandbox.policy import shorten
from whet.store import lesson_counts, turns
from whet.store.facts import build_receipt
from whet.store.parts import list_entry_parts
from whet.store.replay import list_last_turn
from whet.store.transcript import is_cut_off
from whet.terminal.live import person_text
from whet.terminal.past_turns import PastTurns
from whet.terminal.pasted_text import fold_pastes
from whet.terminal.wording import clip, count_columns, exact, printable

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl

_PAST_ROWS = 60


def greet(chat: ChatControl) -> None:
    """Show the model, the approval mode, the folder, keys, and news of learning, which is then marked as
    read."""
    model, mode, width = chat.session.model, read_mode(chat.services, chat.session.id), chat.width()
    head = f"whet · {model.model} · approvals {mode}"
    full_head = f"whet · {model.model} ({model.provider}) · approvals {mode}"
    chat.say(_fit(width, full_head, head), "bold")
    chat.say(_fit(width, *_path_variants(chat.services.workspace, width)), "dim")
    if model.provider == "practice":
        notice = "The practice model is a scripted stand-in, not a language model."
        chat.say(_fit(width, notice, "a scripted stand-in, no language model"), "yellow")
    if line := read_status(chat.services.settings.sandbox.mode, chat.services.home.main_root):
        chat.say(printable(line), "yellow")
    notice = "/help shows the commands, Esc stops a turn, Shift-Tab changes the mode, Ctrl-D quits"
    short = "/help, Esc stops, Shift-Tab: mode, Ctrl-D quits"
    chat.say(_fit(width, notice, short, "/help, Esc stops, Ctrl-D quits"), "dim")
    changes = chat.services.database.write_now(lesson_counts.take_unread)
    if changes.line:
        chat.say(_fit(width, changes.line_with("/inbox", "/learned all")), "dim")


async def show_session(chat: ChatControl) -> None:
    """Show a reopened session's title, size and last exchange, and whether a turn is unfinished."""
    log = chat.session.log
    if log.messages:
        title = printable(log.session.title) or chat.session.id
        chat.say(f"\n{clip(title, chat.width() - 16)} · {plural(len(log.messages), 'message')}", "dim")
        await _show_last_turn(chat)
    left = await chat.services.database.read(lambda db: turns.list_left_texts(db, log.session.id))
    if left:
        unread = f"{plural(len(left), 'message')} not read yet: your next message or /resume sends"
        chat.say(f"{unread} {'it' if len(left) == 1 else 'them'} first.", "yellow")
        for text in left:
            chat.put_out(chat.marks.fit(person_text(chat.painter, chat.marks, fold_pastes(text))))
    if await is_cut_off(log.writer, log.live):
        chat.say(
            "The last turn was cut off. Enter /resume to go on with it, or say what to do next.", "yellow"
        )


async def _show_last_turn(chat: ChatControl) -> None:
    """Show the last turn as it was shown while it ran."""
    log = chat.session.log

    entries, turn = await chat.services.database.read(lambda db: list_last_turn(db, log.session.id))
    number = turn.number if turn is not None else 0
    receipt = await chat.services.database.read(lambda db: build_receipt(db, log.live.key, number))
    is_shown = chat.services.settings.ui.show_reasoning
    past = PastTurns(chat.painter, chat.marks, chat.width(), show_reasoning=is_shown)
    past.add(list_entry_parts(entries))
    if turn is not None:
        past.end_turn(log.session.id, turn, receipt)
    chat.put_out(chat.marks.fit(past.read_end(_PAST_ROWS)))


def _fit(width: int, *variants: str) -> str:
    """Return the first of `variants` that fits into `width` columns, or else the last one, cut."""
    return next((text for text in variants if count_columns(text) <= width), clip(variants[-1], width))


def _path_variants(path: Path, width: int) -> tuple[str, str]:
    """Return the whole path, with ~ for the home folder, and a shorter text with only its end."""
    text = exact(shorten(str(path)))
    return text, "…" + text[-(width - 1) :]
