"""Make Backspace, Delete, Left and Right act on whole characters, as a person sees them.

A letter with a combining accent, a flag, or an emoji with a skin colour consists of several code points.
prompt_toolkit's own keys act on one of them, which leaves half a flag. Characters are split by UAX 29, as
implemented by `wcwidth`.
"""

from __future__ import annotations

from prompt_toolkit.filters import FilterOrBool
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from wcwidth import grapheme_boundary_before, iter_graphemes


def add_character_keys(keys: KeyBindings, active: FilterOrBool) -> None:
    """Bind Backspace, Delete, Left and Right in the input."""
    keys.add("backspace", filter=active)(_delete_before)
    keys.add("delete", filter=active)(_delete_after)
    keys.add("left", filter=active)(_move_left)
    keys.add("right", filter=active)(_move_right)


def _delete_before(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if before := event.current_buffer.document.text_before_cursor:
            event.current_buffer.delete_before_cursor(_count_last(before))


def _delete_after(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if after := event.current_buffer.document.text_after_cursor:
            event.current_buffer.delete(_count_first(after))


def _move_left(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if before := event.current_buffer.document.current_line_before_cursor:
            event.current_buffer.cursor_left(_count_last(before))


def _move_right(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if after := event.current_buffer.document.current_line_after_cursor:
            event.current_buffer.cursor_right(_count_first(after))


def _count_first(text: str) -> int:
    """Return the number of code points of the first character."""
    return len(next(iter_graphemes(text)))


def _count_last(text: str) -> int:
    """Return the number of code points of the last character."""
    return len(text) - grapheme_boundary_before(text, len(text))
