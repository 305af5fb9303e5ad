"""Run a helper's turns and write its messages: its task, the note after an interruption, its result.

This module does not know where helpers are stored or who waits for one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

import apsw
import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import Session, TurnObserver
from whet.clock import Clock, iso
from whet.contract.answers import find_json_mismatch
from whet.contract.events import Emit, EndReason, Event, Notice, ToolFinished, ToolStarted, TurnEnd
from whet.contract.messages import Message
from whet.contract.texts import clean
from whet.contract.tools import ToolContext, ToolOutput
from whet.foreign_regex import RegexTooSlow, regex_matches
from whet.log import mask
from whet.store import helper_rows
from whet.store.helper_rows import HelperRow, MergePlan
from whet.store.jobs import QueuedJob, TransactionWork
from whet.store.transcript import TurnRecord

EXCLUDED_TAGS = frozenset({"asks", "delegates", "notes", "skills", "owner"})
"""Tags of the tools that a helper does not have."""
_MAX_TURNS = 5
_TAG = re.compile(r"<(?=/?helper\b)", re.IGNORECASE)
_STOPPED = "The program stopped while you worked. Look at how far you are, and go on with the task."


class Watcher(Protocol):
    """Is notified about child sessions; never raises."""

    async def before_child(self, parent_id: str, child_id: str, task: str) -> None:
        """Called when a child session begins."""
        ...

    async def after_child(self, parent_id: str, child_id: str, end: TurnEnd | None) -> None:
        """Called when a child session has ended; `end` is None if it was cancelled or crashed."""
        ...


class HelperObserver(TurnObserver):
    """Ends a helper in the transaction that ends its last turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        """Return the write of the helper's result. It writes nothing if the helper has to continue."""
        answer = next(
            (message.text for message in reversed(session.log.messages) if message.role == "assistant"), ""
        )
        now, error = iso(self._clock.now()), turn.error
        if reason == "budget" and not error:
            error = f"it reached its limit of {session.limits.steps} steps"

        def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
            row = helper_rows.find_by_session(connection, session.id)
            if row is None or row.state != "open" or reason == "cancelled":
                return ()
            why = (
                find_json_mismatch(answer, row.wish.schema, _fits_pattern)
                if reason == "answered" and row.wish.schema
                else ""
            )
            if not why:
                helper_rows.end_helper(connection, end_row(row, reason, answer, error, now))
            elif turn.number >= _MAX_TURNS:
                helper_rows.end_helper(
                    connection, end_row(row, "failed", answer, f"its answer does not fit: {why}", now)
                )
            return ()

        return work


async def run_helper(
    child: Session,
    row: HelperRow,
    read_row: Callable[[str], Awaitable[HelperRow]],
    show: Emit,
    parent: ToolContext | None,
    watcher: Watcher | None,
) -> None:
    """Run a helper's turns until its row has ended, and notify `watcher` before and after them."""
    end: TurnEnd | None = None
    if watcher is not None:
        await watcher.before_child(row.parent, child.id, row.wish.task)
    try:
        while (row := await read_row(row.id)).state == "open":
            around = parent.paused if parent is not None else nullcontext
            end = await run_turn(child, _next_message(child, row), show, around=around)
    finally:
        await child.context.aclose()
        if watcher is not None:
            await watcher.after_child(row.parent, child.id, end)
        await child.log.details.end("completed")


def title_of(task: str) -> str:
    """Return the title of the session that does a task."""
    return mask(task.strip().splitlines()[0][:4_000])[:60] if task.strip() else ""


def end_row(row: HelperRow, reason: str, answer: str, error: str, at: str) -> HelperRow:
    """Return a helper's row with its end filled in."""
    return msgspec.structs.replace(row, state="ended", reason=reason, answer=answer, error=error, ended=at)


def result_of(row: HelperRow, merged: MergePlan | None, account: str = "") -> ToolOutput:
    """Return the result of the call that waited for a helper. `account` says what the helper did; it is used
    if there is no answer."""
    footer = f"[helper session {row.session}: {row.reason}]"
    edits = _edits_text(row, merged)
    if row.reason == "answered":
        text = "\n\n".join(part for part in (row.answer, edits, footer) if part)
        return ToolOutput(text, error_kind="failed" if merged is not None and merged.conflicts else "")
    text = "\n\n".join(part for part in (row.answer, _why_text(row), account, edits, footer) if part)
    return ToolOutput(text, error_kind="cancelled" if row.reason == "cancelled" else "failed")


