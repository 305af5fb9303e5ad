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
_MAX_CHARS = 2_000
_ARGUMENTS = {  # the argument after a command, except for s and y
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

    `dynamic`: a part is known only at run time, as are the names that a glob becomes; if such a text is
    invalid, `commands` holds those of its parts.
    """

    text: str
    dynamic: bool
    commands: tuple[SedCommand, ...] | None


def parse_sed_call(words: Sequence[Word]) -> SedScript:
    """Return the script in the words after sed's name. The contents of a script file (`-f`) are unknown."""
    scripts, operands = _split_arguments(words)
    if not scripts:
        if operands and has_option(words, "i") and re.fullmatch(r"(\.\w+)?", operands[0].text):
            del operands[0]  # the suffix of BSD's -i
        # A word that may be an option does not hide the script after it.
        at = next((at for at, word in enumerate(operands) if not word.may_be_flag), len(operands))
        scripts = operands[: at + 1]
    text = "\n".join(word.text for word in scripts)
    dynamic = any(word.dynamic or word.glob for word in scripts)
    commands = parse_sed(text)
    if commands is None and dynamic:
        commands = [command for part in re.split(r"[;\n]", text) for command in parse_sed(part) or ()]
    return SedScript(text, dynamic, None if commands is None else tuple(commands))


def parse_sed(text: str) -> list[SedCommand] | None:
    """Parse a script. Returns None if it is invalid or very long."""
    if len(text) > _MAX_CHARS:
        return None
    try:
        return _Reader(text).commands()
    except _Unreadable:
        return None


class _Unreadable(Exception):
    """Raised if the text is not a script."""


def _split_arguments(words: Sequence[Word]) -> tuple[list[Word], list[Word]]:
    """Return the scripts given by options, and the operands. There are no operands if a script comes from a
    file."""
    scripts: list[Word] = []
    operands: list[Word] = []
    remaining = iter(words)
    letters = ""
    for word in remaining:
        text = word.text
        if text == "--":
            operands.extend(remaining)
            break
        if text == "-" or text[:1] != "-":
            operands.append(word)
            continue
        name, _, value = text[2:].partition("=")
        if text[1] == "-":
            letter = next((_WITH_VALUE[full] for full in _WITH_VALUE if name and full.startswith(name)), "")
        else:
            match = re.match(r"-[^efil]*([efil])(.*)", text, re.DOTALL)
            letter, value = (match[1], match[2]) if match else ("", "")
        letters += letter
        if letter in ("e", "f", "l"):
            script = word.after(len(text) - len(value)) if value else next(remaining, None)
            scripts += [script] if letter == "e" and script is not None else []
    return scripts, [] if "f" in letters else operands


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def commands(self) -> list[SedCommand]:
        sed_commands: list[SedCommand] = []
        while True:
            self._take(r"[\s;]*")
            if self._at == len(self._text):
                return sed_commands
            if self._address() and self._try_take(r"\s*,") and not self._address():
                raise _Unreadable
            self._take(r"\s*(!\s*)*")
            sed_commands.extend(self._command())

    def _command(self) -> list[SedCommand]:
        name = self._take(r"(?s:.)")
        if name == "{":
            return [SedCommand(name)]
        if name == "s":
            return self._substitution()
        if name == "y":
            self._transliteration()
            argument = ""
        elif name in _ARGUMENTS:
            argument = self._take(_ARGUMENTS[name])
        else:
            raise _Unreadable
        self._end()
        return [SedCommand(name, argument.strip())]

    def _substitution(self) -> list[SedCommand]:
        delimiter = self._take(r"[^\n\\]")
        self._take_delimited(delimiter, has_brackets=True)
        self._take_delimited(delimiter)
        flags = self._take(r"[gpIiMme\d \t]*")
        commands = [SedCommand("s", "".join(flags.split()))]
        if self._try_take("w"):
            commands.append(SedCommand("w", self._take(r"[^\n]*").strip()))
        self._end()
        return commands

    def _transliteration(self) -> None:
        delimiter = self._take(r"[^\n\\]")
        self._take_delimited(delimiter)
        self._take_delimited(delimiter)

    def _address(self) -> bool:
        match = _ADDRESS.match(self._text, self._at)
        if not match:
            return False
        self._at = match.end()
        if match["regex"]:
            self._take_delimited(match["regex"][-1], has_brackets=True)
            self._take("[IM]*")
        return True

    def _take_delimited(self, delimiter: str, *, has_brackets: bool = False) -> None:
        """Consume the text up to and including a delimiter."""
        while not self._try_take(re.escape(delimiter)):
            if has_brackets and self._text.startswith("[", self._at):
                match = _BRACKET.match(self._text, self._at)
                if not match:
                    raise _Unreadable
                self._at = match.end()
            elif not self._try_take(r"\\(?s:.)|[^\n\\]"):
                raise _Unreadable

    def _end(self) -> None:
        if not self._try_take(r"[ \t]*([;\n]|(?=[}#])|\Z)"):
            raise _Unreadable

    def _try_take(self, pattern: str) -> bool:
        """Consume a match of the pattern here. Returns False if nothing matches."""
        match = re.compile(pattern).match(self._text, self._at)
        if match:
            self._at = match.end()
        return match is not None

    def _take(self, pattern: str) -> str:
        at = self._at
        if not self._try_take(pattern):
            raise _Unreadable
        return self._text[at : self._at]
