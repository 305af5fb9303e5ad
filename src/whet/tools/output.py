"""Make foreign text printable and valid for a model, and format sizes.

Only unreadable parts are removed: terminal escapes, control characters, invalid Unicode. Words are data
and stay unchanged, even if they claim to be instructions.
"""

from __future__ import annotations

import re

from whet.contract.texts import ESCAPES, SUSPECT, plural
from whet.late import late_pattern
from whet.tools.printed_screen import has_moves, render

_PRINTED_CONTROLS = late_pattern("[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_ODD_BYTES = late_pattern("[\x00\udc80-\udcff]")
_ODD_CONTROLS = late_pattern(rb"\0(?=.?\0)|[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]", re.DOTALL)


def size(count_bytes: int) -> str:
    """Format a size for a reader: 812 bytes, 1.5 KB, 3.2 MB."""
    if count_bytes < 1000:
        return plural(count_bytes, "byte")
    value = float(count_bytes)
    for unit in ("KB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def strip_terminal_control(text: str) -> str:
    r"""Return printed text as a terminal shows it at its end, without escapes and control characters.

    NUL and bytes that were decoded by surrogateescape become escapes like \x00 and \xff.
    """
    if not SUSPECT.search(text):
        return text
    text = render(text) if has_moves(text) else ESCAPES.sub("", text)
    return _ODD_BYTES.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", _PRINTED_CONTROLS.sub("", text))


def is_binary(data: bytes) -> bool:
    """Return whether more than a tenth of the beginning is neither UTF-8 nor printed text. A NUL between
    words ends one, as in the lists of `find -print0`."""
    sample = data[:8192]
    odd = sample.decode("utf-8", "replace").count("\ufffd") + len(_ODD_CONTROLS.findall(sample))
    return odd * 10 > len(sample) + 40
