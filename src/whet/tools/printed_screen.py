"""Render printed text as a terminal does: its lines after all overwriting and erasing.

Progress displays print their lines again and again, behind a carriage return or cursor movement. A model
needs only what a person would see at the end, on the screen and above it. Movement reaches the last 40 lines,
as on a screen of that height; lines do not wrap. Colours, titles and other control are dropped.
"""

from __future__ import annotations

import unicodedata

from whet.contract.texts import CONTROL_SEQUENCE, OTHER_ESCAPE
from whet.late import late_pattern

ROWS = 40
_MAX_COLUMNS = 240  # that the cursor can pass the end of a line by, so that no movement makes a long line
_TOKENS = late_pattern(rf"([^\x01-\x08\x0a-\x1f\x7f-\x9f]+)|([\n\r\b])|{CONTROL_SEQUENCE}|{OTHER_ESCAPE}")
_MOVES = late_pattern(r"[\r\b]|(?:\x1b\[|\x9b)(?:[0-9;]*[A-G]|[12]K)")
# Movement upwards, or a string that may hold line ends.
_REACHES_BACK = late_pattern(r"(?:\x1b\[|\x9b)[0-9;]*[AF]|\x1b[\]PX^_]")
_PARTIAL = late_pattern(
    r"(?:\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*)|[\udcc2-\udcf4][\udc80-\udcbf]{0,2})\Z"
)


def render(text: str) -> str:
    """Return the lines of `text` as they are at its end, without terminal control."""
    screen = _Screen()
    screen.feed(text)
    return screen.text()


def redraw(text: str) -> str:
    """Return shorter text that has the same effect on a terminal as `text`: its lines at its end, then the
    movement of the cursor to where `text` leaves it, then an escape or character that is not complete yet."""
    partial = _PARTIAL.search(text)
    end = partial.start() if partial else len(text)
    move = _MOVES.search(text)
    start = 0 if move is None or _REACHES_BACK.search(text) else text.rfind("\n", 0, move.start()) + 1
    screen = _Screen()
    screen.feed(text[start:end])
    return text[:start] + screen.text() + screen.cursor_movement() + text[end:]


def has_moves(text: str) -> bool:
    """Return whether the text moves the cursor or erases, other than by line feeds and tabs."""
    return _MOVES.search(text) is not None


class _Screen:
    """Lines of cells, and the cursor. A wide character and a tab have empty cells behind them."""

    def __init__(self) -> None:
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        for token in _TOKENS.finditer(text):
            plain, control, parameters, final = token.groups()
            if plain is not None:
                self._write(plain)
            elif control is not None:
                self._control(control)
            elif final is not None:
                self._sequence(parameters, final)

    def text(self) -> str:
        return "\n".join("".join(line) for line in self._lines)

    def cursor_movement(self) -> str:
        up = len(self._lines) - 1 - self._row
        if not up and self._column == len(self._lines[-1]):
            return ""
        return (f"\x1b[{up}A" if up else "") + f"\x1b[{self._column + 1}G"

    def _control(self, control: str) -> None:
        if control == "\b":
            self._column = max(0, self._column - 1)
            return
        self._column = 0
        if control == "\n":
            self._row += 1
            if self._row == len(self._lines):
                self._lines.append([])

    def _sequence(self, parameters: str, final: str) -> None:
        if final not in "ABCDEFGJK" or not (parameters == "" or parameters.isdecimal()):
            return
        number = int(parameters[:6] or 0)
        if final in "JK":
            self._erase(number, is_below=final == "J")
        elif final == "G":
            self._move_to(max(number, 1) - 1)
        elif final in "CD":
            self._move_to(self._column + max(number, 1) * (1 if final == "C" else -1))
        else:
            distance = max(number, 1) * (-1 if final in "AF" else 1)
            top = max(0, len(self._lines) - ROWS)
            self._row = min(max(self._row + distance, top), len(self._lines) - 1)
            self._column = 0 if final in "EF" else self._column

    def _move_to(self, column: int) -> None:
        self._column = min(max(column, 0), max(len(self._lines[self._row]), self._column, _MAX_COLUMNS))

    def _erase(self, mode: int, *, is_below: bool) -> None:
        line = self._lines[self._row]
        if mode == 0:
            self._split_at(line, self._column)
            del line[self._column :]
            if is_below:
                del self._lines[self._row + 1 :]
        elif mode == 1 and not is_below:
            end = min(self._column + 1, len(line))
            self._split_at(line, end)
            line[:end] = " " * end
        elif mode == 2 and not is_below:
            line.clear()

    def _write(self, plain: str) -> None:
        line = self._lines[self._row]
        if len(line) < self._column:
            line.extend(" " * (self._column - len(line)))
        cells = list(plain) if plain.isascii() and "\t" not in plain else self._cells_of(plain, line)
        end = self._column + len(cells)
        if self._column < len(line):
            self._split_at(line, self._column)
            self._split_at(line, end)
        line[self._column : end] = cells
        self._column = end

    def _cells_of(self, plain: str, line: list[str]) -> list[str]:
        cells: list[str] = []
        for character in plain:
            column = self._column + len(cells)
            if character == "\t":
                cells += ["\t", *[""] * (7 - column % 8)]
            elif character.isascii():
                cells.append(character)
            elif column and unicodedata.combining(character):
                target, index = (cells, -1) if cells else (line, column - 1)
                target[index] += character
            else:
                is_wide = unicodedata.east_asian_width(character) in "WF"
                cells += [character, ""] if is_wide else [character]
        return cells

    @staticmethod
    def _split_at(line: list[str], column: int) -> None:
        """Replace the wide character or tab that lies on both sides of `column` by blanks."""
        if not 0 < column < len(line) or line[column]:
            return
        first = column
        while first and not line[first]:
            first -= 1
        end = column
        while end < len(line) and not line[end]:
            end += 1
        line[first:end] = " " * (end - first)
