"""Run `walk.py` in a process of its own. After a search the next process is started, so that a later search
does not wait for an interpreter."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from whet.tools import walk

_WALK = "import sys; sys.path.append(sys.argv[1]); from whet.tools.walk import main; main()"
_PACKAGES = str(Path(walk.__file__).parents[2])
_CHUNK_BYTES = 1 << 16
_ERROR_BYTES = 4_000


class _WaitingProcess:
    """A process that waits for the arguments of its search, and the file of its error output."""

    def __init__(self) -> None:
        self.owner: int = os.getpid()
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        command = [sys.executable or "python3", "-I", "-S", "-W", "ignore", "-c", _WALK, _PACKAGES]
        pipe = subprocess.PIPE
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=self.errors
        )

    def close(self) -> bytes:
        """Wait for the end of the process and return its error output."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with self.errors:
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.errors.seek(0)
            return self.errors.read(_ERROR_BYTES)


_spare: list[_WaitingProcess] = []
"""The process for the next search; at most one."""
_starting = threading.Lock()


class WalkProcess:
    """One search. `run` blocks, so call it on a thread; any thread may call `kill`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: _WaitingProcess | None = None
        self._is_killed = False

    def run(self, arguments: Sequence[str], folder: Path, take: Callable[[bytes], bool]) -> bytes:
        """Search a folder with `arguments` of `walk.py`, and return the error output. `take` gets each piece
        of output, and returns False to stop the search. Raises OSError."""
        with self._lock:
            if self._is_killed:
                return b""
            running = self._running = _take_spare() or _WaitingProcess()
        process = running.process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(b"".join(os.fsencode(part) + b"\0" for part in (str(folder), *arguments)))
            process.stdin.close()
            while chunk := os.read(process.stdout.fileno(), _CHUNK_BYTES):
                if not take(chunk):
                    process.kill()
                    break
        except BrokenPipeError:
            pass  # it was killed
        finally:
            with self._lock:
                self._running = None
            errors = running.close()
        if not self._is_killed:
            _make_spare()
        return errors

    def kill(self) -> None:
        """End the search, if it still runs."""
        with self._lock:
            self._is_killed = True
            if self._running is not None:
                self._running.process.kill()


def _take_spare() -> _WaitingProcess | None:
    """Return the process that waits, unless it has ended or belongs to a process that this one was forked
    from."""
    try:
        spare = _spare.pop()
    except IndexError:
        return None
    return spare if spare.owner == os.getpid() and spare.process.poll() is None else None


def _make_spare() -> None:
    """Start the process of the next search, unless one waits or another thread is starting it."""
    if not _starting.acquire(blocking=False):
        return
    try:
        if not _spare:
            _spare.append(_WaitingProcess())
    finally:
        _starting.release()


@atexit.register
def _end_spare() -> None:
    if spare := _take_spare():
        spare.process.kill()
        spare.close()
