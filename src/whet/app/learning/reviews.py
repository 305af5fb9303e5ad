"""Reviews in a running program: run the worker here, or leave jobs to a detached one.

The worker is imported when it runs a job, because a one-shot only queues jobs. A process that ends while jobs
are due starts `whet worker` for them, detached from its terminal. This module does not know the contents of a
review.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

import apsw
import msgspec

from whet.app.learning.services import LearningServices
from whet.app.model_links.models import Dialer
from whet.approval.gate import GrantStore
from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import ReviewSettings, Settings
from whet.contract.errors import ConfigError, NotFound, StoreError
from whet.contract.events import ReviewFinished
from whet.contract.texts import from_json
from whet.lanes import ToolPool
from whet.log import start_logging
from whet.review.jobs import KINDS, Kind, ReviewJob, Runtime, queue_review, reviewable_kinds
from whet.store import jobs, reviews, sessions, turns
from whet.store.database import StateDatabase
from whet.store.jobs import QueuedJob
from whet.tools.registry import read_specs

if TYPE_CHECKING:
    from whet.memory.service import LearningService
    from whet.review.worker import ReviewWorker

log: logging.Logger = logging.getLogger("whet.review")
_JOBS = (reviews.KIND,)
# Wait until the prompt is drawn before a review takes any of the process's time.
_PAUSE_S = 0.25
_MAX_WAIT_S = 300.0
PATIENCE_S = 150.0
WORKER_ARGUMENTS = ("worker", "--drain", "--patience", f"{PATIENCE_S:g}")
"""The arguments of `whet` for a detached worker."""


class ReviewParts(msgspec.Struct, frozen=True):
    """The parts of the running program that reviews need."""

    home: Home
    settings: Settings
    database: StateDatabase
    clock: Clock
    learning: LearningServices
    grants: GrantStore
    pool: ToolPool
    dialer: Dialer


WorkerFactory = Callable[[ReviewParts, Callable[[ReviewFinished], None]], "ReviewWorker"]
"""Creates a worker from the parts of a process; the worker reports each finished review to the function."""


class ReviewRunner:
    """The reviews of one process. `listeners` receive the result of each review that it runs.

    `create_worker` creates the worker at the first job.
    """

    def __init__(self, parts: ReviewParts, create_worker: WorkerFactory) -> None:
        self._parts = parts
        self._create_worker = create_worker
        self.settings: ReviewSettings = parts.settings.review
        self.listeners: list[Callable[[ReviewFinished], None]] = []
        self._worker: ReviewWorker | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def database(self) -> StateDatabase:
        """The store of the reviewed sessions."""
        return self._parts.database

    @property
    def learning(self) -> LearningService:
        """The learning service of the owner."""
        return self._parts.learning.owner_service

    async def queue_review(self, session_id: str, focus: str = "", kinds: Sequence[Kind] = ()) -> QueuedJob:
        """Queue a review of a session by hand, up to its last finished turn; durable on return.

        Raises ConfigError if reviews are off or the session can't be reviewed, NotFound if there is nothing
        to review.
        """
        parts = self._parts
        if self.settings.writes == "off":
            raise ConfigError("reviews are off", hint="whet config set review.writes auto")
        return await parts.database.append(lambda db: _queue_review(db, parts, session_id, focus, kinds))

    async def drain(self, patience_s: float = 0.0) -> list[ReviewFinished]:
        """Run every due job now; wait at most `patience_s` for jobs that are due soon. Returns the finished
        reviews."""
        clock = self._parts.clock
        until_s = clock.monotonic_s() + patience_s
        finished = await self._get_worker().drain()
        while (wait_s := await self._until_due_s()) is not None and clock.monotonic_s() + wait_s <= until_s:
            await asyncio.sleep(wait_s)
            finished += await self._get_worker().drain()
        return finished

    async def run(self, job_id: str) -> ReviewFinished | None:
        """Run one job now. Returns None if another process works on it or on its conversation."""
        return await self._get_worker().run_one(job_id)

    def start(self) -> None:
        """Run reviews in the background of this process from now on, unless review.worker is off."""
        if self.settings.worker == "auto" and self.settings.writes != "off" and self._task is None:
            self._wake.set()
            self._task = asyncio.create_task(self.serve())

    def wake(self) -> None:
        """Wake the worker because there may be a job."""
        self._wake.set()

    async def serve(self) -> None:
        """Run jobs as they become due, until cancelled. If the store fails, try again later."""
        while True:
            wait_s = _MAX_WAIT_S
            try:
                if await self._parts.database.read(lambda db: jobs.is_due(db, _JOBS, self._parts.clock)):
                    await self.drain()
                due_s = await self._until_due_s()
                wait_s = _MAX_WAIT_S if due_s is None else min(due_s, _MAX_WAIT_S)
            except StoreError as error:
                log.warning("reviews wait: %s", error.message)
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            await asyncio.sleep(_PAUSE_S)

    async def aclose(self) -> None:
        """Stop. A review that was running is continued by the next worker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def stop_and_hand_over(self, start_worker: Callable[[Home], object] | None = None) -> None:
        """Stop, and start a detached worker if jobs are due, with `start_worker` if it is given. Never
        raises."""
        await self.aclose()
        parts = self._parts
        if self.settings.worker != "auto" or self.settings.writes == "off":
            return
        try:
            if parts.database.read_now(lambda db: jobs.is_due(db, _JOBS, parts.clock)):
                (start_worker or start_detached_worker)(parts.home)
        except (OSError, StoreError) as error:
            log.warning("no worker could be started (%s); the queued jobs wait for the next one", error)

    def _get_worker(self) -> ReviewWorker:
        """Return the worker, which the first call creates."""
        if self._worker is None:
            # Without a log file, errors would be printed to the terminal of a chat.
            if not logging.getLogger("whet").handlers:
                start_logging(self._parts.home.logs)
            self._worker = self._create_worker(self._parts, self._notify_listeners)
        return self._worker

    def _notify_listeners(self, finished: ReviewFinished) -> None:
        for listener in self.listeners:
            listener(finished)

    async def _until_due_s(self) -> float | None:
        """Return the seconds until the next waiting job is due, at least one; None if no job waits."""
        left_s = await self._parts.database.read(
            lambda db: jobs.seconds_until_due(db, _JOBS, self._parts.clock)
        )
        return None if left_s is None else max(left_s, 1.0)


