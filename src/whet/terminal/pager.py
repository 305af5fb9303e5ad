"""Show a long text in the person's pager: PAGER, or `less` by default.

`less` runs in its secure mode, in which keys can't start shell commands.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping

from whet.searchpath import find_trusted_program
from whet.terminal import wording

_PROMPT = "q leaves, / searches  ?e(end):%lt-%lb?L of %L..%t"
"""It fits into 40 columns. `less` would show only the end of a longer one."""


def is_long(text: str, width: int, height: int) -> bool:
    """Return whether a text needs more rows than a terminal of this size has."""
    room = height
    for row in text.split("\n"):
        room -= max(-(-wording.count_columns(wording.printable(row)) // max(width, 1)), 1)
        if room < 0:
            return True
    return False


def find_pager(environ: Mapping[str, str], *untrusted: str) -> list[str]:
    """Return the command of the pager, or an empty list if there is none or PAGER is cat."""
    words = shlex.split(environ.get("PAGER", "")) or ["less"]
    program = find_trusted_program(words[0], *untrusted)
    if program is None or os.path.basename(program) == "cat":
        return []
    return [program, *words[1:]]


def run_pager(command: list[str], text: str, environ: Mapping[str, str]) -> None:
    """Show a text in the pager until the person leaves it."""
    settings = {"LESSSECURE": "1", "LESS": f"-R -Ps{_PROMPT}$", "LESSHISTFILE": "-", "LESSCHARSET": "utf-8"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stdout, env={**environ, **settings})
    try:
        process.communicate(text.encode())
    except BrokenPipeError:
        process.wait()
