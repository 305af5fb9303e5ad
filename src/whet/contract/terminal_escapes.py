"""Find terminal escapes in text, and remove them together with control characters and invalid Unicode.

Words are data and stay unchanged, even if they claim to be instructions.
"""

from __future__ import annotations

from whet.late import late_pattern

CONTROL_SEQUENCE = r"(?:\x1b\[|\x9b(?=[0-?]))([0-?]*+)[ -/]*+([@-~])"
OTHER_ESCAPE = (
    r"\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*+(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x9d\d+;[^\x00-\x1f\x7f-\x9f]*+(?:\x07|\x1b\\|\x9c)"  # OSC that begins with a C1 character
    r"|\x1b[ -/]*+[0-~]"  # two-character escapes
)
ESCAPES = late_pattern(rf"{CONTROL_SEQUENCE}|{OTHER_ESCAPE}")
"""Terminal escapes. Of a control sequence, group 1 holds the parameters and group 2 the final character."""
SUSPECT = late_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""The characters that `clean` removes or replaces, and those with which an escape begins."""
_CONTROLS = late_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATES = late_pattern("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Return `text` without terminal escapes and control characters. Tab and newline stay.

    CRLF and single carriage returns become newlines. Lone surrogates become U+FFFD.
    """
    if not SUSPECT.search(text):
        return text
    text = ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))
