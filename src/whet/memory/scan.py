"""Find content that a learned text must not have: hidden characters, invisible comments, secrets.

Whether a text may become a rule depends on who wrote it (`gate.py`), never on its wording.
"""

from __future__ import annotations

import re

from whet.config import redact

_HIDDEN = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\ufe00-\ufe0e\u3164\uffa0"
    "\U000e0000-\U000e0fff\U0001d173-\U0001d17a]"
)
# Between letters of Arabic and Indic scripts, joiners belong to the spelling.
_SPELT = re.compile("(?<=[\u0600-\u06ff\u0900-\u0dff])[\u200c\u200d](?=[\u0600-\u06ff\u0900-\u0dff])")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def scan(text: str) -> str:
    """Return why a text must not be kept, or an empty string."""
    if char := find_hidden(text):
        return f"it holds the invisible character U+{ord(char):04X}; write it in plain visible text"
    if secret := redact.describe_secret(text):
        return f"it holds {secret}; say where it is kept (a variable's name, a vault), never what it is"
    if "<!--" in text:
        return "it holds an HTML comment, which people don't see; write it in plain text"
    return ""


def find_hidden(text: str) -> str:
    """Return the first character that people can't see, or an empty string."""
    match = _HIDDEN.search(_SPELT.sub("", text)) or _CONTROL.search(text)
    return match[0] if match else ""
