"""The model's task list as a person sees it: whole when it is made, in view while it is worked off."""

from __future__ import annotations

from collections.abc import Sequence

from whet.cli.wording import clip
from whet.tools.todo import TodoItem

_MARKS = {"pending": "☐", "in_progress": "▸", "completed": "☑", "cancelled": "☒"}
_PLAIN = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


def plan_rows(items: Sequence[TodoItem], width: int, most: int, *, plain: bool = False) -> list[str]:
    """Give at most `most` rows of the list, around what is being done; nothing for an empty list."""
    marks = _PLAIN if plain else _MARKS
    rows = [clip(f"{marks[item.status or 'pending']} {item.content}", width) for item in items]
    if len(rows) <= most:
        return rows
    first_open = next((at for at, item in enumerate(items) if not is_done(item)), len(items))
    room = max(most - 1, 1)
    first = max(0, min(first_open - 1, len(rows) - room))
    done, _ = counted(items)
    shown = rows[first : first + room]
    return [*shown, clip(f"… {len(rows) - len(shown)} more, {done} of {len(items)} done", width)]


def counted(items: Sequence[TodoItem]) -> tuple[int, int]:
    """Give how many are done, of how many."""
    return sum(map(is_done, items)), len(items)


def is_done(item: TodoItem) -> bool:
    """Whether nothing is left to do of it."""
    return item.status in ("completed", "cancelled")
