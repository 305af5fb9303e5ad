"""Make foreign text printable and valid for a model, and format sizes.

Only unreadable parts are removed: terminal escapes, control characters, invalid Unicode. Words are data
and stay unchanged, even if they claim to be instructions.
"""

from __future__ import annotations

from whet.contract.texts import plural
from whet.late import late_pattern

_ESCAPES = late_pattern(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b]*+(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|[PX^_][^\x1b]*+(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|[ -/]*+[0-~])"  # two-character escapes
)
_CONTROLS = late_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PRINTED_CONTROLS = late_pattern("[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATES = late_pattern("[\ud800-\udfff]")
_SUSPECT = late_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clean(text: str) -> str:
    """Return `text` without terminal escapes and control characters. Tab and newline stay.

    CRLF and single carriage returns become newlines. Lone surrogates become U+FFFD.
    """
    if not _SUSPECT.search(text):
        return text
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


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
    """Remove terminal control from printed text: escape sequences, overwritten lines, control characters."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return _PRINTED_CONTROLS.sub("", text)
