"""What in a person's message is their own, and what they brought from elsewhere.

Quoted lines, attachments, long code blocks, forwarded mail, and what follows an announcement ("the page
says:") come from elsewhere: they are as trustworthy as a web page. Everything else is the person's word.
"""

from __future__ import annotations

import re

_TAGGED = re.compile(
    r"<(attachment|attached|document|file|email|message|page|article|quote|context|skill|untrusted|paste"
    r"|pasted)\b[^>]*>"
    r".*?(?:</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"(?m)^[ \t]*(?:>|\|).*$")
_FORWARDED = re.compile(
    r"(?im)^[ \t]*(?:-+\s*(?:original|forwarded)\s+message|begin forwarded message|on .{6,60} wrote:\s*$"
    r"|(?:from|von|de):\s*\S+.*\n(?:(?:to|cc|date|sent|subject|an|betreff):.*\n)+)"
)
_ANNOUNCED = re.compile(
    r"(?im)(?:^|(?<=[.!?\n]))[^.!?\n]*\b(?:page|site|website|article|blog|post|mail|email|e-mail"
    r"|message|letter|ticket|issue"
    r"|comment|review|thread|chat|slack|colleague|coworker|customer|client|vendor|stranger|someone"
    r"|somebody|guy|bot"
    r"|readme|docs?|documentation|wiki|forum|tweet|log|output|transcript|pdf|attachment|doc)\b[^.!?\n]*"
    r"\b(?:says?|said|reads?|wrote|writes|sent(?: me| us)?|states?|told(?: me| us)?|received|got"
    r"|contains?|is|was|forwarded|pasted?|below"
    r"|attached|follows|contents?|text)\b[^.!?\n]*:[ \t]*(?=\S|\n)"
)
_PASTED = re.compile(
    r"(?im)(?:^|(?<=[.!?\n]))[^.!?\n]*\b(?:pasted?|pasting|copied|copying|forwarding|forwarded"
    r"|got this|received this"
    r"|found this|this is what|here(?:'s| is| are) (?:the|a|an|what|some)[^:\n]{0,60}\b(?:log|output"
    r"|mail|email|message"
    r"|page|text|article|post|transcript|ticket|issue|comment|dump|document|doc"
    r"|readme))\b[^:\n]*:[ \t]*(?=\S|\n)"
)
_SHORT_FENCE_CHARS = 300
_SHORT_FENCE_LINES = 4


def split(text: str) -> tuple[str, str]:
    """Give the person's own words, and what they brought from elsewhere, each joined by blank lines."""
    foreign: list[str] = []

    def take(match: re.Match[str]) -> str:
        foreign.append(match[0])
        return "\n\n"

    def take_fence(match: re.Match[str]) -> str:
        body = match[2]
        if len(body) <= _SHORT_FENCE_CHARS and body.count("\n") <= _SHORT_FENCE_LINES:
            before = match.string[: match.start()].rstrip().splitlines()[-1:]
            if not (before and (_ANNOUNCED.search(f"{before[0]}\nx") or _PASTED.search(f"{before[0]}\nx"))):
                return match[0]
        return take(match)

    own = _FENCED.sub(take_fence, _TAGGED.sub(take, text))
    for pattern in (_FORWARDED, _ANNOUNCED, _PASTED):
        if found := pattern.search(own):
            end = found.end() if pattern is not _FORWARDED else found.start()
            foreign.append(own[end:])
            own = own[:end]
    own = _QUOTED.sub(take, own)
    return own.strip(), "\n\n".join(foreign).strip()
