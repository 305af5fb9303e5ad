"""Recognise commands that may show contents of files which their text does not name.

These are searches of whole folders, and git's verbs that show objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from whet.shell.programs import program, read_git_verbs
from whet.shell.reading import ReadPart, read

_RECURSIVE = re.compile(r"-[a-zA-Z]*[rR][a-zA-Z]*|--(?:dereference-)?recursive|--directories=recurse")


def reads_unnamed_files(command: str) -> bool:
    """Return whether a command may show contents of files that its text does not name."""
    return any(_searches_folders(part) or _shows_objects(part) for part in read(command).parts)


def find_object_paths(command: str) -> Iterator[str]:
    """Yield the paths in git's names of objects, such as `HEAD:docs/a.md` and `:a.md`."""
    for part in read(command).parts:
        if part.name == "git":
            yield from (path for word in part.words if (path := word.rpartition(":")[2]) and path != word)


def _searches_folders(part: ReadPart) -> bool:
    kinds = program(part.name).kinds
    is_recursive = any(map(_RECURSIVE.fullmatch, part.words))
    return "walks" in kinds or ("pattern-then-files" in kinds and is_recursive)


def _shows_objects(part: ReadPart) -> bool:
    if part.name != "git":
        return False
    verbs = read_git_verbs()
    for line in part.lines:
        name, *words = line.split()
        if name == "git" and words and (verb := verbs.get(words[0])) is not None:
            is_asked = not verb.shows_if or any(re.match(verb.shows_if, word) for word in words[1:])
            if not verb.silent and is_asked:
                return True
    return False
