"""Make text safe to show to a person before a decision: exact, complete up to a limit, with nothing hidden.

The approval gate, the confirmation page and every message to a person use it. The caller escapes the result
for HTML, Markdown or a chat platform.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache

from whet.late import late_pattern
from whet.log import mask_values
from whet.lookalike import find_lookalikes, format_code, is_ideograph, mark_lookalikes

MAX_CHARS = 2_000
WHOLE = 1 << 40  # the limit for text that must not be cut
_ESCAPES = {"\t": "\\t", "\r": "\\r", "\x1b": "\\e", "\0": "\\0"}
_PLAIN = late_pattern(r"[ -~\n]*")
_INVISIBLE_NAMES = late_pattern(r"VARIATION SELECTOR|FILLER|GRAPHEME JOINER|PATTERN BLANK|VOWEL INHERENT")
_EMOJI_FORM = late_pattern(r"(?<=[\u2190-\u2bff\U0001f000-\U0001faff])\ufe0f")  # requests a colourful form


def visible(text: str, limit: int = MAX_CHARS, *, masking: Callable[[str], str] | None = mask_values) -> str:
    """Return `text` for a person who decides on it: with the values of secrets masked, with codes in place of
    characters that are invisible or reorder text, and with a note in place of the text after `limit`
    characters.

    `masking` masks the secrets; None masks nothing. A display on which nobody decides may use `log.mask`,
    which also hides whatever resembles a key.
    """
    text = masking(text) if masking else text
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    safe_text = escape_characters(text)
    return f"{safe_text}\n[... {cut:,} more characters not shown]" if cut > 0 else safe_text


def visible_line(text: str, limit: int = WHOLE) -> str:
    r"""Return `text` for a person on one line: like `visible`, with line feeds as `\n`, and with an ellipsis
    in place of the text after `limit` characters."""
    line = visible(text, WHOLE).replace("\n", "\\n")
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def escape_characters(text: str, keeps: str = "\n") -> str:
    """Replace characters that are invisible or reorder text by their codes, and put the codes of look-alikes
    after them. Characters in `keeps` stay: a line of code at a terminal keeps its tabs, too."""
    if _PLAIN.fullmatch(text) is None:
        text = _EMOJI_FORM.sub("", text)
        text = text.translate({ord(c): _escape(c) for c in set(text) if c not in keeps and is_hidden(c)})
    return mark_lookalikes(text)


def find_odd_characters(text: str) -> set[str]:
    """Return the characters of a text that `escape_characters` replaces or marks."""
    if text.isascii() and text.isprintable():
        return set()
    hidden = {c for c in set(_EMOJI_FORM.sub("", text)) if c not in "\n\t" and is_hidden(c)}
    return hidden | {text[at] for at in find_lookalikes(text)}


def list_hidden_codes(text: str) -> list[str]:
    r"""Return the codes by which `escape_characters` replaces hidden characters, each once. Tabs, line feeds
    and the carriage return of a Windows line end don't count."""
    if _PLAIN.fullmatch(text) is not None:
        return []
    text = _EMOJI_FORM.sub("", text.replace("\r\n", "\n"))
    return [
        _escape(character)
        for character in sorted(set(text))
        if character not in "\n\t" and is_hidden(character)
    ]


def describe_character(character: str) -> str:
    """Name a character with its code."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'a control character')}"


@lru_cache(maxsize=4096)
def is_hidden(character: str) -> bool:
    """Return whether a character is invisible, reorders text, or is a blank other than the space."""
    if " " <= character <= "~":
        return False
    category = unicodedata.category(character)
    if category == "Lo" and is_ideograph(character):
        return False
    if category in ("Mn", "Lo", "So") and _INVISIBLE_NAMES.search(unicodedata.name(character, "")):
        return True
    return category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or (category == "Zs" and character != " ")


def _escape(character: str) -> str:
    return _ESCAPES.get(character) or format_code(character)
