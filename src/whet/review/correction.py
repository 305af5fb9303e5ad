"""Decide whether the person corrected a turn, from the position of their message and the calls that followed.

Only in a session's first message is a word looked up, so every language is treated alike. A later message
that states something is a correction if its turn repeated the former turn's work in another way, or used a
program or an argument that the message names in place of another. What the person had asked for by name was
no mistake: then it is the next task. If its turn only looked and answered, it may correct what was done
before it; if nothing was done, only if it names a new value on the same subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Literal

from whet.contract.tools import tags_of
from whet.memory import typed, units
from whet.memory.folding import PACKED
from whet.memory.replies import is_rejection
from whet.store.reviews import TurnCall

Correction = Literal["", "said", "redone"]
_MIN_WORDS = 4
_MIN_PACKED_CHARS = 6
_PROGRAM = re.compile(r'"command":\s*"\s*([^\s"\\]+)([^"\\]*)')
_PART = re.compile(r"[\w./-]+")
_WORD = re.compile(r"\w{3,}")
_SUBJECT = re.compile(r"\w{4,}")
_NUMBERED = re.compile(r"([^\W\d_]+|#)\W*(\d+)(?!\w)")
_ALIKE = 0.6


def find_correction(
    text: str, calls: Sequence[TurnCall], before: Sequence[TurnCall], asked: str = ""
) -> Correction:
    """Return whether a message corrects the turn before it: work was redone, or something was only said.

    `calls` are those of the turn that the message began, `before` those of the previous turn, for which the
    person had `asked`.
    """
    typed_text = typed.split(text[:4_000])[0]
    stated = " ".join(item for item in units.split_sentences(typed_text) if not units.is_question(item))
    is_short = _is_short(stated)
    is_next = partial(_is_next_number, stated=stated, asked=asked)
    named = {part.strip("./-") for part in _PART.findall(stated.lower())}
    pairs = [(call, item) for call in calls for item in before]
    if not is_short and any(
        _is_redone(call, item, asked, is_next) or _is_exchanged(call, item, named) for call, item in pairs
    ):
        return "redone"
    chosen = [item for item in before if not _is_asked(_find_program(item), asked)]
    if _is_replaced(calls, chosen, stated, is_short=is_short):
        return "redone"
    if is_short or any(map(_is_work, calls)):
        return ""
    return "said" if before or _names_value(stated, asked) else ""


def rejects_earlier(text: str) -> bool:
    """Return whether a session's first message begins with a "no" and then states what holds."""
    own_text = typed.split(text[:4_000])[0]
    return not _is_short(own_text) and not units.is_question(own_text) and is_rejection(own_text)


def _is_short(text: str) -> bool:
    return len(text.split()) < _MIN_WORDS and len(PACKED.findall(text)) < _MIN_PACKED_CHARS


def _names_value(stated: str, asked: str) -> bool:
    """Return whether a statement on the subject of the message before it names a file, an option, a host or
    the like that the message did not."""
    new = units.find_values(stated) - units.find_values(asked)
    words, asked_words = (set(_SUBJECT.findall(text.lower())) for text in (stated, asked))
    is_related = any(a.startswith(b) or b.startswith(a) for a in words for b in asked_words)
    return is_related and any(map(str.isalpha, "".join(new)))


def _is_work(call: TurnCall) -> bool:
    return "looks" not in tags_of(call.name)


def _find_program(call: TurnCall) -> str:
    match = _PROGRAM.search(call.arguments)
    return match[1] if match else ""


def _is_asked(part: str, asked: str) -> bool:
    """Return whether the person's words name a part of a call."""
    words = _WORD.findall(part.lower())
    return bool(words) and all(word in asked.lower() for word in words)


def _is_next_number(old: Collection[str], new: Collection[str], *, stated: str, asked: str) -> bool:
    """Return whether both messages name their number after the same word: "chapter 3", then "chapter 4"."""
    before, after = (
        {word.lower() for word, number in _NUMBERED.findall(text) if number in parts}
        for text, parts in ((asked, old), (stated, new))
    )
    return not before.isdisjoint(after)


def _is_redone(
    call: TurnCall,
    earlier: TurnCall,
    asked: str,
    is_next: Callable[[Collection[str], Collection[str]], bool],
) -> bool:
    """Return whether a call repeats an earlier one with a change, but not of what the person asked for."""
    if call.name != earlier.name or call.arguments == earlier.arguments or not _is_work(call):
        return False
    new, old = set(_PART.findall(call.arguments)), set(_PART.findall(earlier.arguments))
    left, added = old - new, new - old
    if left and all(_is_asked(part, asked) and not any(part in more for more in added) for part in left):
        return False
    return not is_next(left, added) and len(new & old) >= _ALIKE * max(len(new), len(old))


def _is_exchanged(call: TurnCall, earlier: TurnCall, named: Collection[str]) -> bool:
    """Return whether a message names a part of an earlier call and the part that took its place in the same
    program's call: "A6, not A5"."""
    program = _find_program(call)
    if call.name != earlier.name or not program or program != _find_program(earlier):
        return False
    new, old = (set(_PART.findall(item.arguments.lower())) for item in (call, earlier))
    left, added = ({part for part in parts if len(part) > 1} for parts in (old - new, new - old))
    return not left.isdisjoint(named) and not added.isdisjoint(named)


def _is_replaced(
    calls: Sequence[TurnCall], before: Sequence[TurnCall], stated: str, *, is_short: bool
) -> bool:
    """Return whether a program that the message names ran now and not before. After a short message, which
    may as well name the next step, half of its arguments must have been in a command before."""
    earlier = [match for item in before if (match := _PROGRAM.search(item.arguments))]
    used, commands = {match[1] for match in earlier}, " ".join(match[0] for match in earlier)
    for call in calls if used else ():
        match = _PROGRAM.search(call.arguments)
        if match is None or match[1] in used or match[1] not in stated:
            continue
        parts = _PART.findall(match[2])
        if not is_short or 2 * sum(part in commands for part in parts) >= len(parts):
            return True
    return False
