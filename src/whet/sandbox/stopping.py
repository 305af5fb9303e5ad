"""Stop all processes below a launcher, and let them continue.

A launcher adopts orphans, so every process of its sandbox is below it, also after double forks. Signals are
sent from outside: a stopped process can't be resumed by another one that is stopped, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

_WITHIN_S, _PAUSE_S, _QUIET_LOOKS = 2.0, 0.001, 2


class JobStopper:
    """Stops and resumes what runs in one sandbox. `lock` is held while a command starts there, `launcher_pid`
    returns 0 if there is none and -1 if it can't be known, `end` ends the sandbox."""

    def __init__(
        self, lock: threading.Lock, launcher_pid: Callable[[], int], end: Callable[[], None]
    ) -> None:
        self._lock, self._launcher_pid, self._end = lock, launcher_pid, end
        self._count, self._is_stopped = 0, False
        self._stopped: dict[int, int] = {}
        self.starts: int = 0
        """How many commands have started here."""

    def begin(self) -> None:
        """Let everything continue, because a command starts. The caller holds the lock."""
        self.starts += 1
        self._continue()

    def stop(self) -> bool | None:
        """Stop everything until `resume` was called as often, or a command starts.

        Processes that don't stop are ended. Returns whether anything ran, or None if nothing can be stopped
        here.
        """
        with self._lock:
            self._count += 1
            if self._is_stopped:
                return True
            has_run = self._stop_all()
            self._is_stopped = bool(has_run)
            return has_run

    def resume(self) -> None:
        """Let everything continue, unless another `stop` holds it."""
        with self._lock:
            self._count -= 1
            if not self._count:
                self._continue()

    def _continue(self) -> None:
        if self._is_stopped:
            self._is_stopped = False
            self._resume_all()

    def _stop_all(self) -> bool | None:
        if (pid := self._launcher_pid()) <= 0:
            return None if pid else False
        stopped = stop_processes(pid)
        if stopped is None:
            self._end()
        self._stopped = stopped or {}
        return stopped is None or bool(stopped)

    def _resume_all(self) -> None:
        resume_processes(self._stopped)
        self._stopped = {}


class _State(NamedTuple):
    """The kernel's letter for a process's state, and its start time, which tells it from a later one with the
    same number."""

    letter: str
    started: int


def stop_processes(launcher_pid: int) -> dict[int, int] | None:
    """Stop every process below the launcher. Returns the start times of those that ran, by their numbers, or
    None if some don't stop in time.

    A process that is forking may add a child after a look, so only repeated looks without a new process end
    this.
    """
    stopped: dict[int, int] = {}
    deadline, quiet_looks, pause = time.monotonic() + _WITHIN_S, 0, threading.Event()
    while quiet_looks < _QUIET_LOOKS:
        if time.monotonic() > deadline or children_of(launcher_pid) is None:
            resume_processes(stopped)
            return None
        running = [pid for pid in _iter_descendants(launcher_pid) if _stop(pid, stopped)]
        quiet_looks = 0 if running else quiet_looks + 1
        if running:
            pause.wait(_PAUSE_S)
    return stopped


def resume_processes(stopped: Mapping[int, int]) -> None:
    """Let processes continue, the last ones first, so that no parent sees a child that is stopped."""
    for pid, started in reversed(list(stopped.items())):
        if (state := _state_of(pid)) is not None and state.started == started:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)


def children_of(pid: int) -> set[int] | None:
    """Return the numbers of a process's children, or None if the kernel does not say."""
    children: set[int] = set()
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children.update(map(int, file.read().split()))
    except OSError:
        return None
    return children


def _iter_descendants(pid: int) -> Iterator[int]:
    parents = [pid]
    while parents:
        children = sorted(children_of(parents.pop()) or ())
        yield from children
        parents += children


def _stop(pid: int, stopped: dict[int, int]) -> bool:
    """Stop a process. Returns whether it may still run something, or have a new child."""
    state = _state_of(pid)
    if state is None or state.letter in "TtX":
        return False
    if stopped.get(pid) == state.started:
        return state.letter in "RS"  # others can't run before they have seen the signal
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        stopped[pid] = state.started
    return True


def _state_of(pid: int) -> _State | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return _State(fields[0].decode(), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None
