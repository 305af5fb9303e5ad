"""Find code in another language on a command line: `python -c`, `node -e` and similar."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from whet.shell.programs import program
from whet.shell.words import Word


def interpreter_code(name: str, words: Sequence[Word]) -> list[Word] | None:
    """Return the code words of `python -c` and similar, [] if it reads its input, None if it runs a file."""
    stem = re.sub(r"[\d.]+$", "", name)
    given = program(stem).code
    if given is None:
        return None
    found: list[Word] = []
    for at, word in enumerate(words):
        text = word.text
        hangs = re.match(given.hanging, text) if given.hanging else None
        if hangs is not None and hangs.end() < len(text):
            found.append(msgspec.structs.replace(word, text=text[hangs.end() :]))
        elif at and words[at - 1].text in given.values:
            continue
        elif re.fullmatch(given.flags, text):
            found.extend(words[at + 1 : at + 2])
        elif text.startswith(("--eval=", "--print=")):
            found.append(word)
        elif text == "-":
            return found
        elif text in ("-m", "--version", "-V", "-v", "--help", "-h") or (
            not text.startswith("-") and not found
        ):
            return found or None
    return found
