"""/jobs: list and stop background processes and helpers, and warn before leaving the chat ends some."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from whet.contract.delegation import HELPER
from whet.contract.errors import NotFound
from whet.terminal import wording

if TYPE_CHECKING:
    from whet.app.helpers.window import HelperWindow
    from whet.cli.interactive.chat_control import ChatControl
    from whet.tools.process import Process
    from whet.tools.toolsets.terminal import SharedProcesses

_TAIL_LINES = 20
_TAIL_CHARS = 8_000


def running_processes(shared: SharedProcesses) -> list[Process]:
    """Return the background processes that are alive, without creating the process table."""
    if shared.processes is None:
        return []
    return [process for process in shared.processes.list_background() if process.is_alive()]


def move_to_background(shared: SharedProcesses) -> int:
    """Move the commands that a call is waiting for to the background, and return their number."""
    return shared.processes.move_to_background() if shared.processes is not None else 0


def process_lines(shared: SharedProcesses, width: int) -> list[str]:
    """Return one line per process: id, running time, command."""
    now_s = time.monotonic()
    rows = [
        f"  {process.id:<4} {wording.duration(now_s - process.started_s):>8}  {process.command.text}"
        for process in running_processes(shared)
    ]
    return [wording.cut(wording.printable(row).replace("\n", " "), width) for row in rows]


def warn_before_leaving(chat: ChatControl) -> bool:
    """List the processes that would end with the chat. Returns False if there are none."""
    rows = process_lines(chat.services.processes, chat.width())
    if rows:
        chat.say("still running in the background, and it ends with the chat:", "yellow")
        chat.say("\n".join(rows))
        chat.say("/quit or Ctrl-D again ends it; /jobs stop ID ends one", "dim")
    return bool(rows)


async def handle_jobs(chat: ChatControl, arguments: str) -> None:
    """List background processes and helpers. `ID` shows the end of its output; `stop ID` or `stop all` ends
    it."""
    word, _, name = arguments.partition(" ")
    if word == "stop":
        await _stop(chat, name.strip())
        return
    if word.startswith(HELPER):
        window = _open_window(chat)
        for line in window.activity_lines(await window.find_helper(chat.session.id, word)):
            chat.say(wording.cut(wording.printable(line), chat.width()))
    elif word:
        for line in _output_tail(_find_process(chat.services.processes, word)):
            chat.say(wording.cut(line, chat.width()))
    if word:
        return
    rows = [*process_lines(chat.services.processes, chat.width()), *await _helper_lines(chat)]
    for line in rows:
        chat.say(line, "")
    chat.say("/jobs ID shows its output, /jobs stop ID ends it" if rows else "nothing runs in the background")


async def _helper_lines(chat: ChatControl) -> list[str]:
    """Return one line per helper of the session."""
    from whet.store import helper_rows  # noqa: PLC0415 - few sessions have helpers

    helpers = await chat.services.database.read(lambda db: helper_rows.list_views(db, chat.session.id))
    return [wording.cut(wording.printable(f"  {helper.line}"), chat.width()) for helper in helpers]


def _open_window(chat: ChatControl) -> HelperWindow:
    from whet.app.helpers.window import HelperWindow  # noqa: PLC0415 - few sessions have helpers

    return HelperWindow(chat.opener.helpers.get())


async def _stop(chat: ChatControl, name: str) -> None:
    if name.startswith(HELPER):
        row = await _open_window(chat).find_helper(chat.session.id, name)
        row = await chat.opener.helpers.get().stop(row)
        chat.say(f"{row.name} has ended: {row.reason}")
        return
    if name == "all":
        processes = running_processes(chat.services.processes)
    else:
        processes = [_find_process(chat.services.processes, name)]
    for process in processes:
        await process.stop()
        chat.say(f"stopped {process.id}: {wording.clip(process.command.text, chat.width() - 14)}")


def _find_process(shared: SharedProcesses, name: str) -> Process:
    processes = shared.processes
    process = (processes.get(name) or processes.get(f"p{name}")) if processes is not None else None
    if process is None:
        raise NotFound(f"no background process {name!r}", hint="/jobs lists them")
    return process


def _output_tail(process: Process) -> list[str]:
    head, lost, tail = process.output.since(0)
    text = (tail if lost else head + tail)[-_TAIL_CHARS:].decode("utf-8", "replace")
    rows = [line for line in wording.printable(text).splitlines() if line.strip()][-_TAIL_LINES:]
    return rows or ["(it has printed nothing)"]
