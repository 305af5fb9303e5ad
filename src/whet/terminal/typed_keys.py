"""Collect the keys at a permission question into an answer: a single key with silence after it, or a line.

A key that answers alone counts only if no further key comes for `SILENCE_S`; otherwise both begin a line,
which Enter ends. Keys of a word that the person was typing when the question appeared don't count.
`whet.typed_answer` parses the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from whet.typed_answer import EDIT, AnswerOption, answers_alone, read_line

SILENCE_S = 0.7
"""The silence after a key that answers alone. Within a typed word, keys follow each other faster."""
WORD_S = 2.0
"""The time after a key in which a further key may belong to the same word."""
PAUSE_S = 1.0
"""The silence that is needed before keys answer a question that appeared during typing."""
REACTION_S = 0.5
"""The silence that is needed after a sent line. Nobody reads a question faster."""
_DELETE_CHAR, _DELETE_WORD, _DELETE_LINE = ("\x7f", "\x08"), "\x17", "\x15"


class TypingGuard:
    """Detects whether a key belongs to typing that began before the question was shown.

    If a question is shown within `WORD_S` after a key, keys don't answer it until none has come for
    `PAUSE_S`. If the last key was the Enter of a sent line, `REACTION_S` is enough.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._key_s = float("-inf")
        self._shown_s = float("-inf")
        self._was_sent = False
        self._in_word = self._behind_line = False

    def note_key(self) -> None:
        """Note that a key was pressed."""
        self._in_word, self._behind_line = self.is_in_word, self.is_typing
        self._key_s = self._now_s()
        self._was_sent = False

    def end_line(self) -> None:
        """Note that Enter sent the line, so that the next key begins another one."""
        self._was_sent = True

    def forget_keys(self) -> None:
        """Forget the last key, because another program had the keyboard meanwhile."""
        self._key_s = float("-inf")

    def show(self, *, has_input: bool = False) -> None:
        """Note that a question is shown now. `has_input` is set if a key waits to be read."""
        self._shown_s = self._now_s()
        is_recent = self._shown_s - self._key_s < WORD_S
        self._in_word = has_input or (is_recent and not self._was_sent)
        self._behind_line = is_recent and self._was_sent

    @property
    def is_typing(self) -> bool:
        """Whether a key that comes now may belong to typing from before the question."""
        return self.is_in_word or (self._behind_line and self._silence_s < REACTION_S)

    @property
    def is_in_word(self) -> bool:
        """Whether a key that comes now may belong to an unsent line from before the question."""
        return self._in_word and self._silence_s < PAUSE_S

    @property
    def _silence_s(self) -> float:
        return self._now_s() - max(self._key_s, self._shown_s)


class TypedKeys:
    """The keys typed at one question so far.

    `answer` is called with the text when it is complete. `is_followed` returns whether a further key waits to
    be read.
    """

    def __init__(
        self,
        options: Sequence[AnswerOption],
        answer: Callable[[str], None],
        silence_s: float = SILENCE_S,
    ) -> None:
        self.text: str = ""
        self.is_followed: Callable[[], bool] = lambda: False
        self._options = options
        self._answer = answer
        self._silence_s = silence_s
        self._pending_answer: asyncio.TimerHandle | None = None

    def press(self, key: str) -> None:
        """Handle one key. Enter answers with the line, and Tab as the first key with "edit". Other keys that
        type no character are ignored."""
        self.close()
        if key == "\t" and not self.text and EDIT in self._options:
            self._answer(EDIT.name)
            return
        if key in ("\r", "\n"):
            self._answer(self.text)
            return
        if key in _DELETE_CHAR:
            self.text = self.text[:-1]
        elif key == _DELETE_WORD:
            self.text = self.text.rstrip().rpartition(" ")[0]
        elif key == _DELETE_LINE:
            self.text = ""
        elif len(key) == 1 and key.isprintable():
            self.text += key
        self._answer_after_silence()

    def paste(self, text: str) -> None:
        """Append pasted text to a line that was begun. A paste alone is not an answer."""
        self.close()
        if self.text:
            self.text += " ".join(text.split())

    def hint(self) -> str:
        """Describe the effect of Enter with the present text. Returns an empty string if there is no text."""
        if not self.text:
            return ""
        typed = read_line(self.text, self._options)
        if typed.stops:
            return f"Enter: no, and stop the turn: {self.text}"
        return f"Enter: no, because: {self.text}" if typed.words else f"Enter: {typed.option}: {self.text}"

    def close(self) -> None:
        """Cancel the answer of a single key that waits for silence."""
        if self._pending_answer is not None:
            self._pending_answer.cancel()
            self._pending_answer = None

    def _answer_after_silence(self) -> None:
        if answers_alone(self.text, self._options):
            self._pending_answer = asyncio.get_running_loop().call_later(
                self._silence_s, self._answer_if_alone
            )

    def _answer_if_alone(self) -> None:
        if self.is_followed():
            self._answer_after_silence()
        else:
            self._answer(self.text)
