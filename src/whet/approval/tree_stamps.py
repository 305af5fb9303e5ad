"""Notice that a file of a workspace changed while a person decided on a command outside the sandbox.

A script can name the files that it runs in ways that no reader follows. So all files are compared.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from whet.approval.readonly import only_reads
from whet.approval.risk import RiskScope
from whet.shell.programs import ProgramWords, program
from whet.shell.reading import CommandReading, ReadPart
from whet.shell.words import literal

_MAX_PATHS = 200_000
_DATA_ENDINGS = (".log", ".db", ".sqlite", ".sqlite3", "-wal", "-shm", "-journal", ".pid", ".swp")
"""Programs write such files all the time. One that a command's texts name counts all the same."""
_GIT_RECORDS = ProgramWords("objects logs index remotes FETCH_HEAD ORIG_HEAD COMMIT_EDITMSG")
"""Names in `.git` that editors and prompts change in the background, and that git does not run."""


def may_run_files(reading: CommandReading) -> bool:
    """Return whether a command may run files of the workspace: unless each of its commands, behind wrappers
    such as `sudo`, certainly only reads."""
    return reading.is_doubtful or any(map(_may_run_files, reading.parts))


def _may_run_files(part: ReadPart) -> bool:
    if program(part.name).wraps is not None:
        return False  # the command inside is a part of its own
    return any(part.shapes) or not only_reads([literal(word) for word in part.words])


def stamp_tree(workspace: str, scope: RiskScope) -> dict[str, str]:
    """Return the state of each file and link below a workspace by its path. It differs after a change.

    Left out are Whet's home, hidden entries of the user's home, in which all programs write, git's records,
    logs and databases. Links are not followed. Of more than 200,000 paths, those nearest to the workspace are
    read.
    """
    top, home = os.path.realpath(workspace), os.path.realpath(scope.home)
    stamps: dict[str, str] = {}
    folders = deque([top])
    paths = 0
    while folders and paths < _MAX_PATHS:
        folder = folders.popleft()
        is_git = os.path.basename(folder) == ".git"
        for entry in _list_entries(folder):
            paths += 1
            is_hidden = folder == home and entry.name.startswith(".")
            if is_hidden or entry.path == scope.whet_home or (is_git and entry.name in _GIT_RECORDS):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.name.endswith(_DATA_ENDINGS):
                    facts = entry.stat(follow_symlinks=False)
                    state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_ctime_ns)
                    stamps[entry.path] = str(state)
            except OSError:
                continue  # deleted meanwhile
    return stamps


def _list_entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder, by name, or nothing if it can't be read."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
