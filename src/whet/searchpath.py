"""Find the programs that Whet itself runs, ignoring folders of the search path that commands can write to.

Whet runs them with all of the user's rights. If it is started in an active virtual environment of the
workspace, a folder to which commands may write comes first on the search path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def trusted_path(*folders: str | Path) -> str:
    """Return the search path without relative folders and without folders inside the given ones or the
    outermost repository around them."""
    tops = _find_roots(folders)
    return os.pathsep.join(entry for entry in os.get_exec_path() if _is_outside(entry, tops))


def find_trusted_program(name: str, *untrusted: str | Path) -> str | None:
    """Find a program on the trusted path. Programs reached through a symlink into an untrusted folder are
    ignored.

    `shutil.which` would cost 4 ms of start-up to import.
    """
    tops = _find_roots(untrusted)
    for folder in os.get_exec_path():
        path = os.path.join(folder, name)  # most folders lack the program and need no further check
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        if _is_outside(folder, tops) and _is_outside(path, tops):
            return path
    return None


def find_shell(*untrusted: str | Path) -> str:
    """Return the path of the shell that runs commands: bash if it is installed, else sh."""
    return find_trusted_program("bash", *untrusted) or "/bin/sh"


def find_program_inside(name: str, workspace: str) -> str:
    """Return the path of the program that a shell in `workspace` runs by this name, or an empty string if it
    is outside the workspace and its repository."""
    tops = _find_roots([workspace])
    for folder in os.get_exec_path():
        path = os.path.join(workspace, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return "" if _is_outside(os.path.dirname(path), tops) and _is_outside(path, tops) else path
    return ""


def _find_roots(folders: Iterable[str | Path]) -> list[str]:
    """Return the folders, and the repositories around each of them below the home. The caller must add
    folders elsewhere, such as git's linked working trees."""
    home = os.path.realpath(os.path.expanduser("~"))
    roots: list[str] = []
    for start in folders:
        above = os.path.realpath(start)
        roots.append(above)
        while above not in (home, os.path.dirname(above)):
            if os.path.lexists(above + "/.git"):
                roots.append(above)
            above = os.path.dirname(above)
    return roots


def _is_outside(path: str, tops: list[str]) -> bool:
    real = os.path.realpath(path)
    return os.path.isabs(path) and not any(
        real == top or real.startswith(top.rstrip("/") + "/") for top in tops
    )
