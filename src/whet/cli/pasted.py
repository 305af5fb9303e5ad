"""What is pasted or dropped: a mark stands for a long text until the line is sent, images are mentioned.

It needs nothing of the terminal, so that programs without one can import it.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

from whet.cli.attach import IMAGE_NAME
from whet.contract.texts import tagged

PASTE_LINES = 8
PASTE_CHARS = 1_000
_PASTED_WORDS = 4
_PASTED = re.compile(r"<pasted>(.*?)</pasted>", re.S)
_DROPPED_CHARS = 4_000


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


def dropped_images(text: str) -> str:
    """Give what a terminal types for dropped or pasted image files (their paths, quoted or escaped, or file
    addresses) as mentions that send them along; any other text as it is."""
    if len(text) > _DROPPED_CHARS or not re.search(IMAGE_NAME, text, re.IGNORECASE):
        return text
    whole = text.strip()
    try:  # a path that was copied from a file manager has its blanks as they are
        words = [whole] if os.path.isfile(os.path.expanduser(whole)) else shlex.split(text)
    except ValueError:
        return text
    paths = [Path(unquote(word[7:]) if word.startswith("file://") else word).expanduser() for word in words]
    are_images = [p.is_absolute() and re.search(IMAGE_NAME + "$", p.name, re.IGNORECASE) for p in paths]
    if not paths or not all(are_images) or not all(map(os.path.isfile, paths)):
        return text
    return " ".join(f'@"{path}"' if " " in str(path) else f"@{path}" for path in paths) + " "
