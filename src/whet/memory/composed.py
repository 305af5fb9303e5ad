"""Recognise lines that the assistant put together itself, although a program printed them.

A setting is this machine's only if a file or a program holds its key. If the command that printed it, or a
script or file that the assistant wrote, has the key and its sign, the assistant composed the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whet.contract.tools import tags_of
from whet.memory.sources import SourceText
from whet.memory.unnamed_files import reads_unnamed_files
from whet.shell.programs import program
from whet.shell.reading import ReadPart, read

_KEY = re.compile(r"[\s\"'{\[-]*(?P<key>[^\W_][^=:\n]{0,80}?)[\"'\]\s]*(?P<sign>[=:])(?!//)")
# A pattern that begins a word, as those of sed and awk do.
_ADDRESS = re.compile(r"\s/[^/\n]*/")
# A file as input; not a here-document or a string.
_INPUT = re.compile(r"(?<!<)<(?![<(&])")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_WORD = re.compile(r"[^\W_]+")
# What the program fills in: %s, {name}, $name, the end of a string, or an option for a separator.
_FILLED = r"(?:%[-\d.]*[a-zA-Z]|\}|\$\w+|[\"']|\s-\w)"


def is_composed(unit: str, source: SourceText, before: Iterable[SourceText]) -> bool:
    """Return whether the assistant composed a line of a result.

    It did if the command read nothing of this machine, if the line's key and sign are in the command outside
    of search patterns, or in a text that it wrote before into a file that the call names. What inline code
    reads can't be told, so no setting that it prints counts as read.
    """
    lines = [match for line in unit.splitlines() if (match := _KEY.match(line))]
    if source.is_command and _reads_nothing(source.call, code_may_read=not lines):
        return True
    if not lines:
        return False
    texts = [_own_text(source.call)] if source.is_command else []
    names = {
        name.rpartition("/")[2] for name in (read(source.call).files if source.is_command else [source.call])
    }
    names = {name for name in names if len(name) > 1}
    for other in before:
        if other.has_effect and any(name in other.text for name in names):
            is_command = "command" in tags_of(other.tool)
            texts.append(_own_text(other.text) if is_command else other.text)
    return any(_holds(text, match["key"], match["sign"]) for text in texts for match in lines)


def _reads_nothing(command: str, *, code_may_read: bool) -> bool:
    """Return whether all programs of a command only print their words, run inline code (unless it may read),
    or change the text that these give them."""
    parts = [part for part in read(command).parts if "shell" not in program(part.name).kinds]
    runs_code = any(map(_runs_code, parts))
    if not parts or (runs_code and code_may_read) or reads_unnamed_files(command):
        return False
    return all(_only_makes_text(part) and not _shows_environment(part, command) for part in parts)


def _shows_environment(part: ReadPart, command: str) -> bool:
    """Return whether a program prints nothing but variables that the command does not set."""
    operands = [word for word in part.words[1:] if not word.startswith("-")]
    names = [match[1] for word in operands if (match := _VARIABLE.fullmatch(word))]
    is_set = any(re.search(rf"(?<![$\w])(?<!\$\{{){name}(?!\w)", command) for name in names)
    return bool(operands) and len(names) == len(operands) and not is_set


def _runs_code(part: ReadPart) -> bool:
    return bool(part.code) and program(part.name.rstrip("0123456789.")).code is not None


def _only_makes_text(part: ReadPart) -> bool:
    facts = program(part.name.rstrip("0123456789."))
    if _INPUT.search(part.bare):
        return False
    if "words-only" in facts.kinds or _runs_code(part):
        return True
    takes_variables = "script-then-files" in facts.kinds
    no_file = r"-|/dev/|[^\W\d]\w*=\S*$" if takes_variables else "-|/dev/"
    operands = [word for word in part.words[1:] if not re.match(no_file, word)]
    has_pattern = takes_variables or "pattern-then-files" in facts.kinds
    return (has_pattern or "shows-files" in facts.kinds) and len(operands) <= has_pattern


def _own_text(command: str) -> str:
    """Return a command's words and code without search patterns."""
    parts = (part for part in read(command).parts if "pattern-then-files" not in program(part.name).kinds)
    return "\n".join(_ADDRESS.sub(" ", f"{part.line}\n{part.code}") for part in parts)


def _holds(text: str, key: str, sign: str) -> bool:
    """Return whether a text has the key right before its sign, or the key anywhere and a placeholder before
    the sign."""
    words = _WORD.findall(key)
    spelled = r"[\W_]{0,3}".join(map(re.escape, words))
    if not words or not (match := re.search(rf"(?<![^\W_]){spelled}(?![^\W_])", text, re.IGNORECASE)):
        return False
    if re.match(rf"[\W_]{{0,6}}?{sign}", text[match.end() :]):
        return True
    return re.search(rf"{_FILLED}\W{{0,6}}?{sign}", text) is not None
