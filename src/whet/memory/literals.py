"""The parts of a text that are right or wrong to the letter: commands, flags, paths, hosts, names, numbers.

`literals` finds them in a claim; `stands_in` looks for one in folded text. What they mean is not known here.
"""

from __future__ import annotations

import re

from whet.memory.folding import fold

_TICKED = re.compile(r"`+([^`\n]+)`+")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s<>\"'`)\]]+", re.IGNORECASE)
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_PATH = re.compile(r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@+-]+)+/?|\b[\w.@+-]+(?:/[\w.@+-]+)+")
_FILE = re.compile(r"\b[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,9}\b|(?<!\w)\.[a-z][\w-]+\b")
_NUMBER = re.compile(r"(?<![\w.])v?\d+(?:[.:,]\d+)*(?:%|[a-zA-Z]{1,3}\b)?")
_MIXED = re.compile(
    r"\b(?:[a-z]+[A-Z]\w*|[A-Za-z]\w*_\w+|[A-Z]{2,}[A-Z0-9]*|[A-Za-z]+\d\w*|[A-Z][a-z]+[A-Z]\w*)\b"
)
_NAME = re.compile(r"(?<=[a-z,;)\"'] )[A-Z][a-z]{2,}\b")
_TOKEN = re.compile(r"[^\s\"'`;|&(){}<>=,]+")
_ENGLISH = re.compile(
    r"\b(?:the|is|are|to|of|in|and|with|for|on|use|run|by|from|at|not|before|after|ask)\b", re.IGNORECASE
)
LIST_MARK = re.compile(r"(?m)^\s*(?:\d+[.)]|[-*+])\s+")
_HEADING = re.compile(r"(?m)^\s*#+\s.*$")
_ABBREVIATIONS = frozenset({"e.g", "i.e", "etc", "vs", "a.k.a"})
_CAPITALS_TEXT = """
i ok cli api url json yaml html css sql http https ci cd os ui ux pr prs id ids pdf csv readme todo faq
utc ascii utf ide
"""
_CAPITALS = frozenset(_CAPITALS_TEXT.split())


def literals(text: str) -> list[str]:
    """Give the literals of a text, folded, each once, in the order of their kinds."""
    text = LIST_MARK.sub("", text)
    found: dict[str, None] = {}
    for match in _TICKED.finditer(text):
        found.update(dict.fromkeys(token for raw in _TOKEN.findall(match[1]) if (token := _tidy(raw))))
    text = _TICKED.sub(" ", text)
    for pattern in (_URL, _EMAIL, _PATH, _FILE, _FLAG, _NUMBER, _MIXED):
        for match in pattern.finditer(text):
            token = _tidy(match[0])
            if token and token not in _ABBREVIATIONS and not _is_inside(match, token, found):
                found[token] = None
    if _ENGLISH.search(text):
        prose = _HEADING.sub("", text)
        found.update(dict.fromkeys(_tidy(match[0]) for match in _NAME.finditer(prose)))
    return [token for token in found if token and token not in _CAPITALS]


def stands_in(literal: str, folded: str) -> bool:
    """Whether a folded literal stands in folded text on its own, not as a part of a longer word or number."""
    start = folded.find(literal)
    while start >= 0:
        end = start + len(literal)
        if not _joins(folded, start - 1, literal[0]) and not _joins(folded, end, literal[-1]):
            return True
        start = folded.find(literal, start + 1)
    return False


def _joins(folded: str, place: int, edge: str) -> bool:
    """Whether the character at `place` makes one word with the literal's edge."""
    if not 0 <= place < len(folded):
        return False
    near = folded[place]
    if near.isalnum() or near == "_":
        return edge.isalnum() or edge == "_"
    if edge.isdigit() and near == "." and place + 1 < len(folded):
        return folded[place + 1].isdigit() and folded[place - 1].isdigit()
    return near == "-" and edge == "-"


def _tidy(token: str) -> str:
    token = fold(token).strip("\"'()[]{}<>,;:!?*`")
    token = token.rstrip(".")
    return "" if not any(c.isalnum() for c in token) else token


def _is_inside(match: re.Match[str], token: str, found: dict[str, None]) -> bool:
    """Whether the token is part of a longer literal that begins before or ends after it."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    head = before.split()[-1] if before and not before[-1].isspace() else ""
    tail = after.split()[0] if after and not after[0].isspace() else ""
    whole = _tidy(head + match[0] + tail)
    return whole != token and whole in found
