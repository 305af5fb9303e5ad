"""Find the private files below the toolchain folders of a home: keys and tokens, which no build needs.

A toolchain's own files can be read by everybody; a file that others can't read is somebody's secret. Where
even the folder is private, its owner's umask made everything so, and only the names of token stores count.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from whet.late import late_pattern
from whet.regular import read_regular_text

_MAX_DEPTH, _MAX_ENTRIES, _MAX_BYTES = 3, 1_000, 1_000_000
_TOKEN_STORE = late_pattern(
    r"\.?(?:credentials?|tokens?|secrets?|auth)(?:\.(?:toml|json|ya?ml|ini|txt))?"
    r"|\.(?:netrc|npmrc|pypirc|condarc|git-credentials)"
)
_SECRET_SETTING = late_pattern(
    r"(?im)^\s*[\"']?[\w.-]*(?:token|secret|password|passwd|extraheader)[\"']?\s*[=:]\s*[^\s=:]"
    r"|://[^/\s\"'@]*:[^/\s\"'@]+@|://[^/\s\"'@:]{20,}@"
)


def find_private_files(folder: Path) -> list[Path]:
    """Return the private files and folders below a folder that its owner granted to commands.

    Looks three levels down, at 1,000 entries at most: stores of tokens lie near the top of what they belong
    to, and the folders of packages hold too many files to look at.
    """
    try:
        is_open = bool(os.stat(folder).st_mode & stat.S_IROTH)
    except OSError:
        return []
    is_cache = ".cache" in folder.parts  # pip keeps public packages in private folders
    paths: list[Path] = []
    waiting, room = [(str(folder), 1)], _MAX_ENTRIES
    for path, depth in waiting:  # grows: the upper folders come first
        for entry, mode in islice(_entries(path), room):
            room -= 1
            is_private = is_open and not mode & stat.S_IROTH
            if stat.S_ISREG(mode):
                if is_private or _TOKEN_STORE.fullmatch(entry.name.lower()):
                    paths.append(Path(entry.path))
            elif stat.S_ISDIR(mode):
                if is_private and not is_cache:
                    paths.append(Path(entry.path))
                elif depth < _MAX_DEPTH:
                    waiting.append((entry.path, depth + 1))
    return paths


def holds_secret(path: Path) -> bool:
    """Return whether a settings file has a token, a password, or an address with one."""
    try:
        return _SECRET_SETTING.search(read_regular_text(path, _MAX_BYTES)) is not None
    except OSError:
        return False


def _entries(folder: str) -> Iterator[tuple[os.DirEntry[str], int]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield entry, entry.stat(follow_symlinks=False).st_mode
