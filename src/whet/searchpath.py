"""Finds the programs that Whet itself runs, with all of its person's rights, where no command can put them.

Whoever starts Whet in an active virtual environment has a folder of the workspace first on the search path,
and a command may write there.
"""

from __future__ import annotations

import os
from pathlib import Path


def outside(*places: str | Path) -> str:
    """Give the search path without relative folders and those that lie in one of these places, or in the
    outermost repository around it."""
    tops = [top for place in places for top in _tops(os.path.realpath(place))]
    folders = (folder for folder in os.get_exec_path() if os.path.isabs(folder))
    return os.pathsep.join(one for one in folders if not _is_in(os.path.realpath(one), tops))


def find_outside(name: str, *places: str | Path) -> str | None:
    """Find a program on that path; one that a link leads into such a place is none.

    `shutil.which` would cost 4 ms of start-up to import.
    """
    tops = [top for place in places for top in _tops(os.path.realpath(place))]
    for folder in outside(*places).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and not _is_in(os.path.realpath(path), tops):
            return path
    return None


def _tops(place: str) -> list[str]:
    """Give a place and the outermost repository around it, below the home; what leads elsewhere as git's
    second working trees do is the caller's to name."""
    home = os.path.realpath(os.path.expanduser("~"))
    found, above = [place], place
    while above not in (home, os.path.dirname(above)):
        if os.path.lexists(above + "/.git"):
            found.append(above)
        above = os.path.dirname(above)
    return found


def _is_in(path: str, tops: list[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)
