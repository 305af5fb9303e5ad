"""Keys that move over and delete whole characters, as a person sees them.

A letter with a combining accent, a flag, an emoji with a skin colour and a family of emoji are several code
points. The library's keys take one of them, which leaves half a flag or a family without its child.
"""

from __future__ import annotations

import re
import unicodedata

from prompt_toolkit.filters import FilterOrBool
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_JOINER = "\u200d"
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_ATTACHED = re.compile("[\u200c\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")


def find_character_start(text: str, end: int) -> int:
    """Return where the character begins that ends at `end`, which is above 0."""
    at = end - 1
    while at > 0 and (_is_attached(text[at]) or text[at - 1] == _JOINER):
        at -= 1
    if _FLAG_LETTER.match(text[at]):
        first = at
        while first > 0 and _FLAG_LETTER.match(text[first - 1]):
            first -= 1
        at -= (at - first) % 2  # letters pair up from the first one
    return at


def find_character_end(text: str, start: int) -> int:
    """Return where the character ends that begins at `start`, which is below the length."""
    end = start + 1
    while end < len(text) and find_character_start(text, end + 1) <= start:
        end += 1
    return end


def add_character_keys(keys: KeyBindings, active: FilterOrBool) -> None:
    """Bind Backspace, Delete, Left and Right in the input."""
    keys.add("backspace", filter=active)(_delete_before)
    keys.add("delete", filter=active)(_delete_after)
    keys.add("left", filter=active)(_move_left)
    keys.add("right", filter=active)(_move_right)


def _delete_before(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if before := event.current_buffer.document.text_before_cursor:
            count = len(before) - find_character_start(before, len(before))
            event.current_buffer.delete_before_cursor(count)


def _delete_after(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if after := event.current_buffer.document.text_after_cursor:
            event.current_buffer.delete(find_character_end(after, 0))


def _move_left(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if before := event.current_buffer.document.current_line_before_cursor:
            event.current_buffer.cursor_left(len(before) - find_character_start(before, len(before)))


def _move_right(event: KeyPressEvent) -> None:
    for _ in range(event.arg):
        if after := event.current_buffer.document.current_line_after_cursor:
            event.current_buffer.cursor_right(find_character_end(after, 0))


def _is_attached(character: str) -> bool:
    """Whether a character belongs to the one before it."""
    return bool(_ATTACHED.match(character)) or unicodedata.category(character) in ("Mn", "Me", "Mc")