def ended_output(row: HelperRow, merged: MergePlan | None) -> ToolOutput:
    """Return the output of a call that polls a helper after its end. The helper's result is a separate
    message."""
    line = f"[{row.name} has ended: {row.reason}; its result is a message of its own]"
    edits = _edits_text(row, merged or row.merge)
    has_conflicts = merged is not None and bool(merged.conflicts)
    return ToolOutput("\n".join(filter(None, (edits, line))), error_kind="failed" if has_conflicts else "")


def result_message(row: HelperRow, account: str) -> Message:
    """Return a background helper's result as a message to its parent, tagged as not typed by a person."""
    text = "\n\n".join(filter(None, (row.answer, _why_text(row), account)))
    edits = ""
    if row.can_merge and row.merge is None:
        edits = f"\n[its edits are in a working tree of its own: process wait {row.name} merges them]"
    head = f'<helper name="{row.name}" session="{row.session}" end="{row.reason}">'
    content = f"{head}\n{_TAG.sub('&lt;', text)}{edits}\n</helper>"
    return Message(role="user", content=content, origin="brought")


def end_notice(row: HelperRow) -> str:
    """Return the line that a person sees when a background helper has ended."""
    return f"{row.name} has ended: {row.reason} ({title_of(row.wish.task)})"


def activity_line(event: Event) -> str:
    """Return the line that shows an event of a helper, or an empty string if the event is not shown."""
    if isinstance(event, ToolStarted):
        return f"{event.name} {event.arguments[:120]}"
    if isinstance(event, ToolFinished) and not event.ok:
        return f"  {event.error_kind}: {event.preview.splitlines()[0] if event.preview else ''}"
    return event.text if isinstance(event, Notice) else ""


def _next_message(child: Session, row: HelperRow) -> Message | None:
    """Return the helper's next message, or None if it was interrupted in the middle of a turn."""
    if child.log.live.open_turn is not None:
        return None
    if not child.log.messages:
        return Message(role="user", content=_task_text(row))
    if row.wish.schema and child.log.messages[-1].is_final:
        why = find_json_mismatch(child.last_answer, row.wish.schema, _fits_pattern)
        again = f"That does not fit the schema: {why}. Answer again, with the JSON alone." if why else ""
        return Message(role="user", content=again or _STOPPED)
    return Message(role="user", content=_STOPPED)


def _fits_pattern(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern, or True if the pattern is invalid or takes too long."""
    try:
        return regex_matches(pattern, text)
    except (re.error, RegexTooSlow):
        return True


def _task_text(row: HelperRow) -> str:
    parts = [row.wish.task]
    if row.wish.context.strip():
        parts.append(f"Context:\n{row.wish.context}")
    if row.wish.schema:
        parts.append(
            "Answer with JSON alone that fits this schema:\n" + msgspec.json.encode(row.wish.schema).decode()
        )
    return "\n\n".join(parts)


def _why_text(row: HelperRow) -> str:
    """Return why a helper ended without an answer, or an empty string."""
    if row.reason == "answered":
        return ""
    return f"The helper ended before it was done ({row.reason})" + (f": {row.error}" if row.error else "")


def _edits_text(row: HelperRow, merged: MergePlan | None) -> str:
    if row.tree is None:
        return ""
    if merged is None:
        # The edits of a helper that failed or was stopped are not merged.
        is_kept = row.reason not in ("", "answered", "budget") and Path(row.tree.place).exists()
        return f"[its working tree is kept in {row.tree.place}]" if is_kept else ""
    if merged.conflicts:
        paths = ", ".join(merged.conflicts)
        more = f"\n[all of its edits: git cat-file -p {merged.patch}]" if merged.patch else ""
        more += f"\n[its working tree is kept in {row.tree.place}]"
        return f"Its edits conflict in {paths}; nothing was changed. Merge them by hand:\n{merged.note}{more}"
    lines = [f"[its edits are merged: {merged.note}]" if merged.will else f"[{merged.note}]"]
    if merged.brought:
        lines.append(
            f"[copied into the workspace, though git does not carry them: {_join_names(merged.brought)}]"
        )
    if merged.kept:
        lines.append(
            f"[not copied: {_join_names(merged.kept)}; its working tree is kept in {row.tree.place} until"
            " git worktree remove --force removes it]"
        )
    return "\n".join(lines)


def _join_names(names: Sequence[str]) -> str:
    """Return names on one line; those that could imitate the end of the note are quoted."""
    return clean(", ".join(repr(name) if "\n" in name or "]" in name else name for name in names))
