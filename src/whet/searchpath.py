"""Finds the programs that Whet itself runs, with all of its person's rights, where no command can put them.

Whoever starts Whet in an active virtual environment has a folder of the workspace first on the search path,
and a command may write there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def outside(*places: str | Path) -> str:
    """Give the search path without relative folders and those that lie in one of these places, or in the
    outermost repository around it."""
    tops = _tops(places)
    return os.pathsep.join(one for one in os.get_exec_path() if _is_outside(one, tops))


def find_outside(name: str, *places: str | Path) -> str | None:
    """Find a program on that path; one that a link leads into such a place is none.

    `shutil.which` would cost 4 ms of start-up to import.
    """
    tops = _tops(places)
    for folder in os.get_exec_path():
        path = os.path.join(folder, name)  # most folders have none, and need no further look
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        if _is_outside(folder, tops) and _is_outside(path, tops):
            return path
    return None


def _tops(places: Iterable[str | Path]) -> list[str]:
    """Give the places and the repositories around each, below the home; what leads elsewhere as git's
    second working trees do is the caller's to name."""
    home = os.path.realpath(os.path.expanduser("~"))
    found: list[str] = []
    for place in places:
        above = os.path.realpath(place)
        found.append(above)
        while above not in (home, os.path.dirname(above)):
            if os.path.lexists(above + "/.git"):
                found.append(above)
            above = os.path.dirname(above)
    return found


def _is_outside(path: str, tops: list[str]) -> bool:
    real = os.path.realpath(path)
    return os.path.isabs(path) and not any(
        real == top or real.startswith(top.rstrip("/") + "/") for top in tops
    )
