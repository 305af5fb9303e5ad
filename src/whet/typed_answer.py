"""Parse the answer to a permission question: which text is an option, and when a yes counts.

A text is an option if it is the option's key alone, or a line with exactly one of its names. Every other text
is a no, and the model reads the text as the reason. A single key never grants anything that lasts: `session`
needs Enter, and `always` has no key and must be typed out. A yes counts only if the person was shown all of
the question (`may_count`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

MAX_WORDS_CHARS = 4_000
"""The longest reason that is passed on to the model."""
_STOPS = frozenset(("stop", "/stop", "abort"))
_REASON = re.compile(
    r"(?:nope|no?)\s*[,.:;-]+\s*(?:because\s+)?(.+)|(?:(?:nope|no)\s+)?because\s+(.+)",
    re.IGNORECASE | re.DOTALL,
)


class AnswerOption(msgspec.Struct, frozen=True):
    """One answer that is offered: its name, its key (empty if it must be typed out), other names, whether it
    grants more than the one call, and its number in a list of answers."""

    name: str
    key: str = ""
    aliases: tuple[str, ...] = ()
    lasts: bool = False
    number: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The single keys that choose this option."""
        return tuple(key for key in (self.key, self.number) if key)

    def is_named(self, line: str) -> bool:
        """Return whether a whole line, in lower case, is this option."""
        return line == self.name or line in self.aliases or line in self.keys


ONCE = AnswerOption("once", "o", ("yes",))
SESSION = AnswerOption("session", "s", lasts=True)
ALWAYS = AnswerOption("always", lasts=True)
NO = AnswerOption("no", "n", ("",))
BECAUSE = AnswerOption("because", "b")
EDIT = AnswerOption("edit", "e")
VIEW = AnswerOption("view", "v", ("view all",))
_ALLOWING = frozenset((ONCE.name, SESSION.name, ALWAYS.name))


class TypedAnswer(msgspec.Struct, frozen=True):
    """The option that a text names, or "no" with the text as the reason in `words`. `stops` is set if the
    person asks to stop the turn."""

    option: str
    words: str = ""
    stops: bool = False


def read_line(text: str, options: Sequence[AnswerOption]) -> TypedAnswer:
    """Return the option that a whole line names exactly, or a no with the line as its words."""
    line = text.strip(" \t\r\n")
    lower = line.lower() if line.isascii() else line
    for option in options:
        if option.is_named(lower):
            return TypedAnswer(option.name)
    stops = lower.rstrip(".! ") in _STOPS
    match = _REASON.fullmatch(line)
    words = (match[1] or match[2]) if match else line
    return TypedAnswer("no", words.strip()[:MAX_WORDS_CHARS], stops)


def may_count(option: str, *, is_shown_whole: bool) -> bool:
    """Return whether an answer may be accepted. A no always is. A yes is if the person was shown everything
    that would run or be written; an interface that showed a part has to show the rest and ask again."""
    return is_shown_whole or option.partition(" ")[0] not in _ALLOWING


def grants_alone(key: str, options: Sequence[AnswerOption]) -> bool:
    """Return whether one key, with silence after it, allows the call."""
    return answers_alone(key, options) and read_line(key, options).option == ONCE.name


def answers_alone(key: str, options: Sequence[AnswerOption]) -> bool:
    """Return whether one key, with silence after it, is an answer. Options that last need Enter as well."""
    return bool(key) and any(key.lower() in option.keys and not option.lasts for option in options)
