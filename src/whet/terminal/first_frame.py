"""Draw the chat's input line before the modules that read keys are imported.

Importing them takes most of the start-up time. Keys typed meanwhile stay in the terminal's buffer.
"""

from __future__ import annotations

import os
import sys
import termios
from typing import Any

from whet.terminal.signs import Marks
from whet.terminal.themes import find_theme

_SGR = {
    "bold": "1",
    "reverse": "7",
    "ansiblue": "34",
    "ansimagenta": "35",
    "ansicyan": "36",
    "ansibrightblack": "90",
}
_MIN_ROWS = 5
_IFLAG, _LFLAG = 0, 3  # positions in the list of termios.tcgetattr


class FirstFrame:
    """Draws the empty input line on entry, and removes it on exit if it is still there.

    Nothing is drawn on dumb terminals and on those with few rows.
    """

    def __init__(self, theme: str) -> None:
        self._theme = find_theme(theme, os.environ)
        self._attributes: list[Any] | None = None

    def __enter__(self) -> FirstFrame:
        if os.environ.get("TERM", "dumb") not in ("dumb", "unknown") and sys.stdout.isatty():
            try:
                self._draw()
            except BaseException:  # a signal ended the program meanwhile
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hand_over(self) -> bool:
        """Restore the terminal's settings and move the cursor to the start of the frame, so that the next
        drawing overwrites it. Returns whether there was a frame."""
        if self._attributes is None:
            return False
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._attributes)
        self._attributes = None
        sys.stdout.write("\r\x1b[1A")
        sys.stdout.flush()
        return True

    def close(self) -> None:
        """Restore the terminal and erase the frame, if it is still there."""
        if self.hand_over():
            sys.stdout.write("\x1b[J")
            sys.stdout.flush()

    def _draw(self) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        if size.lines < _MIN_ROWS:
            return
        self._hold_keys()
        marks = Marks.for_encoding(sys.stdout.encoding)
        rule = self._paint(marks.fit("─" * (size.columns - 1)), "dim")
        prompt = self._paint(marks.prompt, "sign")
        sys.stdout.write(f"{rule}\n{prompt}\n{rule}\x1b[1A\r\x1b[{len(marks.prompt)}C")
        sys.stdout.flush()

    def _hold_keys(self) -> None:
        """Stop the terminal from showing typed keys and from waiting for a whole line. Ctrl-C still ends the
        program."""
        attributes = termios.tcgetattr(sys.stdin.fileno())
        changed = [*attributes]
        changed[_IFLAG] &= ~termios.ICRNL
        changed[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
        self._attributes = attributes
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, changed)

    def _paint(self, text: str, style: str) -> str:
        codes = [_SGR[word] for word in self._theme.prompt.get(style, "").split()]
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes else text
