"""Ignore files that are not regular files: ripgrep waits for a named pipe, and reads a device without an end.

A look for such files takes as long as a search. So the search begins at once, and the look only if ripgrep
still runs after a second. If there is such a file, ripgrep is ended. Its memory is limited.
"""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import sys
from contextlib import suppress
from pathlib import Path

_NAMES = (".gitignore", ".ignore", ".rgignore")
_WAIT_S = 1.0
_MAX_ENTRIES = 500_000
_MEMORY_BYTES = 2_000_000_000


def limit_memory(pid: int) -> None:
    """Limit the memory of a process, on Linux."""
    if sys.platform == "linux":
        with suppress(OSError):  # it has ended
            resource.prlimit(pid, resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))


async def wait_for_pipe(folder: Path) -> None:
    """Wait until a search below a folder may hang: forever if all ignore files there are regular files."""
    await asyncio.sleep(_WAIT_S)
    if not await asyncio.to_thread(_has_special, str(folder)):
        await asyncio.Event().wait()  # never set: the caller cancels this when ripgrep ends


def _has_special(folder: str) -> bool:
    """Return whether an ignore file in a folder, below it or above it is not a regular file."""
    if any(
        _is_special(os.path.join(above, name)) for above in (folder, *Path(folder).parents) for name in _NAMES
    ):
        return True
    folders, count = [folder], 0
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > _MAX_ENTRIES:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name in _NAMES and _is_special(entry.path):
                    return True
    return False


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
