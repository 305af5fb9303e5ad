"""Show the model's task list, or an excerpt around the current task."""

from __future__ import annotations

from collections.abc import Sequence

from whet.terminal.wording import clip
from whet.tools.todo import TodoItem

_MARKS = {"pending": "☐", "in_progress": "▸", "completed": "☑", "cancelled": "☒"}
_PLAIN = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


def plan_rows(items: Sequence[TodoItem], width: int, max_rows: int, *, plain: bool = False) -> list[str]:
    """Return at most `max_rows` rows of the list, around the first open task."""
    marks = _PLAIN if plain else _MARKS
    rows = [clip(f"{marks[item.status or 'pending']} {item.content}", width) for item in items]
    if len(rows) <= max_rows:
        return rows
    first_open = next((at for at, item in enumerate(items) if not is_done(item)), len(items))
    room = max(max_rows - 1, 1)
    first = max(0, min(first_open - 1, len(rows) - room))
    done, _ = count_done(items)
    visible = rows[first : first + room]
    return [*visible, clip(f"… {len(rows) - len(visible)} more, {done} of {len(items)} done", width)]


def count_done(items: Sequence[TodoItem]) -> tuple[int, int]:
    """Return the number of finished tasks and the number of all."""
    return sum(map(is_done, items)), len(items)


def is_done(item: TodoItem) -> bool:
    """Return whether no work on the task remains."""
    return item.status in ("completed", "cancelled")
