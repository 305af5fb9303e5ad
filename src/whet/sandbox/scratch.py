"""The private folders of one session's commands: /tmp, the home and shared memory.

They outlive a sandbox, so files in /tmp are still there if an opening gave the next command another
sandbox. `close` removes them; `remove_abandoned` removes those of killed programs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

_PREFIX = "whet-jail-"
_LOCK_GRACE_S = 60.0
_MAX_RELEASED = 16


class Scratch:
    """A private folder on disk, accessible to its owner only."""

    def __init__(self) -> None:
        from tempfile import mkdtemp  # noqa: PLC0415  4 ms, and for nothing where commands run unconfined

        self.root: Path = Path(mkdtemp(prefix=_PREFIX)).resolve()
        self._held: int | None = _lock(self.root)
        for folder in (self.tmp, self.home, self.memory, self.nothing):
            folder.mkdir(mode=0o700)
        self.tmp.chmod(0o1777)

    @property
    def tmp(self) -> Path:
        """The folder that is /tmp and /var/tmp inside."""
        return self.root / "tmp"

    @property
    def home(self) -> Path:
        """The folder that is the home inside."""
        return self.root / "home"

    @property
    def memory(self) -> Path:
        """The folder that is /dev/shm inside."""
        return self.root / "shm"

    @property
    def nothing(self) -> Path:
        """The empty folder that covers unavailable folders inside. It contains mount points at most."""
        return self.root / "none"

    def close(self) -> None:
        """Remove everything."""
        from shutil import rmtree  # noqa: PLC0415  as above

        rmtree(self.root, ignore_errors=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None


class SessionFolders:
    """The private folders of the sessions of one program.

    A released session keeps its folders for its next command, but of all released sessions only the newest
    16 do: each holds a descriptor, and a server has many sessions. Not thread-safe, except for `release`.
    """

    def __init__(self) -> None:
        self._scratches: dict[str, Scratch] = {}
        self._released: dict[str, None] = {}

    def find(self, session_id: str) -> Scratch | None:
        """Return a session's folders, or None if it has none."""
        return self._scratches.get(session_id)

    def get(self, session_id: str) -> Scratch:
        """Return a session's folders, creating them if necessary; the session is in use from now on."""
        self._released.pop(session_id, None)
        if session_id not in self._scratches:
            self._scratches[session_id] = Scratch()
        return self._scratches[session_id]

    def release(self, session_id: str) -> None:
        """Note that a session is no longer in memory."""
        self._released.pop(session_id, None)
        self._released[session_id] = None

    def remove_expired(self, busy_ids: Collection[str]) -> list[str]:
        """Remove the folders of the sessions that were released longest ago, except busy ones, and return
        these sessions."""
        released_ids = [session_id for session_id in [*self._released] if session_id in self._scratches]
        expired_ids = [name for name in released_ids[:-_MAX_RELEASED] if name not in busy_ids]
        for session_id in [*self._released]:
            if session_id in expired_ids or session_id not in self._scratches:
                self._released.pop(session_id, None)  # `release` may have taken it out in this moment
        for session_id in expired_ids:
            self._scratches.pop(session_id).close()
        return expired_ids

    def close(self) -> bool:
        """Remove all folders. Returns False if there were none."""
        had_folders = bool(self._scratches)
        for scratch in self._scratches.values():
            scratch.close()
        self._scratches.clear()
        self._released.clear()
        return had_folders


def remove_abandoned() -> None:
    """Remove the folders that killed programs of the same user left."""
    from shutil import rmtree  # noqa: PLC0415  as above
    from tempfile import gettempdir  # noqa: PLC0415  as above

    for folder, handle in _lock_abandoned(Path(gettempdir())):
        rmtree(folder, ignore_errors=True)
        os.close(handle)


def _lock(folder: Path) -> int | None:
    """Lock a folder while this process lives. Returns None if another process has it or locks are not
    supported."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _lock_abandoned(above: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders that no process has locked, and lock them. New folders are skipped, since they are
    locked a moment later."""
    with contextlib.suppress(OSError), os.scandir(above) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if not entry.name.startswith(_PREFIX):
                    continue
                status = entry.stat(follow_symlinks=False)
                is_old = status.st_mtime < time.time() - _LOCK_GRACE_S
                if (
                    is_old
                    and status.st_uid == os.geteuid()
                    and (handle := _lock(Path(entry.path))) is not None
                ):
                    yield Path(entry.path), handle
