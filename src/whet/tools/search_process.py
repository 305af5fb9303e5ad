"""Run searches in processes: ripgrep, or `walk.py` in a process that is kept for later searches.

A thread waits for the process. It costs the event loop less than a transport and two tasks for each pipe.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from whet.tools import walk
from whet.tools.ignore_files import limit_memory

Take = Callable[[bytes], bool]
"""Gets each piece of output, and returns False to stop the search."""
_WALK = "import sys; sys.path.append(sys.argv[1]); from whet.tools.walk import main; main()"
_PACKAGES = str(Path(walk.__file__).parents[2])
_CHUNK_BYTES = 1 << 16
_ERROR_BYTES = 4_000
_QUICK_S, _SLOW_S = 0.025, 0.05
_MAX_FOLDERS = 1_000


class SearchProcess:
    """One search. `run` blocks, so call it on a thread; any thread may call `kill`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self._returncode: int | None = None

    @property
    def was_aborted(self) -> bool:
        """Whether the process ended because it used too much memory."""
        return self._returncode == -signal.SIGABRT

    def kill(self) -> None:
        """End the search, if it still runs."""
        with self._lock:
            self._is_killed = True
            if self._running is not None:
                self._running.kill()

    def _begin(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes] | None:
        """Start a process, or take one that waits; None if the search was killed before."""
        with self._lock:
            self._running = None if self._is_killed else start()
            return self._running

    def _end(self) -> bool:
        """Return whether the process may serve others: nobody kills it after this."""
        with self._lock:
            self._running = None
            return not self._is_killed


_is_small: dict[Path, bool] = {}
"""Whether ripgrep needs only one thread in a folder; its others start later than it ends in a small one. True
after a quick search with all threads, False after a slow one with one thread."""


class RipgrepProcess(SearchProcess):
    """A search by ripgrep."""

    def run(self, arguments: Sequence[str], folder: Path, take: Take) -> bytes:
        """Run ripgrep in a folder until it ends or `take` stops it. Returns its errors. Raises OSError."""
        is_small = _is_small.get(folder, False)
        began_s = time.perf_counter()
        errors = self._run([*arguments[:1], "-j1", *arguments[1:]] if is_small else arguments, folder, take)
        took_s = time.perf_counter() - began_s
        if is_small and took_s > _SLOW_S:
            _is_small[folder] = False
        elif took_s < _QUICK_S and len(_is_small) < _MAX_FOLDERS:
            _is_small.setdefault(folder, True)
        return errors

    def _run(self, arguments: Sequence[str], folder: Path, take: Take) -> bytes:
        with tempfile.TemporaryFile() as errors:
            process = self._begin(
                lambda: subprocess.Popen(
                    arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=folder
                )
            )
            if process is None:
                return b""
            assert process.stdout is not None
            with process.stdout as output:
                limit_memory(process.pid)
                while chunk := os.read(output.fileno(), _CHUNK_BYTES):
                    if not take(chunk):
                        process.kill()
                        break
                self._returncode = process.wait()
            self._end()
            errors.seek(0)
            return errors.read(_ERROR_BYTES)


class _WaitingProcess:
    """A process of `walk.py` that waits for a search, and the file of its error output."""

    def __init__(self) -> None:
        self.owner: int = os.getpid()
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        command = [sys.executable or "python3", "-I", "-S", "-W", "ignore", "-c", _WALK, _PACKAGES]
        pipe = subprocess.PIPE
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.errors
        )

    def ask(self, arguments: Sequence[str], take: Take) -> bytes | None:
        """Send a search and pass its output on. Returns its errors, or None if the process ended before."""
        assert self.process.stdin is not None
        request = b"".join(os.fsencode(part) + b"\0" for part in arguments)
        with suppress(BrokenPipeError):  # it was killed
            self.process.stdin.write(len(request).to_bytes(walk.SIZE_BYTES) + request)
            self.process.stdin.flush()
        while part := self._read_part():
            if not take(part):
                return None
        return None if part is None else self._read_part()

    def _read_part(self) -> bytes | None:
        assert self.process.stdout is not None
        size = self.process.stdout.read(walk.SIZE_BYTES)
        if len(size) < walk.SIZE_BYTES:
            return None
        part = self.process.stdout.read(int.from_bytes(size))
        return part if len(part) == int.from_bytes(size) else None

    def close(self) -> bytes:
        """End the process and return its error output."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        with self.errors:
            self.process.wait()
            with suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.stdout.close()
            self.errors.seek(0)
            return self.errors.read(_ERROR_BYTES)


_spare: list[_WaitingProcess] = []
"""The process for the next search; at most one."""
_kept_lock = threading.Lock()


class WalkProcess(SearchProcess):
    """A search by `walk.py`."""

    def run(self, arguments: Sequence[str], folder: Path, take: Take) -> bytes:
        """Search a folder with `arguments` of `walk.py`, and return the error output. Raises OSError."""
        waiting = _take_spare() or _WaitingProcess()
        errors = None
        try:
            if self._begin(lambda: waiting.process) is None:
                errors = b""
            else:
                errors = waiting.ask([str(folder), *arguments], take)
        finally:
            is_kept = self._end() and errors is not None and _keep(waiting)
            complaint = b"" if is_kept else waiting.close()
        return complaint if errors is None else errors


def _take_spare() -> _WaitingProcess | None:
    """Return the process that waits, unless it has ended or belongs to a process that this one was forked
    from."""
    try:
        spare = _spare.pop()
    except IndexError:
        return None
    if spare.owner != os.getpid():
        return None
    if spare.process.poll() is not None:
        spare.close()
        return None
    return spare


def _keep(waiting: _WaitingProcess) -> bool:
    """Keep a process for the next search, unless another waits or is being kept by another thread."""
    if not _kept_lock.acquire(blocking=False):
        return False
    try:
        if is_first := not _spare:
            _spare.append(waiting)
        return is_first
    finally:
        _kept_lock.release()


@atexit.register
def _end_spare() -> None:
    if spare := _take_spare():
        spare.close()
