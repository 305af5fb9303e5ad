"""A request to change the notes, worked out on the text as it stands: bounds, and what a full store says.

Pure. What a refused request should do instead is in the refusal.
"""

from __future__ import annotations

from whet.memory import notes
from whet.memory.notes import NoteEdit
from whet.memory.requests import MemoryRequest, Refused, Target


def plan(text: str, request: MemoryRequest, limit_chars: int) -> NoteEdit:
    """Give the edit that `request` asks for. Raises Refused."""
    if request.action == "remove":
        return notes.remove(text, request.old_text)
    if request.action == "replace":
        edit = notes.replace(text, request.old_text, request.content)
        if notes.fold(edit.before) == notes.fold(edit.after):
            raise Refused("That is what the entry says already", hint="Nothing has to be saved.")
    else:
        edit = notes.add(text, request.target, request.content)
    check_room(text, edit, request.target, limit_chars)
    return edit


def check_room(text: str, edit: NoteEdit, target: Target, limit_chars: int) -> None:
    """Raise Refused where the edited file would be over its limit and larger than before."""
    size = len(edit.text.strip())
    if size <= limit_chars or size <= len(text.strip()):
        return
    spare = notes.droppable(text, size - limit_chars)
    offer = " | ".join(" ".join(entry.split())[:120] for entry in spare)
    raise Refused(
        f"{notes.FILES[target].rpartition('/')[2]} is full: {notes.used(text, limit_chars)} "
        f"({limit_chars:,} characters), and this needs {size - limit_chars} more",
        hint=f"Replace or remove first what is out of date or in a skill. The longest entries: {offer}",
    )
