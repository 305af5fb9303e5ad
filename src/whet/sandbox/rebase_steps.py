"""Find the commands that git runs when somebody continues a stopped rebase.

A rebase writes its steps into its git folder, and `exec` steps are commands. A person who continues a rebase
that a sandboxed command has left would run them with all of their rights.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from whet.beneath import open_beneath
from whet.late import late_pattern

_STEPS_FILE = "rebase-merge/git-rebase-todo"
_MAX_BYTES, _MAX_TREES = 1_000_000, 200
_EXEC = late_pattern(r"[ \t]*(?:exec|x)(?:[ \t\r].*)?")


def list_step_files(gits: Iterable[str]) -> Iterator[str]:
    """Yield the files with the steps of rebases in these git folders and in their second working trees."""
    for git in gits:
        trees = f"{git}/worktrees"
        names = os.listdir(trees)[:_MAX_TREES] if os.path.isdir(trees) and not os.path.islink(trees) else ()
        for folder in (git, *(f"{trees}/{name}" for name in names)):
            if os.path.lexists(f"{folder}/rebase-merge"):
                yield f"{folder}/{_STEPS_FILE}"


def read_steps(path: str, root: str) -> list[str] | None:
    """Return the lines of a file with steps, or None if it is no plain file of sensible size below `root`."""
    try:
        with open_beneath(root, os.path.relpath(path, root)) as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError:
        return None
    return data.decode("utf-8", "surrogateescape").split("\n") if len(data) <= _MAX_BYTES else None


def list_commands(lines: Iterable[str]) -> list[str]:
    """Return the steps that are commands."""
    return [line for line in lines if _EXEC.fullmatch(line)]


def without_new_commands(lines: list[str], known: Iterable[str]) -> list[str]:
    """Return the steps without the commands that are not among the known ones."""
    left = Counter(known)
    kept: list[str] = []
    for line in lines:
        if _EXEC.fullmatch(line):
            left[line] -= 1
            if left[line] < 0:
                continue
        kept.append(line)
    return kept
