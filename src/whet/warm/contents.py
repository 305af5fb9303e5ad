"""Decide by the recorded contents of files what a call did: whether it brought them back to what they were
before an earlier call, and whether a command that ran again changed what the first run had left alone.

The contents are the hashes that the record of the workspace took before and after each step. What a command
is called, and what it prints, decides nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from whet.store.calls import StoredCall

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
    undone.
    """
    changed = changed_contents(new)
    now = {path: after for path, (_, after) in changed.items()}
    between = ""
    for old in earlier if changed else ():
        files = changed_contents(old)
        if files and old.step != new.step and not files.keys().isdisjoint(changed):
            is_back = all(now.get(path, after) == before for path, (before, after) in files.items())
            was_used = any(
                not before and PurePosixPath(path).name in between for path, (before, _) in files.items()
            )
            # What a turn removes and then makes again, as by `make clean`, is not undone.
            is_made_again = old.turn == new.turn and not any(after for _, after in files.values())
            if is_back and not was_used and not is_made_again:
                yield old
        for path, (_, after) in files.items():
            now.setdefault(path, after)
        between += old.arguments


def left_alone(first: StoredCall, second: StoredCall) -> bool | None:
    """Return whether `second` changed a file that the arguments of `first` name, or None if it changed no file or if
    `first` changed one, too."""
    changed = changed_contents(second)
    if not changed or first.effects is None or changed_contents(first):
        return None
    return any(PurePosixPath(path).name in first.arguments for path in changed)
