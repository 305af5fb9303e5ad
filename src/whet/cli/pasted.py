"""Pasted texts that are too long for the input line: a placeholder stands for each until the line is sent.

It needs nothing of the terminal, so that programs without one can import it.
"""

from __future__ import annotations

import re

from whet.contract.texts import tagged

PASTE_LINES = 8
PASTE_CHARS = 1_000
_PASTED_WORDS = 4
_PASTED = re.compile(r"<pasted>(.*?)</pasted>", re.S)


class Pastes:
    """Long pasted texts, held while a placeholder stands for them in the input line."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._short: list[str] = []

    def take(self, text: str) -> str:
        """Give what to insert: short text itself, else a placeholder that `expand` knows."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARS:
            if len(text.split()) >= _PASTED_WORDS or not text.isascii():
                self._short.append(text)
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        name, number = f"[pasted {size}]", 2
        while self._texts.get(name, text) != text:
            name, number = f"[pasted {size} #{number}]", number + 1
        self._texts[name] = text
        return name

    def expand(self, line: str) -> tuple[str, str]:
        """Put the held texts in place of their placeholders, and forget them: as they are, and in tags, since
        what was pasted is not the person's own word, and nothing is learned from it as if it were."""
        held, self._texts = self._texts, {}
        held |= {text: text for text in self._short}
        self._short = []
        if not held:
            return line, line
        pattern = re.compile("|".join(re.escape(name) for name in sorted(held, key=len, reverse=True)))
        plain = pattern.sub(lambda match: held[match[0]], line)
        return plain, pattern.sub(lambda match: tagged("pasted", held[match[0]]), line)


def folded(text: str) -> str:
    """Give a message with each paste as the chat shows it."""
    return _PASTED.sub(lambda paste: Pastes().take(paste[1]), text)
