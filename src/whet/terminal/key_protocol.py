"""Switch the terminal to a key protocol that distinguishes Shift-Enter from Enter, and Esc from Alt.

The terminal is queried when the input starts. If it answers, kitty's keyboard protocol or xterm's
modifyOtherKeys is switched on. It is switched off whenever another program has the terminal: at the end,
while the chat is suspended, in a pager or an editor.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress

from prompt_toolkit.input.vt100 import Vt100Input

# Queries for the flags of kitty's protocol, and for name and version. Plain terminals ignore both.
_QUESTION = "\x1b[?u\x1b[>q"
_FLAGS = re.compile(r"\x1b\[\?\d+u")
_VERSION = re.compile(r"\x1bP>\|([^\x1b\x07]*)")
_HAS_MODIFIED_KEYS = re.compile(r"\x1bP>\|(?:XTerm|tmux)")
_SWITCHES = {"kitty": ("\x1b[>1u", "\x1b[<u"), "xterm": ("\x1b[>4;1m", "\x1b[>4m")}


class KeyProtocol:
    """The key protocol of one terminal. `version` is the terminal's name and version, or empty if it has not
    reported them."""

    def __init__(self) -> None:
        self.version: str = ""
        self._name = ""
        self._has_terminal = False
        self._is_on = False
        self._was_asked = False
        atexit.register(self.release)

    def take(self) -> None:
        """Switch the protocol on, if it is known, as the chat has the terminal now. The first call queries
        the terminal."""
        self._has_terminal = True
        if not self._was_asked:
            self._was_asked = True
            _write(_QUESTION)
        self._switch_on()

    def release(self) -> None:
        """Switch the protocol off, before another program gets the terminal."""
        self._has_terminal = False
        if self._is_on:
            self._is_on = False
            _write(_SWITCHES[self._name][1])

    def note_reply(self, reply: str) -> None:
        """Handle a reply of the terminal. Kitty's protocol is preferred, whichever reply comes first."""
        if match := _VERSION.match(reply):
            self.version = match[1]
        if _FLAGS.fullmatch(reply):
            name = "kitty"
        elif _HAS_MODIFIED_KEYS.match(reply) and not self._name:
            name = "xterm"
        else:
            return
        if name != self._name:
            had_terminal = self._has_terminal
            self.release()
            self._name, self._has_terminal = name, had_terminal
        self._switch_on()

    def _switch_on(self) -> None:
        if self._name and self._has_terminal and not self._is_on:
            self._is_on = True
            _write(_SWITCHES[self._name][0])


class ProtocolInput(Vt100Input):
    """The terminal's input, with the protocol on while the chat reads it."""

    def __init__(self, protocol: KeyProtocol) -> None:
        super().__init__(sys.stdin)
        self._protocol = protocol

    def raw_mode(self) -> AbstractContextManager[None]:
        """Read single keys."""
        return self._reading(super().raw_mode())

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Lend the terminal to another program."""
        return self._lending(super().cooked_mode())

    @contextmanager
    def _reading(self, mode: AbstractContextManager[None]) -> Generator[None]:
        with mode:
            self._protocol.take()
            try:
                yield
            finally:
                self._protocol.release()

    @contextmanager
    def _lending(self, mode: AbstractContextManager[None]) -> Generator[None]:
        self._protocol.release()
        try:
            with mode:
                yield
        finally:
            self._protocol.take()


def _write(text: str) -> None:
    with suppress(OSError, ValueError):  # the terminal may be closed
        sys.stdout.write(text)
        sys.stdout.flush()
