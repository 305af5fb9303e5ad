"""Split a command's words into options and operands, by the convention of most programs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from whet.shell.programs import ProgramOptions
from whet.shell.words import Word


def before_dashes(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words that can be options: those before `--`."""
    for at, word in enumerate(words):
        if word.text == "--":
            return words[:at]
    return words


def has_option(words: Sequence[Word], short: str, *long: str) -> bool:
    """Return whether an option may be present: a letter of `short`, also in a cluster, or a long option, also
    abbreviated.

    Words behind `--` count, too: it may be an option's value, and to some programs it means nothing.
    """
    for word in words:
        text = word.text
        if text.startswith("--"):
            name = text[2:].split("=", 1)[0]
            if name and any(option.startswith(name) for option in long):
                return True
        elif len(text) > 1 and text[0] == "-" and any(c in short for c in text[1:]):
            return True
    return False


def has_any(words: Sequence[Word], options: ProgramOptions) -> bool:
    """Return whether one of `options` may be present."""
    return has_option(words, options.short, *options.long)


def operands(words: Sequence[Word], valued: str = "", long: Collection[str] = ()) -> list[Word]:
    """Return the words that are neither options nor values of options: the short ones in `valued`, and those
    in `long`."""
    arguments: list[Word] = []
    at, is_open = 0, True
    while at < len(words):
        text = words[at].text
        if is_open and text == "--":
            is_open = False
        elif is_open and len(text) > 1 and text[0] == "-":
            if (len(text) == 2 and text[1] in valued) or text in long:
                at += 1
        else:
            arguments.append(words[at])
        at += 1
    return arguments
