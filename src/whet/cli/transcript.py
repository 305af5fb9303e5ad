"""Render a stored conversation as text, as the chat shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby

import apsw

from whet.clock import local_minute
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import UiSettings
from whet.contract.errors import WhetError
from whet.contract.texts import plural
from whet.store import facts, replay, sessions
from whet.store.parts import list_entry_parts
from whet.store.rows import SEQ_LIMIT
from whet.store.sessions import SessionRow
from whet.terminal import output
from whet.terminal.past_turns import PastTurns
from whet.terminal.render import Painter
from whet.terminal.signs import Marks
from whet.terminal.wording import count, printable

_UNSTYLED = {"TERM": "dumb"}


def load_ui(home: Home) -> UiSettings:
    """Return the settings of the terminal's display, or the defaults if the settings can't be read."""
    with suppress(WhetError):
        return load(home, environ=os.environ).settings.ui
    return UiSettings()


def render(connection: apsw.Connection, row: SessionRow, ui: UiSettings, *, full: bool = False) -> str:
    """Return the whole text of a session. With `full`, pastes and the arguments and results of calls are not
    shortened."""
    past = begin_text(ui, full=full)
    key = sessions.key_of(connection, row.id)
    turns = replay.list_turns(connection, row.id, 0, SEQ_LIMIT)
    entries = replay.list_entries(connection, row.id, 1, SEQ_LIMIT)
    for number, turn_entries in groupby(entries, key=lambda entry: entry.turn):
        turn = turns.get(number)
        if turn is not None and turn.is_undone:
            continue
        past.add(list_entry_parts(list(turn_entries)))
        if turn is not None:
            past.end_turn(row.id, turn, facts.build_receipt(connection, key, number))
    return "\n".join([*_format_head(row), past.text.rstrip("\n") or "\nNothing was said yet."])


def begin_text(ui: UiSettings, *, full: bool = False) -> PastTurns:
    """Return an empty text to which parts of a conversation are added. It has no colours if stdout is not a
    terminal."""
    if output.has_colour():
        painter = Painter(markdown=ui.markdown, theme=ui.theme)
    else:
        painter = Painter(_UNSTYLED, markdown=False)
    width = output.terminal_width()
    return PastTurns(painter, Marks(), width, is_full=full, show_reasoning=ui.show_reasoning)


def _format_head(row: SessionRow) -> Iterator[str]:
    yield output.style_text(printable(row.title) or "(untitled)", "bold")
    parts = [row.id, local_minute(row.started), row.model or row.provider, row.workspace]
    parts += [
        plural(row.turns, "turn"),
        f"{count(row.usage.total_tokens)} tokens",
        output.usage_cost(row.usage),
    ]
    if row.private:
        parts.append("private")
    yield output.wrap_text(" · ".join(printable(part) for part in parts if part))
