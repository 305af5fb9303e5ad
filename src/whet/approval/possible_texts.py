"""Find the texts that a word with variables may become when its command runs.

A variable that the command sets has each of its values, wherever it is set; any other one can hold any text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from whet.shell.state import ShellScript
from whet.shell.words import Word, name_of

UNKNOWN = "\0"
"""Stands for a part of a word that can be any text."""
OWN_CHILD = UNKNOWN * 2
"""The same, for `$!`: the process that the command started last."""
VariableValues = Mapping[str, Sequence[str]]
_SETS_OTHERWISE = frozenset(
    ("read", "mapfile", "readarray", "getopts", "eval", "source", ".", "printf", "declare", "local", "let")
)
_NUMBER = re.compile(r"\$[?#!$]|\$\{#\w+\}")
# `${f%.png}` is a beginning of the value, and `${f##*/}` its last part
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:%%?[^{}$/]*|(?P<last>##\*/))?\})")
_MAX_TEXTS = 64


def list_values(script: ShellScript) -> dict[str, list[str]]:
    """Return the values of the variables that a script sets. If a command may set one to another text, none
    is known."""
    if any(i.words and name_of(i.words[0]) in _SETS_OTHERWISE for i in script.invocations):
        return {}
    values: dict[str, list[str]] = {}
    own = (pair for invocation in script.invocations for pair in invocation.assignments)
    for name, word in (*script.assignments, *script.loops, *own):
        unknown_text = OWN_CHILD if word.text in ("$!", "${!}") else f"{word.prefix}{UNKNOWN}"
        values.setdefault(name, []).append(unknown_text if word.dynamic else word.text)
    return values


def possible_texts(word: Word, values: VariableValues) -> Sequence[str]:
    """Return the texts that a word may become; `UNKNOWN` stands for a part that can be any text."""
    if not word.dynamic:
        return (word.text,)
    if word.runs:
        return (f"{word.prefix}{UNKNOWN}",)
    texts = list(itertools.islice(_fill(_NUMBER.sub("0", word.text), values), _MAX_TEXTS + 1))
    return texts if len(texts) <= _MAX_TEXTS else (UNKNOWN,)


def _fill(text: str, values: VariableValues) -> Iterator[str]:
    parts: list[Sequence[str]] = []
    at = 0
    for match in _VARIABLE.finditer(text):
        parts.append((text[at : match.start()].replace("$", UNKNOWN),))
        texts = values.get(match[1] or match[2], (UNKNOWN,))
        parts.append([value.rpartition("/")[2] for value in texts] if match["last"] else texts)
        at = match.end()
    parts.append((text[at:].replace("$", UNKNOWN),))
    return map("".join, itertools.product(*parts))
