"""Have the terminal send keys without ambiguity, if it says that it can: Shift-Enter, and Esc apart from Alt.

The terminal is asked when the input takes it over. One that answers gets kitty's keyboard protocol or xterm's
modifyOtherKeys, which are switched off whenever another program has the terminal: at the end, while the chat
is suspended, in a pager or an editor. A terminal that does not answer is left as it is.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress

from prompt_toolkit.input.vt100 import Vt100Input

# Its flags in kitty's protocol, and its name and version: both unknown to plain terminals, which ignore them.
_QUESTION = "\x1b[?u\x1b[>q"
_FLAGS = re.compile(r"\x1b\[\?\d+u")
_VERSION = re.compile(r"\x1bP>\|([^\x1b\x07]*)")
_HAS_MODIFIED_KEYS = re.compile(r"\x1bP>\|(?:XTerm|tmux)")
_SWITCHES = {"kitty": ("\x1b[>1u", "\x1b[<u"), "xterm": ("\x1b[>4;1m", "\x1b[>4m")}


class KeyProtocol:
    """The protocol of one terminal. `note_reply` takes its replies; `version` is its name and version, or
    empty if it has not said them."""

    def __init__(self) -> None:
        self.version: str = ""
        self._name = ""
        self._has_terminal = False
        self._is_on = False
        self._was_asked = False
        atexit.register(self.release)

    def take(self) -> None:
        """Note that the terminal belongs to the chat; the first time, ask it."""
        self._has_terminal = True
        if not self._was_asked:
            self._was_asked = True
            _write(_QUESTION)
        self._switch_on()

    def release(self) -> None:
        """Switch the protocol off: another program gets the terminal."""
        self._has_terminal = False
        if self._is_on:
            self._is_on = False
            _write(_SWITCHES[self._name][1])

    def note_reply(self, reply: str) -> None:
        """Note a reply of the terminal. Kitty's protocol is preferred, whichever reply comes first."""
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
