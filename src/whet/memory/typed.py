"""Separate the person's own words in a message from text that they brought from elsewhere.

Interfaces put text that they know to be from elsewhere into marked tags (`contract/brought_text.py`). If a
message's origin is `typed`, the rest is the person's, including tags without a mark. If it is unknown, the
rest is judged by its structure: tags, fenced blocks, quoted lines, mail headers, lines with the time of day,
and everything below a line that ends in a colon, except a list. The words themselves are not considered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from whet.contract.brought_text import split_wrapped
from whet.contract.messages import TextOrigin

# Pastes in messages of earlier versions, which escaped the end tag in them.
_PASTED = re.compile(r"<pasted>.*?(?:</pasted>|\Z)", re.DOTALL)
# To the last end tag, because the text may contain earlier ones.
_TAGGED = re.compile(r"<([a-z_][\w-]*)\b[^<>]*>(?:.*</\1>|.*)", re.DOTALL | re.IGNORECASE)
_UNSHOWN = re.compile(r"<!(?:--.*?(?:-->|\Z)|\[CDATA\[.*?(?:\]\]>|\Z))", re.DOTALL)
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_FENCED_WITHIN_LINES = re.compile(r"(`{3,}).*?(?:\1|\Z)", re.DOTALL)
_QUOTED = re.compile(r"(?m)^[^\S\n]*[>|│┃].*$")
# Two header lines in a row, or a rule of dashes with words in it: a mail begins and continues to the end.
_MAIL = re.compile(
    r"(?m)^(?:[ \t]*-{3,}[^-\n]+-{3,}[ \t]*$|[ \t]*[^\W\d_][\w-]{1,20}[:：] [^\n]+\n"
    r"[ \t]*[^\W\d_][\w-]{1,20}[:：] \S)"
)
# Two lines that begin with the time of day: a copied chat or log, up to the end of its paragraph.
_STAMP = r"[ \t]*(?:[^\n:：]{0,40}[^\w\n.])?(?:[01]?\d|2[0-3]):[0-5]\d(?!\w)[^\n]*"
_STAMPED = re.compile(rf"(?m)^{_STAMP}(?:\n[^\n]*){{0,8}}?\n{_STAMP}$(?:\n(?!\n)[^\n]*)*")
# Output of a program, up to the end of its paragraph: a diff, a prompt with a command, JSON, rows of a table.
_NOTATION = re.compile(
    r"(?m)^[ \t]*(?:@@ |\+\+\+ |--- \S|diff --|\$ |\+[^\W\d_]|[{\[]+\s*[\"{\[]"
    r"|[^\n;\t]*[;\t](?=\S)[^\n]*\n[^\n;\t]*[;\t](?=\S)|[^\n,]*,(?=[^\s\d])[^\n]*\n[^\n,]*,(?=[^\s\d])"
    r"|[^\n|│┃]*[|│┃][^\n]*\n[^\n|│┃]*[|│┃])[^\n]*(?:\n(?!\n)[^\n]*)*"
)
_ITEM = r"[ \t]*(?:[-*+•◦▪·–—]|\d{1,2}[.)])[ \t]+(?![\"\w.-]+[:=]\s)\S[^\n]*"
# People type lists of short lines, also with blank lines between, then at most one line more, and one in
# each further paragraph. Indented lines and keys are notation.
_LINE = r"[^\s-][^\n]*"
_LIST = rf"\s*^{_ITEM}(?:\n\s*^{_ITEM})+(?:\n{_LINE})?(?:\n[ \t]*\n+{_LINE}){{0,2}}\s*\Z"
_BELOW_COLON = re.compile(rf"(?m)[:：][ \t]*\n(?!{_LIST})")
# "The customer wrote this: All of it goes to ...": a long introduction, then a complete sentence.
_AFTER_COLON = re.compile(
    r"(?:(?<=^)|(?<=[.!?。！？]\s)|(?<=\n))(?:[^\s:：]+[ \t]+){3,}[^\s:：]+[:：]"
    r"[ \t]+(?=[\"“«„「]?[^\W\d_a-z])"
)
_QUOTATION = re.compile(
    r"[“„«「『]([^“”„«»「」『』\n]+)[”“»」』]|(?<!\w)[\"‹]([^\"‹›\n]+)[\"›]|(?<!\w)['‚]([^'‚‘\n]{12,})['‘](?!\w)"
    r"|\[([^\]\n]+)\]\([^)\n]*\)"  # the title of a file or page
    # a sentence, which begins with a capital letter or has more plain words in a row than commands
    r"|`((?=[A-ZÀ-Þ][^\s`]*(?: [^\s`]+){3}|(?:[^\W\d_]+[,;]? ){4})[^`\n]+)`"
)
_MIN_QUOTED_WORDS = 3
_MIN_QUOTED_CHARS = 8  # of writing that has no spaces between words


def split(text: str, origin: TextOrigin = "") -> tuple[str, str]:
    """Return the person's own words and the text from elsewhere, each joined by blank lines.

    `origin` is that of the text outside of marked tags.
    """
    if origin == "brought":
        return "", text.strip()
    own_text, foreign = split_wrapped(text)
    is_typed = origin == "typed"

    def take(match: re.Match[str]) -> str:
        foreign.append(match[0])
        return "\n\n"

    brackets = (_PASTED, _TAGGED, _UNSHOWN, _FENCED, _FENCED_WITHIN_LINES)
    for pattern in (_FENCED,) if is_typed else brackets:
        own_text = pattern.sub(take, own_text)
    for pattern in () if is_typed else (_MAIL, _BELOW_COLON, _AFTER_COLON):
        if match := pattern.search(own_text):
            cut = match.start() if pattern is _MAIL else match.end()
            foreign.append(own_text[cut:])
            own_text = own_text[:cut]
    for pattern in (_QUOTED,) if is_typed else (_STAMPED, _NOTATION, _QUOTED):
        own_text = pattern.sub(take, own_text)
    return own_text.strip(), "\n\n".join(part for part in foreign if part.strip()).strip()


def remove_tagged(text: str) -> str:
    """Return a text without the parts that are between tags of any kind."""
    return _TAGGED.sub("\n\n", text)


def find_heading(text: str, start: int) -> str:
    """Return the line that ends in a colon above the list whose item holds `start`, or an empty string."""
    begin = text.rfind("\n", 0, start) + 1
    line = text[begin:].partition("\n")[0]
    above = [line for line in text[:begin].splitlines() if line.strip()]
    while above and re.fullmatch(_ITEM, line):
        line = above.pop().rstrip()
        if line.endswith((":", "：")):
            return line.strip()
    return ""


def is_quotation(text: str, start: int, end: int, statement: str) -> bool:
    """Return whether the stretch is inside quotation marks, or at least half of the statement is
    quotations."""
    if any(match.start() <= start and end <= match.end() for match in _find_quotations(text)):
        return True
    quoted_chars = sum(len(match[0]) for match in _find_quotations(statement))
    return 2 * quoted_chars >= len(statement)


def drop_quotations(text: str) -> str:
    """Return a text without its quotations."""
    for match in reversed(list(_find_quotations(text))):
        text = f"{text[: match.start()]} … {text[match.end() :]}"
    return text


def _find_quotations(text: str) -> Iterator[re.Match[str]]:
    for match in _QUOTATION.finditer(text):
        inside = next(filter(None, match.groups()), "")
        if len(inside.split()) >= _MIN_QUOTED_WORDS or (
            not inside.isascii() and len(inside) >= _MIN_QUOTED_CHARS
        ):
            yield match
