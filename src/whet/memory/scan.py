"""What a learned text must not hold: hidden characters, comments that people don't see, secrets.

Whose words a text is decides whether it may be a rule (`gate.py`); no phrase does. Shapes of secrets
are `config/redact.py`'s, and what prose says.
"""

from __future__ import annotations

import re

from whet.config import redact

_HIDDEN = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\ufe00-\ufe0e\u3164\uffa0"
    "\U000e0000-\U000e0fff\U0001d173-\U0001d17a]"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECRET = re.compile(
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[ _-]?key|access[ _-]?key|private[ _-]?key"
    r"|auth[ _-]?key|credential|pin)\b"
    r"(?:\s+(?:is|for\s+\S+\s+is))?\s*(?:[:=]\s*"
    r"|\s(?:is\s+)?)[\"'`]?((?=[^\s\"'`]*[\d!@#$%^&*])[^\s\"'`,;]{6,})",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<!\d)(?:\d[ -]?){13,19}(?!\d)")


def scan(text: str) -> str:
    """Say what is wrong with a text that is to be kept; empty where nothing is."""
    if found := hidden(text):
        return f"it holds the invisible character U+{ord(found):04X}; write it in plain visible text"
    if secret := holds_secret(text):
        return f"it holds {secret}; say where it is kept (a variable's name, a vault), never what it is"
    if "<!--" in text:
        return "it holds an HTML comment, which people don't see; write it in plain text"
    return ""


def hidden(text: str) -> str:
    """Give the first character that people don't see; empty where there is none."""
    found = _HIDDEN.search(text) or _CONTROL.search(text)
    return found[0] if found else ""


def holds_secret(text: str) -> str:
    """Name the kind of secret that stands in a text; empty where none does."""
    if redact.holds_secret(text):
        return "a key or a password"
    if _SECRET.search(text):
        return "what looks like a password or a key"
    if any(_is_card(match[0]) for match in _CARD.finditer(text)):
        return "what looks like a card number"
    return ""


def _is_card(run: str) -> bool:
    digits = [int(c) for c in run if c.isdigit()]
    if len(digits) < 13 or len(set(digits)) < 2:
        return False
    doubled = [d if i % 2 else (d * 2 - 9 if d > 4 else d * 2) for i, d in enumerate(reversed(digits), 1)]
    return sum(doubled) % 10 == 0
