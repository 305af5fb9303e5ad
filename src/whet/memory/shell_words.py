"""A command as a shell reads it: its programs, what stands in its strings, and the words that may name files.

Nothing is run and no file is looked at. It does not know what a program does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

_SPLIT = re.compile(r"\|\||&&|[;|&\n(`]|\$\(")
_HERE_DOCUMENT = r"<<-?\s*(?P<mark>['\"]?)(?P<end>\w+)(?P=mark)[^\n]*(?P<body>\n.*?^\s*(?P=end)$)"
STRING = re.compile(rf"(?ms){_HERE_DOCUMENT}|'[^']*'|\"(?:\\.|[^\"\\])*\"")
# What stands before a program that a shell is told to run.
_BEFORE_PROGRAM = frozenset(
    "if then elif else while until do ! { sudo env time exec command nohup"  # noqa: SIM905
    " nice timeout xargs source .".split()
)
_READER_CHARS = 200
_BRACES = re.compile(r"([^{}]*)\{([^{}]*,[^{}]*)\}([^{}]*)")
_PATH = re.compile(r"[\w.~-]*[./][\w./-]+")


def programs(command: str) -> set[str]:
    """Give the programs that a command calls, as it names them."""
    return {word.strip("\"'") for word in heads(command)}


def parts(command: str) -> list[str]:
    """Give what a shell would run one after the other, with the strings in it covered."""
    return _SPLIT.split(without_strings(command))


def heads(command: str) -> Iterator[str]:
    """Give the program of each part of a command, empty where there is none."""
    for part in parts(command):
        words = iter(part.split())
        first = next((w for w in words if "=" not in w), "")
        while first in _BEFORE_PROGRAM and first:
            first = next((w for w in words if "=" not in w and not re.match(r"-|\d+\w?$", w)), "")
        yield first


def without_strings(command: str) -> str:
    """Give a command with `_` for what stands in its strings and here-documents, blanks left where they are:
    that is no part of its own words. What a shell is given to run is one."""

    def covered(match: re.Match[str]) -> str:
        text, body = match[0], match["body"] or match[0]
        reader = _SPLIT.split(command[max(match.start() - _READER_CHARS, 0) : match.start()])[-1].split()
        is_run = any(re.search(r"(?:^|/)(?:[a-z]{0,2}sh|eval)$", word) for word in reader)
        if is_run or (text[0] == '"' and re.search(r"\$\(|`", text)) or not re.search(r"\s", text):
            return text
        return text[: len(text) - len(body)] + re.sub(r"\S", "_", body)

    return STRING.sub(covered, command)


def named_paths(command: str) -> list[str]:
    """Give the words of a command that may name files; a program's bare name is looked up elsewhere."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    for head in heads(command):
        if "/" not in head and head in words:
            words.remove(head)
    return names(words)


def names(words: Iterable[str]) -> list[str]:
    """Give the files that words of a command may name: the value of an assignment, each of several in braces,
    what looks like a path in code."""
    found: list[str] = []
    for word in words:
        if re.search(r"[\s()]", word):  # code
            found += _PATH.findall(word)
        elif not word.startswith("-"):
            name = (word.partition("=")[2] or word).strip("<>;&|()\"'")
            some = _BRACES.fullmatch(name)
            found += [f"{some[1]}{one}{some[3]}" for one in some[2].split(",")] if some else [name]
    return found
