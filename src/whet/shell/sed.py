"""Parse sed scripts into their commands and the commands' arguments.

Follows GNU sed 4.9 (sed/compile.c) and POSIX, "sed"; a test compares it with the installed sed. Which
commands are dangerous is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from whet.late import late_pattern
from whet.shell.options import has_option
from whet.shell.words import Word

_WITH_VALUE = {"expression": "e", "file": "f", "line-length": "l"}
_ADDRESS = late_pattern(r"\s*(?:\d+(?:\s*~\s*\d+)?|\$|[+~]\d+|(?P<regex>/|\\[^\n\\]))")
_BRACKET = late_pattern(r"\[\^?\]?(?:\[([:.=])[^\n]*?\1\]|[^\]\n])*\]")
_LONGEST_CHARS = 2_000
_GIVEN = {  # the argument after a command, except for s and y
    **dict.fromkeys("=dDgGhHnNpPxzF}", ""),
    **dict.fromkeys("lLqQ", r"[ \t]*\d*"),
    **dict.fromkeys(":btTv", r"[ \t]*[^\s;}]*"),
    **dict.fromkeys("aic", r"(?:\\(?s:.)|[^\n\\]|\\\Z)*"),
    **dict.fromkeys("erRwW#", r"[^\n]*"),
}


class SedCommand(msgspec.Struct, frozen=True):
    """A command: its letter and its argument (the file of r or w, the program of e, the flags of s)."""

    name: str
    given: str = ""

    @property
    def runs(self) -> bool:
        """Whether it runs a program: e, and s with the flag e."""
        return self.name == "e" or (self.name == "s" and "e" in self.given)


class SedScript(msgspec.Struct, frozen=True):
    """The script of a sed call. `commands` is None if the text is not a valid script.

    `dynamic`: a part is known only at run time; if such a text is invalid, `commands` holds those of its
    parts.
    """

    text: str
    dynamic: bool
    commands: tuple[SedCommand, ...] | None


def sed_script(words: Sequence[Word]) -> SedScript:
    """Return the script in the words after sed's name. The contents of a script file (`-f`) are unknown."""
    given, operands = _arguments(words)
    if not given:
        if operands and has_option(words, "i") and re.fullmatch(r"(\.\w+)?", operands[0].text):
            del operands[0]  # the suffix of BSD's -i
        # A word that may be an option does not hide the script after it.
        at = next((at for at, word in enumerate(operands) if not word.may_be_flag), len(operands))
        given = operands[: at + 1]
    text = "\n".join(word.text for word in given)
    dynamic = any(word.dynamic for word in given)
    commands = read_sed(text)
    if commands is None and dynamic:
        commands = [one for part in re.split(r"[;\n]", text) for one in read_sed(part) or ()]
    return SedScript(text, dynamic, None if commands is None else tuple(commands))


def read_sed(text: str) -> list[SedCommand] | None:
    """Parse a script. Returns None if it is invalid or very long."""
    if len(text) > _LONGEST_CHARS:
        return None
    try:
        return _Reader(text).commands()
    except _Unreadable:
        return None


class _Unreadable(Exception):
    """Raised if the text is not a script."""


def _arguments(words: Sequence[Word]) -> tuple[list[Word], list[Word]]:
    """Return the scripts given by options, and the operands. There are no operands if a script comes from a
    file."""
    scripts: list[Word] = []
    operands: list[Word] = []
    rest = iter(words)
    letters = ""
    for word in rest:
        text = word.text
        if text == "--":
            operands.extend(rest)
            break
        if text == "-" or text[:1] != "-":
            operands.append(word)
            continue
        name, _, value = text[2:].partition("=")
        if text[1] == "-":
            letter = next((_WITH_VALUE[full] for full in _WITH_VALUE if name and full.startswith(name)), "")
        else:
            found = re.match(r"-[^efil]*([efil])(.*)", text, re.DOTALL)
            letter, value = (found[1], found[2]) if found else ("", "")
        letters += letter
        if letter in ("e", "f", "l"):
            held = word.after(len(text) - len(value)) if value else next(rest, None)
            scripts += [held] if letter == "e" and held is not None else []
    return scripts, [] if "f" in letters else operands


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def commands(self) -> list[SedCommand]:
        found: list[SedCommand] = []
        while True:
            self._take(r"[\s;]*")
            if self._at == len(self._text):
                return found
            if self._address() and self._taken(r"\s*,") and not self._address():
                raise _Unreadable
            self._take(r"\s*(!\s*)*")
            found.extend(self._command())

    def _command(self) -> list[SedCommand]:
        name = self._take(r"(?s:.)")
        if name == "{":
            return [SedCommand(name)]
        if name == "s":
            return self._substitution()
        if name == "y":
            self._transliteration()
            given = ""
        elif name in _GIVEN:
            given = self._take(_GIVEN[name])
        else:
            raise _Unreadable
        self._end()
        return [SedCommand(name, given.strip())]

    def _substitution(self) -> list[SedCommand]:
        delimiter = self._take(r"[^\n\\]")
        self._delimited(delimiter, has_brackets=True)
        self._delimited(delimiter)
        flags = self._take(r"[gpIiMme\d \t]*")
        found = [SedCommand("s", "".join(flags.split()))]
        if self._taken("w"):
            found.append(SedCommand("w", self._take(r"[^\n]*").strip()))
        self._end()
        return found

    def _transliteration(self) -> None:
        delimiter = self._take(r"[^\n\\]")
        self._delimited(delimiter)
        self._delimited(delimiter)

    def _address(self) -> bool:
        found = _ADDRESS.match(self._text, self._at)
        if not found:
            return False
        self._at = found.end()
        if found["regex"]:
            self._delimited(found["regex"][-1], has_brackets=True)
            self._take("[IM]*")
        return True

    def _delimited(self, delimiter: str, *, has_brackets: bool = False) -> None:
        """Consume the text up to and including a delimiter."""
        while not self._taken(re.escape(delimiter)):
            if has_brackets and self._text.startswith("[", self._at):
                found = _BRACKET.match(self._text, self._at)
                if not found:
                    raise _Unreadable
                self._at = found.end()
            elif not self._taken(r"\\(?s:.)|[^\n\\]"):
                raise _Unreadable

    def _end(self) -> None:
        if not self._taken(r"[ \t]*([;\n]|(?=[}#])|\Z)"):
            raise _Unreadable

    def _taken(self, pattern: str) -> bool:
        """Consume a match of the pattern here. Returns False if nothing matches."""
        found = re.compile(pattern).match(self._text, self._at)
        if found:
            self._at = found.end()
        return found is not None

    def _take(self, pattern: str) -> str:
        at = self._at
        if not self._taken(pattern):
            raise _Unreadable
        return self._text[at : self._at]
