"""What tests share: clocks that stand still or jump, a port of one's own, limits for what is waited for."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Generic, NoReturn, TypeVar

import apsw
import pytest

from whet.store.database import StateDatabase
from whet.store.jobs import Job, JobState

T = TypeVar("T")


def each(
    names: str | Sequence[str], rows: Collection[Any]
) -> Callable[[Callable[..., Coroutine[Any, Any, None] | None]], Callable[[], None]]:
    """Run a test with each row of a table, like `parametrize`, but as one item: for rows that take less time
    than pytest does around each. All rows run; the first twenty failures are raised together."""
    keys = names.replace(",", " ").split() if isinstance(names, str) else names

    def decorate(test: Callable[..., Coroutine[Any, Any, None] | None]) -> Callable[[], None]:
        @functools.wraps(test)
        def test_rows() -> None:
            failures: list[BaseException] = []
            for row in rows:
                values = (row,) if len(keys) == 1 else row
                try:
                    work = test(**dict(zip(keys, values, strict=True)))
                    if work is not None:  # of a test that is a coroutine
                        asyncio.run(work)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below
                    error.add_note(f"in the row {row!r}"[:500])
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows failed", failures[:20])

        test_rows.__dict__["__signature__"] = inspect.Signature()
        return test_rows

    return decorate


@dataclass(frozen=True)
class InLoop(Generic[T]):
    """What a fixture gives for a test that is a coroutine, which has what is entered in its own loop."""

    manager: AbstractAsyncContextManager[T]


def output_of(process: subprocess.Popen[str]) -> IO[str]:
    """Give the standard output of a process that was started with a pipe for it."""
    assert process.stdout is not None
    return process.stdout


class FixedClock:
    """A clock that moves only when told to; ids are id00000000000001, id00000000000002, ..."""

    def __init__(self, ids_after: int = 0) -> None:
        self.moment = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
        self._count = ids_after

    def now(self) -> datetime:
        return self.moment

    def unix_ms(self) -> int:
        return int(self.moment.timestamp() * 1000)

    def monotonic_s(self) -> float:
        return self.moment.timestamp()

    def new_id(self) -> str:
        self._count += 1
        return f"id{self._count:014d}"

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def noon_zone() -> str:
    """Return the name of a time zone in which it is about noon, so that no day ends during a test."""
    return f"Etc/GMT{datetime.now(UTC).hour - 12:+d}"


_claims: list[socket.socket] = []
"""One UDP socket for each port that `quiet_port` returned: another process of the tests does not return it.
Linux has a second local address, so a test may use the port for UDP, too."""
atexit.register(lambda: [claim.close() for claim in _claims])
_CLAIMED_AT = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"


def quiet_port() -> int:
    """Return a port on which nobody listens. The system gives it to no connection, and this function returns
    it once among all processes of the tests."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((_CLAIMED_AT, port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port


def let_pass(seconds: float) -> None:
    """Move the running loop's clock on: every limit that ends by then ends in its next pass."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def beat(database: StateDatabase, seconds: float) -> None:
    """Let `seconds` pass for the running loop; on return, what was due has written and waits again."""
    for moved in (False, True):
        if moved:
            let_pass(seconds)
        for _ in range(20):
            await asyncio.sleep(0)
        await database.append(lambda _: None)  # after whatever was begun before it


async def cancel_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait for its end, which must be the cancellation."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def wait_for_cancel(stopped: list[str]) -> NoReturn:
    """Wait as a turn that never ends does, and add "turn" to `stopped` when it is cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        stopped.append("turn")
    raise AssertionError


def within(call: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """Give what `call` gives, or raise TimeoutError naming `what`: for calls without a limit of their own."""
    given: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            given.append(call())
        except BaseException as error:  # noqa: BLE001  raised again where it was asked for
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ended(thread, what, timeout_s)
    if failed:
        raise failed[0]
    return given[0]


def own_children() -> set[int]:
    """Return the processes that any thread of this one started. The kernel lists them by thread."""
    while True:
        lists = Path("/proc/self/task").glob("*/children")
        try:
            return {int(pid) for file in lists for pid in file.read_text().split()}
        except OSError:  # a thread has ended since, and its processes are in the list of another
            continue


def open_files() -> set[tuple[str, str]]:
    """Return the number and the target of each descriptor of this process. What an earlier test left open may
    be closed at any time, so a number of them says nothing: a test looks for those that it added."""
    files: set[tuple[str, str]] = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of this listing
            files.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return files


def ended(thread: threading.Thread, what: str, timeout_s: float = 30.0) -> None:
    """Wait for a thread's end; raise TimeoutError naming `what` when it does not come."""
    thread.join(timeout_s)
    if thread.is_alive():
        raise TimeoutError(f"waited {timeout_s:g} s in vain for {what}")


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait for something in another thread or process that has no event to wait on."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came"
        time.sleep(0.01)


def list_jobs(
    connection: apsw.Connection, *, kinds: Sequence[str] = (), state: JobState | None = None, limit: int = 50
) -> list[Job]:
    """Give the stored jobs, newest first, of these kinds and in this state."""
    rows = connection.execute(
        f"SELECT {', '.join(Job.__struct_fields__)} FROM jobs ORDER BY created DESC, id DESC"
    )
    jobs = [Job(*row) for row in rows]
    return [job for job in jobs if (not kinds or job.kind in kinds) and state in (None, job.state)][:limit]
