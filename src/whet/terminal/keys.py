"""Key bindings at the terminal: send text, answer a question, stop a turn.

The keys act on the open question, or put the person's inputs into a queue that the chat reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import (
    Condition,
    emacs_insert_mode,
    has_completions,
    is_searching,
    vi_insert_mode,
    vi_navigation_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import accept_search, stop_search

from whet.terminal.grapheme_keys import add_character_keys
from whet.terminal.input_filter import NEW_LINE
from whet.terminal.pasted_text import Pastes, dropped_images
from whet.terminal.questions import PickQuestion, TerminalQuestion
from whet.terminal.screen import LiveLines, PromptSignal, Typed
from whet.terminal.signs import Fragment
from whet.terminal.typed_keys import TypingGuard
from whet.typed_answer import grants_alone

_TWICE_S = 0.8
_SIGNALS = {"s-tab": PromptSignal.MODE, "c-o": PromptSignal.UNFOLD}


def _no_lines(width: int, height: int) -> list[list[Fragment]]:
    return []


def _suspend(event: KeyPressEvent) -> None:
    event.app.suspend_to_background()


def _accept_match(event: KeyPressEvent) -> None:
    """Take the search result into the input, with the cursor at its end."""
    accept_search()
    event.current_buffer.cursor_position = len(event.current_buffer.text)


def _close_menu(event: KeyPressEvent) -> None:
    """Close the completion menu. Text that was already completed stays."""
    event.current_buffer.complete_state = None


class InputKeys:
    """The keys of one terminal.

    `live` returns the live area's lines, which are empty if nothing runs. `inputs` is the queue of the
    person's inputs. `typed_ahead` holds keys that belong to the input line but were typed after a question
    had replaced it. `is_lent` is set while another program has the terminal.
    """

    def __init__(self) -> None:
        self.live: LiveLines = _no_lines
        self.pastes: Pastes = Pastes()
        self.inputs: asyncio.Queue[Typed | PromptSignal] = asyncio.Queue()
        self.question: TerminalQuestion | None = None
        self.typed_ahead: str = ""
        self.is_lent: bool = False
        self.typing: TypingGuard = TypingGuard()
        self._escaped_s = 0.0

    def bindings(self, prompt: Callable[[], Buffer]) -> KeyBindings:
        """Return the key bindings. `prompt` returns the input line's buffer."""
        keys = KeyBindings()
        has_question = Condition(lambda: self.question is not None)
        one_key = Condition(lambda: self.question is not None and self.question.typed is not None)
        empty = Condition(lambda: not prompt().text)

        @keys.add("enter", filter=~one_key & ~is_searching)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end:
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                self._send(event)

        keys.add("enter", filter=is_searching)(_accept_match)

        @keys.add(NEW_LINE, filter=~one_key)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste, filter=~one_key)
        def _(event: KeyPressEvent) -> None:
            text = event.data if self.question else dropped_images(event.data)
            event.current_buffer.insert_text(self.pastes.take(text))

        @keys.add("c-c", eager=True)
        @keys.add("<sigint>", eager=True)
        def _(event: KeyPressEvent) -> None:
            self._interrupt(event)

        add_character_keys(keys, ~one_key & ~is_searching & (emacs_insert_mode | vi_insert_mode))
        keys.add("c-z", eager=True)(_suspend)

        @keys.add("c-d", filter=empty & ~has_question)
        def _(event: KeyPressEvent) -> None:
            self.inputs.put_nowait(PromptSignal.END)

        @keys.add(Keys.Any, filter=one_key, eager=True)
        @keys.add("enter", filter=one_key, eager=True)
        def _(event: KeyPressEvent) -> None:
            self._press(event)

        keys.add(Keys.BracketedPaste, filter=one_key, eager=True)(self._paste_answer)

        @keys.add("escape", filter=has_question & ~one_key)
        @keys.add("escape", filter=one_key, eager=True)
        def _(event: KeyPressEvent) -> None:
            if self.question:
                self.question.give(None)

        # In vi's insert mode Esc ends that mode. If the input is empty, it also acts as in other modes.
        stops = ~vi_insert_mode | empty
        keys.add("escape", filter=~has_question & ~has_completions & ~is_searching & stops)(self._escape)
        keys.add("escape", filter=~has_question & has_completions)(_close_menu)
        self._add_signals(keys, has_question)
        return keys

    def _add_signals(self, keys: KeyBindings, has_question: Condition) -> None:
        picking = Condition(lambda: isinstance(self.question, PickQuestion))
        running = Condition(lambda: bool(self.live(1, 1)))

        def send_signal(signal: PromptSignal) -> Callable[[KeyPressEvent], None]:
            return lambda event: self.inputs.put_nowait(signal)

        for key, signal in _SIGNALS.items():
            keys.add(key, filter=~has_question & ~has_completions, eager=True)(send_signal(signal))
        keys.add("c-b", filter=running & ~has_question, eager=True)(send_signal(PromptSignal.BACKGROUND))
        # prompt_toolkit's own keys for the editor would also send the text.
        open_editor = send_signal(PromptSignal.EDITOR)
        keys.add("c-g", filter=~has_question & ~is_searching)(open_editor)
        keys.add("c-x", "c-e", filter=~has_question & emacs_insert_mode)(open_editor)
        keys.add("v", filter=~has_question & vi_navigation_mode)(open_editor)
        keys.add("c-v", filter=~has_question & (emacs_insert_mode | vi_insert_mode))(
            send_signal(PromptSignal.IMAGE)
        )

        @keys.add("up", filter=picking, eager=True)
        @keys.add("down", filter=picking, eager=True)
        def _(event: KeyPressEvent) -> None:
            if isinstance(self.question, PickQuestion):
                self.question.move(-1 if event.key_sequence[0].key == "up" else 1)

    def _escape(self, event: KeyPressEvent) -> None:
        """Queue Esc as an input. If the input has text and nothing runs, two of them clear it."""
        buffer, now_s = event.current_buffer, time.monotonic()
        if not buffer.text or self.live(1, 1):
            self.inputs.put_nowait(PromptSignal.ESCAPE)
            if vi_insert_mode() and not self.live(1, 1):
                event.app.vi_state.input_mode = InputMode.NAVIGATION
        elif now_s - self._escaped_s < _TWICE_S:
            buffer.reset()
        self._escaped_s = now_s

    def _send(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        line = buffer.text
        if self.question and self._is_early(self.question):
            return
        if isinstance(self.question, PickQuestion):
            self.typing.end_line()
            self.question.give("")
            return
        if not line.strip():
            return
        if not line.startswith(" "):
            buffer.append_to_history()
        buffer.reset()
        self.typing.end_line()
        is_pasted = self.pastes.begin(line.strip())
        text, marked = self.pastes.expand(line)
        if self.question:
            self.question.give(marked)
            return
        shown = self.pastes.show(line).strip()
        self.inputs.put_nowait(Typed(shown, text.strip(), marked.strip(), is_pasted))

    def note_typing(self, _: object) -> None:
        """Note that the person types, so that a word that is being typed does not answer a question."""
        self.typing.note_key()

    def _press(self, event: KeyPressEvent) -> None:
        question = self.question
        if question is None or question.typed is None:
            return
        if not self._is_early(question, event.data):
            question.typed.press(event.data)
            if event.data in ("\r", "\n"):
                self.typing.end_line()
        elif len(event.data) == 1 and event.data.isprintable():
            self.typed_ahead += event.data

    def _paste_answer(self, event: KeyPressEvent) -> None:
        if self.question and self.question.typed and not self._is_early(self.question):
            self.question.typed.paste(event.data)

    def _is_early(self, question: TerminalQuestion, key: str = "") -> bool:
        """Return whether a key must not answer a question: it was typed before the question was drawn, or
        belongs to typing that began before. If the question is only asked again, this holds for a key that
        would allow the call by itself."""
        is_typing = self.typing.is_typing if question.decides else self.typing.is_in_word
        is_early = not question.is_drawn or is_typing
        if question.is_repeated:
            typed = question.typed
            is_early = is_early and typed is not None and not typed.text
            is_early = is_early and grants_alone(key, question.options)
        self.typing.note_key()
        question.has_early_keys = is_early and question.typed is not None
        return is_early

    def _interrupt(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if self.is_lent:
            return  # Ctrl-C is meant for the other program
        if isinstance(self.question, PickQuestion):
            self.question.give(None)
            return
        if self.question:
            # While a turn runs, the question ends with it, and the call does not count as refused.
            if not self.live(1, 1):
                self.question.give(None)
        elif event.app.layout.is_searching:
            stop_search()
            return
        elif buffer.text and not self.live(1, 1):
            buffer.reset()
            return
        self.inputs.put_nowait(PromptSignal.INTERRUPT)
