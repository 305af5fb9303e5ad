"""Clean untrusted text: remove invisible characters, and recognise orders to the assistant."""

from __future__ import annotations

import re

from whet.lookalike import to_latin

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Characters that a person does not see: controls, directions, joiners, fillers, tags, selectors."""
_ORDERS = re.compile(
    r"ignore (?:all |any |the |your )*(?:previous|prior|above|earlier|other) (?:\w+ ){0,2}"
    r"(?:instruction|rule|prompt)"
    r"|(?:do not|don'?t|never|without) (?:ever )?(?:tell|telling|inform|informing|mention|mentioning|reveal"
    r"|notify|notifying|ask|asking) (?:\w+ ){0,2}(?:the )?(?:user|person|human|owner)\b"
    r"|<\s*/?\s*(?:system|important|instructions?|secret)\s*>|<\|[a-z_]+\|>"
    r"|before (?:using|calling|you (?:use|call)) (?:any|this|the) [^.\n]{0,60}(?:read|send|include|pass)\b"
    r"[^.\n]{0,80}(?:\.ssh|id_rsa|\.env\b|credential|api key|password|secret|config|history|conversation)",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """Return the text without hidden characters."""
    return text if text.isascii() and text.isprintable() else HIDDEN.sub("", text)


def find_orders(text: str) -> str:
    """Return the first words that read like an order to the assistant, or an empty string. Orders written
    with look-alike letters or extra spaces are recognised, too."""
    match = _ORDERS.search(re.sub(r"[ \t]+", " ", to_latin(clean(text))))
    return match[0][:80] if match else ""
