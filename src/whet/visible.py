"""Text as a person sees it before deciding: exact, whole up to a limit, with nothing hidden in it.

The approval gate, the confirmation page and every message to a person go through here. Does not know how
the text is shown; escaping for HTML, Markdown or a vendor is done where it is sent.
"""

from __future__ import annotations

import re
import unicodedata

from whet.log import mask

MOST_CHARS = 2_000
WHOLE = 1 << 40  # the limit of what must not be cut
_PLAIN = re.compile(r"[ -~\n]*")


def visible(text: str, limit: int = MOST_CHARS, *, masks: bool = True) -> str:
    """Write `text` for a person: secrets masked (unless `masks` is False), characters that can't be seen or
    that turn text around written as their code, and what is cut at `limit` characters named.
    """
    text = mask(text) if masks else text
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    plain = _PLAIN.fullmatch(text) is not None
    shown = text if plain else "".join(c if c == "\n" or not _hides(c) else _code(c) for c in text)
    return f"{shown}\n[... {cut:,} more characters not shown]" if cut > 0 else shown


def latin(text: str) -> str:
    """Give the text with other scripts' letters that look like Latin ones as those, for finding phrases."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_LOOK_ALIKE)


_LOOK_ALIKE = str.maketrans("аеорсухіјѕԁɡһΑΒΕΗΙΚΜΝΟΡΤΧοανι", "aeopcyxijsdghABEHIKMNOPTXoavi")


def _hides(character: str) -> bool:
    if " " <= character <= "~":
        return False
    category = unicodedata.category(character)
    return category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or (category == "Zs" and character != " ")


def _code(character: str) -> str:
    names = {"\t": "\\t", "\r": "\\r", "\x1b": "\\e", "\0": "\\0"}
    return names.get(character) or f"<U+{ord(character):04X}>"
