"""What a learned text must not hold: hidden characters, comments that people don't see, secrets.

Whose words a text is decides whether it may be a rule (`gate.py`); no phrase does.
"""

from __future__ import annotations

import re

from whet.config import redact

_HIDDEN = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\ufe00-\ufe0e\u3164\uffa0"
    "\U000e0000-\U000e0fff\U0001d173-\U0001d17a]"
)
# Between letters of Arabic and Indic scripts the joiners are spelling.
_SPELT = re.compile("(?<=[\u0600-\u06ff\u0900-\u0dff])[\u200c\u200d](?=[\u0600-\u06ff\u0900-\u0dff])")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def scan(text: str) -> str:
    """Say what is wrong with a text that is to be kept; empty where nothing is."""
    if found := hidden(text):
        return f"it holds the invisible character U+{ord(found):04X}; write it in plain visible text"
    if secret := redact.secret_said(text):
        return f"it holds {secret}; say where it is kept (a variable's name, a vault), never what it is"
    if "<!--" in text:
        return "it holds an HTML comment, which people don't see; write it in plain text"
    return ""


def hidden(text: str) -> str:
    """Give the first character that people don't see; empty where there is none."""
    found = _HIDDEN.search(_SPELT.sub("", text)) or _CONTROL.search(text)
    return found[0] if found else ""
