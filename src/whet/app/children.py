"""Child sessions: a delegated task with its own transcript, under the parent's gate.

A child gets the parent's model and tools without those that need the person or would delegate again. What
it does is shown as the parent call's live output, and where its person is asked, the clocks of its parents
stand still too. It does not know the tool that asks for it.
"""

from __future__ import annotations

from typing import Protocol

import apsw

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.contract.events import Event, Notice, ToolFinished, ToolStarted, TurnEnd
from whet.contract.messages import Message
from whet.contract.tools import ToolContext, ToolOutput
from whet.store import live

_MOST_LOOKED_AT = 50
LEFT_OUT = frozenset({"asks", "delegates", "notes", "skills", "owner"})
"""The tools that a child does not have."""


class Watcher(Protocol):
    """Is told of child sessions; never raises."""

    async def child_began(self, parent_id: str, child_id: str, task: str) -> None:
        """One begins."""
        ...

    async def child_ended(self, parent_id: str, child_id: str, end: TurnEnd | None) -> None:
        """One ended; None where it was cancelled or broke."""
        ...


def title_of_task(task: str) -> str:
    """Give the title of the session that does a task."""
    return task.strip().splitlines()[0][:60] if task.strip() else ""


async def run_child(
    child: Session, parent: ToolContext, task: str, background: str, watcher: Watcher | None
) -> ToolOutput:
    """Run `task` in a child session; its whole transcript is stored under the id that is named."""
    if watcher is not None:
        await watcher.child_began(parent.session_id, child.id, task)
    ended: TurnEnd | None = None
    text = _asked(task, background)

    def show(event: Event) -> None:
        if isinstance(event, ToolStarted):
            parent.output(f"{event.name} {event.arguments[:120]}\n")
        elif isinstance(event, ToolFinished) and not event.ok:
            parent.output(f"  {event.error_kind}: {event.preview.splitlines()[0] if event.preview else ''}\n")
        elif isinstance(event, Notice):
            parent.output(f"{event.text}\n")

    try:
        message = Message(role="user", content=text)
        ended = end = await run_turn(child, message, show, around=parent.paused)
    finally:
        await child.context.aclose()
        if watcher is not None:
            await watcher.child_ended(parent.session_id, child.id, ended)
        await child.log.details.end("completed")
    footer = f"[helper session {child.id}: {end.reason}, {end.steps} steps]"
    if end.reason == "answered":
        return ToolOutput(f"{end.text}\n\n{footer}")
    return ToolOutput(f"{end.text}\n\n{end.error} {footer}".strip(), error_kind="failed")


def recovered(connection: apsw.Connection, parent_id: str, task: str, background: str) -> ToolOutput | None:
    """Give what the helper of a call came to that was cut off with the program; None where it had none yet.

    The helper is the newest of this task that no result of its parent names.
    """
    text = _asked(task, background)
    named = " ".join(
        message.text for message in live.load(connection, parent_id).messages if message.role == "tool"
    )
    children = connection.execute(
        "SELECT id FROM sessions WHERE parent_session_id = ? AND kind = 'child' ORDER BY key DESC LIMIT ?",
        (parent_id, _MOST_LOOKED_AT),
    )
    for (child_id,) in children.fetchall():
        messages = live.load(connection, child_id).messages
        if child_id in named or not messages or messages[0].text != text:
            continue
        said = [message for message in messages if message.role == "assistant" and message.text.strip()]
        if messages[-1].role == "assistant" and messages[-1].is_final:
            return ToolOutput(f"{messages[-1].text}\n\n[helper session {child_id}: answered]")
        last = said[-1].text if said else "nothing"
        return ToolOutput(
            f"The program stopped while the helper worked, and it was not run again. It had said last: {last}"
            f"\n\n[helper session {child_id}: interrupted]",
            error_kind="interrupted",
        )
    return None


def _asked(task: str, background: str) -> str:
    return f"{task}\n\nContext:\n{background}" if background.strip() else task
