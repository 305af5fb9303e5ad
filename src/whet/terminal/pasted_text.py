"""Pasted and dropped input: long texts are shown as placeholders, and image paths become mentions."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

from whet.contract.brought_text import unwrap_pastes, wrap_in_tag
from whet.terminal.attach import IMAGE_NAME

PASTE_LINES = 8
PASTE_CHARS = 1_000
_MIN_MARKED_WORDS = 4
_FIRST_MARK, _MARK_COUNT = 0x100000, 0xFFFE
_KEPT_CHARS = 100_000  # of one paste in the history file
_DROPPED_CHARS = 4_000


_MARKS = re.compile("[\U00100000-\U0010fffd]")
"""Private code points that no keyboard types. One of them is a long paste in the input line."""


class Pastes:
    """The long pasted texts of a chat.

    In the input line, a long paste is one character, its mark: keys move over it and delete it as a whole,
    and nothing that a person types is taken for it. `show` replaces the marks with names for the screen,
    `expand` with the texts for the model. A text stays available, as the history may bring its mark back.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._unsent: dict[str, str] = {}
        self._inserted: list[str] = []

    def take(self, text: str) -> str:
        """Return the text to insert: a short text itself, otherwise a mark that `expand` replaces."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = _count_lines(text)
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARS and not _MARKS.search(text):
            self._inserted.append(text)
            return text
        name, number = f"[pasted {_size(text)}]", 2
        while name in self._unsent:
            if self._texts[self._unsent[name]] == text:
                return self._unsent[name]
            name, number = f"[pasted {_size(text)} #{number}]", number + 1
        mark = chr(_FIRST_MARK + len(self._texts) % _MARK_COUNT)
        self._texts[mark], self._names[mark], self._unsent[name] = text, name, mark
        return mark

    def take_back(self, text: str) -> str:
        """Return a message that goes back into the input line; `expand` marks its pasted texts again."""
        return unwrap_pastes(_MARKS.sub("�", text), self.take)

    def to_entry(self, line: str) -> str:
        """Return a line for the history file, as `to_tags` does. Of a very long text, only the name is
        kept."""

        def shorten(mark: str) -> str:
            is_long = len(self._texts.get(mark, "")) > _KEPT_CHARS
            return f"{self._names[mark][:-1]}, too long for the history]" if is_long else mark

        return self.to_tags(_MARKS.sub(lambda match: shorten(match[0]), line))

    def to_tags(self, line: str) -> str:
        """Return a line with the text of each paste in a tag, in place of its mark."""

        def wrap(mark: str) -> str:
            return wrap_in_tag("pasted", self._texts[mark]) if mark in self._texts else mark

        return _MARKS.sub(lambda match: wrap(match[0]), line)

    def from_tags(self, text: str) -> str:
        """Return a text of `to_entry` or `to_tags` as a line with marks for its pasted texts."""
        unsent, self._unsent = self._unsent, {}
        line = self.take_back(text)
        self._unsent = unsent
        return line

    def begin(self, line: str) -> bool:
        """Return whether a line that was not sent yet begins with a pasted text."""
        starts = (text.strip() for text in self._inserted)
        return line[:1] in self._texts or any(text and line.startswith(text) for text in starts)

    def show(self, line: str) -> str:
        """Return a line as a person sees it: the name of each paste in place of its mark."""
        return _MARKS.sub(lambda match: self._names.get(match[0], match[0]), line)

    def fill(self, line: str) -> str:
        """Return a line with the texts in place of the marks."""
        return _MARKS.sub(lambda match: self._texts.get(match[0], match[0]), line)

    def expand(self, line: str) -> tuple[str, str]:
        """Replace the marks of a line that is sent with their texts.

        Returns the line twice: as it is, and with the pasted texts in tags. Pasted text is not the
        person's own words, and nothing is learned from it as if it were. Names begin anew with the next line.
        """
        texts = self._texts | {text: text for text in self._inserted if _is_marked(text)}
        self._inserted, self._unsent = [], {}
        if not texts:
            return line, line
        pattern = re.compile("|".join(re.escape(name) for name in sorted(texts, key=len, reverse=True)))
        plain = pattern.sub(lambda match: texts[match[0]], line)
        return plain, pattern.sub(lambda match: wrap_in_tag("pasted", texts[match[0]]), line)


def _is_marked(text: str) -> bool:
    """Return whether a short pasted text is marked in the message: the same few words may be typed too."""
    return len(text.split()) >= _MIN_MARKED_WORDS or not text.isascii()


def _count_lines(text: str) -> int:
    return text.removesuffix("\n").count("\n") + 1


def _size(text: str) -> str:
    """Return how large a pasted text is, for its name."""
    lines = _count_lines(text)
    return f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"


def fold_paste(text: str) -> str:
    """Return a pasted text as the chat shows it: a placeholder if it is long."""
    pastes = Pastes()
    return pastes.show(pastes.take(text))


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
