"""Mark text that a person brought into a message, so that it is never taken for the person's own words.

Where such text arrives (a paste, a pipe, an attachment, a quotation), `wrap_in_tag` puts it between two tags
that end in the same random mark: `<pasted-5d0c…>`. A text was complete before its mark was drawn, so nothing
in it, in a file's name or in another part of the message can open or close the tag. Tags without a mark are
ordinary text.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise

from whet.late import late_pattern

_MARK = r"-[0-9a-f]{16}"
_TAG = late_pattern(rf"<(/?)([a-z-]+{_MARK})>")
_TAG_MARK = late_pattern(rf"(</?[a-z-]+){_MARK}>")
# Messages of earlier versions have pastes in tags without marks.
_PASTED = late_pattern(rf"<pasted((?:{_MARK})?)>(.*?)</pasted\1>", re.S)


def wrap_in_tag(tag: str, text: str) -> str:
    """Wrap text that the person did not type in tags with a new random mark."""
    mark = os.urandom(8).hex()
    return f"<{tag}-{mark}>{text}</{tag}-{mark}>"


def split_wrapped(text: str) -> tuple[str, list[str]]:
    """Return a message without its wrapped texts, and these with their tags.

    A text whose end was cut off continues to the end of the message, and one whose beginning was cut off
    begins with the message. If a tag without an end stands before an end without its tag, one of the two is
    part of a text, and nothing of the message counts as typed.
    """
    tags = list(_TAG.finditer(text))
    ends: dict[str, list[int]] = {}
    for tag in tags:
        if tag[1]:
            ends.setdefault(tag[2], []).append(tag.end())
    wrapped: list[tuple[int, int]] = []
    typed_from, typed_to = 0, len(text)
    for tag in tags:
        if wrapped and tag.start() < wrapped[-1][1]:
            continue
        if tag[1]:
            typed_from = tag.end()
            continue
        own_ends = ends.get(tag[2], [])
        if (index := bisect_right(own_ends, tag.start())) < len(own_ends):
            wrapped.append((tag.start(), own_ends[index]))
        else:
            typed_to = min(typed_to, tag.start())
    if typed_from >= typed_to:
        return "", [text]
    inside = [(start, end) for start, end in wrapped if typed_from <= start and end <= typed_to]
    cuts = [(0, typed_from), *inside, (typed_to, len(text))]
    typed = (text[end:start] for (_, end), (start, _) in pairwise(cuts))
    return "\n\n".join(typed), [text[start:end] for start, end in cuts if start < end]


def drop_marks(text: str) -> str:
    """Return a message with tags without marks, to compare it with another one or to show it."""
    return _TAG_MARK.sub(r"\1>", text)


def unwrap_pastes(text: str, fold: Callable[[str], str] = str) -> str:
    """Return a message as a person sees it: each pasted text without its tags, changed by `fold`."""

    def unwrap(match: re.Match[str]) -> str:
        return fold(match[2] if match[1] else re.sub(r"<\\/(?=pasted\b)", "</", match[2]))

    return _PASTED.sub(unwrap, text)
