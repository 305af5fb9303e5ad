"""Judge calls by the recorded contents of files: whether a call brought files back to their contents before
an earlier call.

The contents are the hashes that the record of the workspace took before and after each step. A command's
name and output decide nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from whet.contract.texts import parse_arguments
from whet.store.calls import StoredCall
from whet.warm.outcome import read_program

Contents = dict[str, tuple[str, str]]
"""By path: the beginnings of the hashes before and after, empty if there was no file."""


def changed_contents(call: StoredCall) -> Contents:
    """Return the files that a call changed. Empty if it changed none, or if nothing was recorded."""
    if call.effects is None:
        return {}
    files = (*call.effects.edits, *call.effects.touched)
    return {file.path: (file.before, file.after) for file in files if file.before != file.after}


def find_returned(new: StoredCall, earlier: Iterable[StoredCall]) -> Iterator[StoredCall]:
    """Yield the calls whose files all have their former contents again after `new`. `earlier`: newest first.

    A file that was created, named by a call between and removed was a tool of the work: its creation is not
    undone. Nor are steps that a program takes in passing within a turn: it removes files and makes them again
    (`make clean; make`), or goes to another state of the folder, where calls only read, and back (`git
    checkout`).
    """
    changed = changed_contents(new)
    now = {path: after for path, (_, after) in changed.items()}
    between: list[StoredCall] = []
    for old in earlier if changed else ():
        files = changed_contents(old)
        if files and old.step != new.step and not files.keys().isdisjoint(changed):
            is_back = all(now.get(path, after) == before for path, (before, after) in files.items())
            if is_back and not _was_used(files, between) and not _is_passing(old, new, between):
                yield old
        for path, (_, after) in files.items():
            now.setdefault(path, after)
        between.append(old)


def _was_used(files: Contents, between: list[StoredCall]) -> bool:
    names = [PurePosixPath(path).name for path, (before, _) in files.items() if not before]
    return any(name in call.arguments for name in names for call in between)


def _is_passing(old: StoredCall, new: StoredCall, between: list[StoredCall]) -> bool:
    programs = [
        read_program(str(parse_arguments(call.arguments).get("command", "")))[0] for call in (old, new)
    ]
    if old.turn != new.turn or not programs[0] or programs[0] != programs[1]:
        return False
    is_removal = not any(after for _, after in changed_contents(old).values())
    return is_removal or (bool(between) and not any(map(_acts, between)))


def _acts(call: StoredCall) -> bool:
    command = str(parse_arguments(call.arguments).get("command", ""))
    return bool(changed_contents(call)) or not read_program(command)[1]
