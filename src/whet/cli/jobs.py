"""/jobs: background processes and helpers, seen and stopped; leaving asks when some run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from whet.app.build import App
from whet.cli import wording
from whet.contract.delegation import HELPER
from whet.contract.errors import NotFound

if TYPE_CHECKING:
    from whet.app.helper_window import HelperWindow
    from whet.cli.commands import ChatControl
    from whet.tools.process import Process

_TAIL_LINES = 20
_TAIL_CHARS = 8_000


def running(app: App) -> list[Process]:
    """Give the background processes that are alive; looking makes none."""
    made = app.processes.made
    return [process for process in made.listed() if process.is_alive()] if made is not None else []


def put_aside(app: App) -> int:
    """Have the commands that are waited for run on in the background; says how many."""
    return app.processes.made.put_aside() if app.processes.made is not None else 0


def lines(app: App, width: int) -> list[str]:
    """Give a line for each one: id, for how long, command."""
    now_s = time.monotonic()
    rows = [
        f"  {process.id:<4} {wording.duration(now_s - process.started_s):>8}  {process.command.text}"
        for process in running(app)
    ]
    return [wording.cut(wording.printable(row).replace("\n", " "), width) for row in rows]


def tell_of_leaving(chat: ChatControl) -> bool:
    """Say what would end with the chat; False where nothing would."""
    found = lines(chat.app, chat.width())
    if found:
        chat.say("still running in the background, and it ends with the chat:", "yellow")
        chat.say("\n".join(found))
        chat.say("/quit or Ctrl-D again ends it; /jobs stop ID ends one", "dim")
    return bool(found)


async def jobs(chat: ChatControl, rest: str) -> None:
    """List them; `ID` shows the end of what one printed, `stop ID` or `stop all` ends it."""
    word, _, name = rest.partition(" ")
    if word == "stop":
        await _stop(chat, name.strip())
        return
    if word.startswith(HELPER):
        window = _window(chat)
        for line in window.shown(await window.named(chat.session.id, word)):
            chat.say(wording.cut(wording.printable(line), chat.width()))
    elif word:
        for line in _tail(_find(chat.app, word)):
            chat.say(wording.cut(line, chat.width()))
    if word:
        return
    found = [*lines(chat.app, chat.width()), *await _helpers(chat)]
    for line in found:
        chat.say(line, "")
    chat.say(
        "/jobs ID shows its output, /jobs stop ID ends it" if found else "nothing runs in the background"
    )


async def _helpers(chat: ChatControl) -> list[str]:
    """Give a line for each helper of the session."""
    from whet.store import helper_rows  # noqa: PLC0415 - few sessions have helpers

    seen = await chat.app.database.read(lambda db: helper_rows.seen(db, chat.session.id))
    return [wording.cut(wording.printable(f"  {one.line}"), chat.width()) for one in seen]


def _window(chat: ChatControl) -> HelperWindow:
    from whet.app.helper_window import HelperWindow  # noqa: PLC0415 - few sessions have helpers

    return HelperWindow(chat.app.helpers)


async def _stop(chat: ChatControl, name: str) -> None:
    if name.startswith(HELPER):
        row = await _window(chat).named(chat.session.id, name)
        row = await chat.app.helpers.stop(row)
        chat.say(f"{row.name} has ended: {row.reason}")
        return
    found = running(chat.app) if name == "all" else [_find(chat.app, name)]
    for process in found:
        await process.stop()
        chat.say(f"stopped {process.id}: {wording.clip(process.command.text, chat.width() - 14)}")


def _find(app: App, name: str) -> Process:
    made = app.processes.made
    found = (made.get(name) or made.get(f"p{name}")) if made is not None else None
    if found is None:
        raise NotFound(f"no background process {name!r}", hint="/jobs lists them")
    return found


def _tail(process: Process) -> list[str]:
    head, lost, tail = process.output.since(0)
    text = (tail if lost else head + tail)[-_TAIL_CHARS:].decode("utf-8", "replace")
    shown = [line for line in wording.printable(text).splitlines() if line.strip()][-_TAIL_LINES:]
    return shown or ["(it has printed nothing)"]
