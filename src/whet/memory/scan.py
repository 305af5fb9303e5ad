"""What a learned text must not hold: hidden characters, secrets, orders against the person, ways to leak.

The text will stand in later prompts, so it is judged as if a stranger had written it. It says what is wrong
in words that let an honest writer mend it. Shapes of secrets are
`config/redact.py`'s, and what prose says.
"""

from __future__ import annotations

import re

from whet.config import redact
from whet.visible import latin

_HIDDEN = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\ufe00-\ufe0e\u3164\uffa0"
    "\U000e0000-\U000e0fff\U0001d173-\U0001d17a]"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# ruff: noqa: E501 - patterns are not cut in the middle
_ORDERS = (
    r"(?:ignore|disregard|forget|override|bypass) (?:all |any |the |your |every )*(?:previous |prior |above |earlier |other )?"
    r"(?:\w+ ){0,2}(?:instruction|rule|guideline|safety|restriction|system prompt|approval|confirmation)",
    r"(?:do not|don'?t|never|without) (?:ever )?(?:tell|inform|mention|reveal|notify|alert|warn)(?:ing)? (?:\w+ ){0,3}"
    r"(?:the )?(?:user|person|owner|human|anyone|operator)\b(?! (?:about|for|to) (?:formatting|style))",
    r"\byou are (?:now |no longer )(?:a |an |in )?\w+",
    r"\b(?:developer|god|dan|admin|root|jailbreak|unrestricted|maintenance) mode\b",
    r"(?:^|\n)\s*(?:system|assistant|user|human|developer|tool)\s*:\s",
    r"<\s*/?\s*(?:system|assistant|user|human|instructions?|tool_call|tool_result|function_calls?|im_start|im_end|inst)\b[^>]*>",
    r"<\|[a-z_]+\|>|\[/?INST\]|\[/?SYS(?:TEM)?\]|<<SYS>>",
    r"(?:skip|disable|turn off|circumvent|suppress|auto-?approve) (?:\w+ ){0,3}(?:approval|confirmation|permission|safety check)",
    r"(?:user|person|owner|human) (?:has )?(?:already )?(?:pre-?)?(?:approved|authori[sz]ed|consented)",
    r"(?:always|silently|secretly) (?:\w+ ){0,4}(?:approve|execute|obey) (?:\w+ ){0,4}(?:request|command|order|code)",
)
_LEAKS = (
    r"(?:send|post|upload|forward|e-?mail|exfiltrate|leak|share|copy|paste)\b[^.\n]{0,60}\b(?:secrets?|credentials?"
    r"|tokens?|passwords?|api[ _-]?keys?|private keys?|\.env\b|cookies?|conversation|transcripts?|memory files?|\.ssh)",
    r"!\[[^\]]*\]\(\s*https?://[^)]*[?&=$%{][^)]*\)",
    r"\b(?:curl|wget|fetch|iwr)\b[^\n|;&]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da|fi)?sh\b",
    r"\b(?:ba|z|da)?sh\s+(?:-c\s+)?[\"']?[$<]?\(\s*(?:curl|wget)\b|\bsource\s+<\(\s*(?:curl|wget)",
    r"base64\s+(?:-d|-D|--decode)\b[^\n]{0,80}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b|\beval\s*[\"'(]?\$?\(?\s*(?:curl|wget|base64)",
    r"\b(?:curl|wget)\b[^\n]{0,200}(?:-d|--data\S*|-F|--form|-T|--upload-file|--post-file)\s*=?\s*[\"']?(?:@|\$\()",
    r"\b(?:cat|env|printenv|tar)\b[^\n]{0,80}\|\s*(?:curl|wget|nc|ncat|socat)\b|/dev/tcp/|\bauthorized_keys\b",
)
_SECRET = re.compile(
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[ _-]?key|access[ _-]?key|private[ _-]?key"
    r"|auth[ _-]?key|credential|pin)\b"
    r"(?:\s+(?:is|for\s+\S+\s+is))?\s*(?:[:=]\s*"
    r"|\s(?:is\s+)?)[\"'`]?((?=[^\s\"'`]*[\d!@#$%^&*])[^\s\"'`,;]{6,})",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<!\d)(?:\d[ -]?){13,19}(?!\d)")
_PLANTS = re.compile(
    r"\b(?:remember|memori[sz]e|keep in mind|save to (?:your )?memory)\b[:,]? (?:that|this)\b", re.I
)
_orders, _leaks = (re.compile("|".join(some), re.IGNORECASE) for some in (_ORDERS, _LEAKS))


def scan(text: str) -> str:
    """Say what is wrong with a text that is to be kept; empty where nothing is."""
    if found := _HIDDEN.search(text) or _CONTROL.search(text):
        return f"it holds the invisible character U+{ord(found[0]):04X}; write it in plain visible text"
    if secret := holds_secret(text):
        return f"it holds {secret}; say where it is kept (a variable's name, a vault), never what it is"
    plain = _look_alike(text)
    if found := _orders.search(plain):
        return (
            f"{found[0][:80]!r} is an order to an assistant, not a fact or a way of working;"
            " what runs without a question is decided in config.yaml"
        )
    if found := _leaks.search(plain):
        return f"{found[0][:80]!r} would send data out or run what is fetched"
    if "<!--" in text:
        return "it holds an HTML comment, which people don't see; write it in plain text"
    return ""


def speaks_to_a_model(text: str) -> bool:
    """Whether a text that is only shown, such as a tool's result, tells its reader what to do or hides
    something from people."""
    plain = _look_alike(text)
    return any(pattern.search(plain) for pattern in (_orders, _leaks, _PLANTS)) or bool(_HIDDEN.search(text))


def holds_secret(text: str) -> str:
    """Name the kind of secret that stands in a text; empty where none does."""
    if redact.holds_secret(text):
        return "a key or a password"
    if _SECRET.search(text):
        return "what looks like a password or a key"
    if any(_is_card(match[0]) for match in _CARD.finditer(text)):
        return "what looks like a card number"
    return ""


def _look_alike(text: str) -> str:
    """Undo the ways to write a phrase so that it is read but not found."""
    text = re.sub(r"(?<=\b\w)[.\-_*](?=\w\b)", "", latin(text))
    return re.sub(r"[ \t]+", " ", text)


def _is_card(run: str) -> bool:
    digits = [int(c) for c in run if c.isdigit()]
    if len(digits) < 13 or len(set(digits)) < 2:
        return False
    doubled = [d if i % 2 else (d * 2 - 9 if d > 4 else d * 2) for i, d in enumerate(reversed(digits), 1)]
    return sum(doubled) % 10 == 0