def _queue_review(
    connection: apsw.Connection, parts: ReviewParts, session_id: str, focus: str, chosen_kinds: Sequence[Kind]
) -> QueuedJob:
    session = sessions.get(connection, session_id)
    if session.private:
        raise ConfigError(
            "a private session is never reviewed", hint="whet sessions private ID --off shows it again"
        )
    if session.kind != "chat":
        raise ConfigError(f"a session of kind {session.kind} is not reviewed", hint="name a chat's id")
    key = sessions.key_of(connection, session_id)
    turn = turns.find_last_turn(connection, key)
    if not turn:
        raise NotFound("nothing was finished in this session yet", hint="say something first")
    tools_json = sessions.read_prefix(connection, session_id)[1]
    if not tools_json:
        raise ConfigError(
            "this session was imported and has no turn of its own yet",
            hint="whet chat --session ID continues it; then it can be reviewed",
        )
    offered = {spec.name for spec in read_specs(tools_json.encode())}
    able = reviewable_kinds(offered)
    kinds: tuple[Kind, ...] = tuple(
        kind for kind in KINDS if kind in able and (not chosen_kinds or kind in chosen_kinds)
    )
    if not kinds:
        raise ConfigError(
            "this session was begun without the tools that a review writes with",
            hint="tools.toolsets: memory, skills",
        )
    before = reviews.get_counters(connection, session.conversation_id)
    facts = reviews.read_turn(connection, key, turn)
    if before.runtime:
        runtime = from_json(before.runtime, Runtime)
    else:
        model = parts.settings.model
        runtime = Runtime(msgspec.structs.replace(model, provider=session.provider, model=session.model))
    review_job = ReviewJob(session_id, turn, kinds, ("asked",), runtime, facts.context_tokens, focus)
    return queue_review(connection, review_job, session.conversation_id, parts.clock)


def start_detached_worker(home: Home) -> None:
    """Start `whet worker` for a home."""
    start_detached(home, WORKER_ARGUMENTS)


def start_detached(home: Home, arguments: Sequence[str]) -> None:
    """Start `whet` for a home, detached from this process and its terminal; it logs to the worker's file.
    Raises OSError."""
    environ = {**os.environ, "WHET_HOME": str(home.root)}
    environ.pop("WHET_PROFILE", None)
    with open_worker_log(home) as output:
        subprocess.Popen(
            [sys.executable, "-m", "whet", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=home.root,
            env=environ,
            start_new_session=True,
        )


def open_worker_log(home: Home) -> BinaryIO:
    """Open the file that a detached worker writes its output to."""
    home.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    return (home.logs / "worker.log").open("ab")
