"""Pasted and dropped input: long texts are shown as placeholders, and image paths become mentions."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

from whet.contract.texts import unwrap_pastes, wrap_in_tag
from whet.terminal.attach import IMAGE_NAME

PASTE_LINES = 8
PASTE_CHARS = 1_000
_MIN_MARKED_WORDS = 4
_DROPPED_CHARS = 4_000


class Pastes:
    """The pasted texts of the input line, which shows a placeholder for each long one."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._inserted: list[str] = []

    def take(self, text: str) -> str:
        """Return the text to insert: a short text itself, a placeholder for a long one."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.removesuffix("\n").count("\n") + 1
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARS:
            if len(text.split()) >= _MIN_MARKED_WORDS or not text.isascii():
                self._inserted.append(text)
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        name, number = f"[pasted {size}]", 2
        while self._texts.get(name, text) != text:
            name, number = f"[pasted {size} #{number}]", number + 1
        self._texts[name] = text
        return name

    def take_back(self, text: str) -> str:
        """Return the text of a message to put back into the input line, with placeholders for long pastes."""
        return unwrap_pastes(text, self.take)

    def expand(self, line: str) -> tuple[str, str]:
        """Replace the placeholders by their texts, and forget the texts.

        Returns the line twice: without and with tags around the pasted texts. Nothing is learned from pasted
        text as if it were the person's own words.
        """
        texts, self._texts = self._texts, {}
        texts |= {text: text for text in self._inserted}
        self._inserted = []
        if not texts:
            return line, line
        pattern = re.compile("|".join(re.escape(name) for name in sorted(texts, key=len, reverse=True)))
        plain = pattern.sub(lambda match: texts[match[0]], line)
        return plain, pattern.sub(lambda match: wrap_in_tag("pasted", texts[match[0]]), line)


def fold_paste(text: str) -> str:
    """Return a pasted text, or a placeholder if it is long."""
    return Pastes().take(text)


def fold_pastes(text: str) -> str:
    """Return a message with placeholders in place of long pastes."""
    return unwrap_pastes(text, fold_paste)


def remove_pastes(text: str) -> str:
    """Return a message without its pasted texts."""
    return unwrap_pastes(text, lambda paste: "")


def dropped_images(text: str) -> str:
    """Return mentions, which send images along, for a text that consists of dropped or pasted image paths.

    The paths may be quoted, escaped or file: URLs. Any other text is returned unchanged.
    """
    if len(text) > _DROPPED_CHARS or not re.search(IMAGE_NAME, text, re.IGNORECASE):
        return text
    stripped = text.strip()
    try:  # a path copied from a file manager has unescaped spaces
        words = [stripped] if os.path.isfile(os.path.expanduser(stripped)) else shlex.split(text)
    except ValueError:
        return text
    paths = [Path(unquote(word[7:]) if word.startswith("file://") else word).expanduser() for word in words]
    are_images = [p.is_absolute() and re.search(IMAGE_NAME + "$", p.name, re.IGNORECASE) for p in paths]
    if not paths or not all(are_images) or not all(map(os.path.isfile, paths)):
        return text
    return " ".join(f'@"{path}"' if " " in str(path) else f"@{path}" for path in paths) + " "
