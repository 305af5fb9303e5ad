"""Find code in another language on a command line: `python -c`, `node -e` and similar."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from whet.shell.programs import program
from whet.shell.words import Word


def find_interpreter_code(name: str, words: Sequence[Word]) -> list[Word] | None:
    """Return the code words of `python -c` and similar, [] if it reads its input, None if it runs a file."""
    stem = name.rstrip("0123456789.")
    options = program(stem).code
    if options is None:
        return None
    codes: list[Word] = []
    for at, word in enumerate(words):
        text = word.text
        hangs = re.match(options.hanging, text) if options.hanging else None
        if hangs is not None and hangs.end() < len(text):
            codes.append(msgspec.structs.replace(word, text=text[hangs.end() :]))
        elif at and words[at - 1].text in options.values:
            continue
        elif re.fullmatch(options.flags, text):
            codes.extend(words[at + 1 : at + 2])
        elif text.startswith(("--eval=", "--print=")):
            codes.append(word)
        elif text == "-":
            return codes
        elif text in ("-m", "--version", "-V", "-v", "--help", "-h") or (
            not text.startswith("-") and not codes
        ):
            return codes or None
    return codes
