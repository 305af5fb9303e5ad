"""The private folders of one session's commands: /tmp, the home and shared memory as they see them.

They outlive a jail, so that what a command left in /tmp is there for the next one although an opening gave it
another jail in between. Removed by `close`; those of programs that were killed by `remove_abandoned`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "whet-jail-"
_LOCKED_BY_S = 60.0


class Scratch:
    """A folder of its own on disk, for its owner only."""

    def __init__(self) -> None:
        from tempfile import mkdtemp  # noqa: PLC0415  4 ms, and for nothing where commands run unconfined

        self.root: Path = Path(mkdtemp(prefix=_PREFIX)).resolve()
        self._held: int | None = _lock(self.root)
        for folder in (self.tmp, self.home, self.memory, self.nothing):
            folder.mkdir(mode=0o700)
        self.tmp.chmod(0o1777)

    @property
    def tmp(self) -> Path:
        """What is /tmp and /var/tmp inside."""
        return self.root / "tmp"

    @property
    def home(self) -> Path:
        """What is the home inside."""
        return self.root / "home"

    @property
    def memory(self) -> Path:
        """What is /dev/shm inside."""
        return self.root / "shm"

    @property
    def nothing(self) -> Path:
        """What stands in place of folders that are not there inside; it holds mount points at most."""
        return self.root / "none"

    def close(self) -> None:
        """Remove everything."""
        from shutil import rmtree  # noqa: PLC0415  as above

        rmtree(self.root, ignore_errors=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None


def remove_abandoned() -> None:
    """Remove the folders that killed programs of the same user left."""
    from shutil import rmtree  # noqa: PLC0415  as above
    from tempfile import gettempdir  # noqa: PLC0415  as above

    for folder, held in _abandoned(Path(gettempdir())):
        rmtree(folder, ignore_errors=True)
        os.close(held)


def _lock(folder: Path) -> int | None:
    """Hold a folder while this process lives; None where another holds it or nothing can be locked."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def _abandoned(above: Path) -> Iterator[tuple[Path, int]]:
    """Give the folders that nobody holds, locked; a new one is not held yet for a moment."""
    with contextlib.suppress(OSError), os.scandir(above) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                if not entry.name.startswith(_PREFIX):
                    continue
                status = entry.stat(follow_symlinks=False)
                is_old = status.st_mtime < time.time() - _LOCKED_BY_S
                if is_old and status.st_uid == os.geteuid() and (held := _lock(Path(entry.path))) is not None:
                    yield Path(entry.path), held
