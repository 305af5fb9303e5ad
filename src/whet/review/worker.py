"""Run review jobs: lease, fork, converse, and settle all saved changes in one transaction.

The same worker runs in a chat's process, in a separate one after a one-shot, and in `whet worker`. If it
is killed, the job is leased again and its child session continues; the saved changes become active exactly
once, together with the job's completion. This is one of the four modules that may catch everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Literal

import apsw
import msgspec

from whet.agent.interruption import finish_shielded
from whet.agent.loop import run_turn
from whet.clock import iso, local_time
from whet.config.schema import ReviewSettings
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    BudgetReached,
    ConfigError,
    ContextOverflow,
    ModelRefused,
    NotFound,
    QuotaExhausted,
    RateLimited,
    WhetError,
)
from whet.contract.events import ReviewFinished, show_nothing
from whet.contract.messages import Message
from whet.contract.protocols import Provider
from whet.log import mask
from whet.memory.service import LearningService
from whet.memory.transcript import load_transcript
from whet.review import wording
from whet.review.fork import DIGEST, Fork, ForkParts, open_fork
from whet.review.jobs import ReviewJob, read_review_job
from whet.review.judge import Checks, find_doubts
from whet.review.plain_lessons import find_plain_lessons
from whet.review.pointed_outcomes import PointedOutcomes, verify_answers
from whet.review.probes import run_probes
from whet.store import claims, jobs, reviews, sessions, turns
from whet.store.database import read_time
from whet.store.jobs import Job
from whet.store.leases import LEASE_S, LeaseLost, run_with_lease
from whet.store.ledger import LedgerRow
from whet.store.reviews import SHORT_TURNS

log: logging.Logger = logging.getLogger("whet.review")
KINDS = (reviews.KIND,)
_TRIES = 5
_LEASES = 40
_BACKOFF_S, _BACKOFF_BY, _BACKOFF_MOST_S = 30.0, 4.0, 14_400.0
_OPERATOR_BACKOFF_S, _OPERATOR_BACKOFF_BY = 600.0, 3.0


class _NothingToReview(WhetError):
    """There is nothing to review, or a review can't succeed."""


# Errors that another try can't fix.
_FINAL = (_NothingToReview, NotFound, ModelRefused, BadRequest)
# Errors that the operator has to fix first: tried again, but not soon.
_NEEDS_OPERATOR = (AuthRejected, QuotaExhausted, ConfigError)

Connect = Callable[[ReviewJob], tuple[Provider, bool]]
"""Returns a job's provider and whether it can read the conversation's prefix cache. Raises ConfigError."""


class ReviewWorker:
    """Runs the reviews of one home, one after the other.

    `service_of` returns a person's learning service ("" for the owner's), `tell` receives the result of
    each review, `checks` verify its changes before they are kept.
    """

    def __init__(
        self,
        parts: ForkParts,
        service_of: Callable[[str], LearningService],
        settings: ReviewSettings,
        connect: Connect,
        tell: Callable[[ReviewFinished], None],
        checks: Checks | None = None,
    ) -> None:
        self._parts = parts
        self._service_of = service_of
        self._settings = settings
        self._connect = connect
        self._tell = tell
        self._checks = checks or Checks()
        self._database = parts.database
        self._clock = parts.clock
        self._owner = claims.owner_name(self._clock.new_id())
        self._is_healed = False

    async def drain(self) -> list[ReviewFinished]:
        """Run every due job, including those that become due meanwhile."""
        done: list[ReviewFinished] = []
        while (finished := await self.run_one()) is not None:
            done.append(finished)
        return done

    async def run_one(self, job_id: str = "") -> ReviewFinished | None:
        """Run one due job, or the given one, as far as possible. Returns None if there is none or reviews are
        off.

        Raises CancelledError (the job is then free for the next worker) and StoreError; nothing else.
        """
        if self._settings.writes == "off":
            return None
        # write the files of reviews whose worker died between their completion and their files
        if not self._is_healed:
            await self._service_of("").apply()
            self._is_healed = True
        while (job := await self._lease(job_id)) is not None:
            stop = partial(self._release, job)
            try:
                finished = await run_with_lease(self._database, self._clock, job, self._run_job(job), stop)
            except LeaseLost:
                log.info("review %s was taken over by another worker", job.id)
                continue
            self._tell(finished)
            return finished
        return None

    async def _lease(self, job_id: str) -> Job | None:
        return await self._database.append(
            lambda db: jobs.lease(db, KINDS, self._owner, LEASE_S, self._clock, job_id)
        )

    async def _release(self, job: Job) -> None:
        await finish_shielded(self._database.append(lambda db: jobs.release(db, job)))

    async def _run_job(self, job: Job) -> ReviewFinished:
        """Run the job; every failure becomes one line and a next try, or the job's end."""
        review_job: ReviewJob | None = None
        try:
            review_job = read_review_job(job.payload)
            return await self._review(job, review_job)
        except LeaseLost:
            raise
        except BudgetReached as error:
            return await self._postpone(job, review_job, error)
        except WhetError as error:
            return await self._handle_failure(job, review_job, error)
        except Exception as error:
            log.exception("review %s crashed", job.id)
            return await self._handle_failure(job, review_job, WhetError(f"{type(error).__name__}: {error}"))

    async def _review(self, job: Job, review_job: ReviewJob) -> ReviewFinished:
        parent = await self._database.read(lambda db: sessions.get(db, review_job.session_id))
        if parent.private:
            raise _NothingToReview("the session is private by now, so it is not reviewed")
        if job.attempts > _LEASES:
            raise _NothingToReview(f"it was begun {job.attempts} times and never came to an end")
        provider, shares_prefix = self._connect(review_job)
        shares_prefix = shares_prefix and not review_job.excerpt_tokens
        async with aclosing(provider):
            fork = await open_fork(self._parts, job, review_job, provider, shares_prefix=shares_prefix)
            is_enough = await self._save_plain_lessons(fork, review_job)
            try:
                note = "" if is_enough else await self._converse(fork)
            except ContextOverflow:
                await self._database.append(lambda db: reviews.start_over(db, job.id, DIGEST))
                fork = await open_fork(self._parts, job, review_job, provider, shares_prefix=shares_prefix)
                note = await self._converse(fork)
        refused = await self._verify_changes(job, review_job, fork)
        pointed = await self._verify_outcomes(fork, review_job)
        return await self._settle(job, review_job, fork, (note, refused, pointed))

    async def _save_plain_lessons(self, fork: Fork, review_job: ReviewJob) -> bool:
        """Stage the lessons that need no model, and return whether the review needs none at all."""
        service = self._service_of(fork.profile)
        if not review_job.turns or "memory" not in review_job.kinds:
            return review_job.is_plain
        trusted = service.changes.trusted_tools
        transcript = await self._database.read(lambda db: load_transcript(db, review_job.session_id, trusted))
        saved_turns: set[int] = set()
        for turn in review_job.turns:
            is_corrected = turn in review_job.corrected_turns
            lessons = find_plain_lessons(transcript.sources, turn, is_corrected=is_corrected)
            for number, request in enumerate(lessons):
                origin = msgspec.structs.replace(fork.origin, tool_call_id=f"plain-{turn}-{number}")
                if (await service.submit(request, origin)).ok:
                    saved_turns.add(turn)
        is_settled = saved_turns.issuperset(review_job.turns)
        return review_job.is_plain or (review_job.plain_is_enough and is_settled)

    async def _verify_changes(self, job: Job, review_job: ReviewJob, fork: Fork) -> dict[int, str]:
        """Verify the facts behind the staged rows if that is safe, and let the judge read them if there is
        one. Returns the rejected rows with the reasons."""
        checks = self._checks
        if checks.look is not None and self._settings.probes:
            trusted, day = self._service_of(fork.profile).changes.trusted_tools, local_time(self._clock.now())
            confirmed = await asyncio.to_thread(
                run_probes, self._database, job.id, trusted, checks.look, day.date().isoformat()
            )
            log.info("review %s: %d facts were seen again", job.id, len(confirmed))
        try:
            judge = checks.judge(review_job) if checks.judge is not None else None
        except ConfigError as error:
            log.warning("review %s is not judged: %s", job.id, _line(error))
            return {}
        if judge is None:
            return {}
        async with aclosing(judge):
            return await find_doubts(self._parts, fork, job.id, judge, by_hand=review_job.is_by_hand)

    async def _verify_outcomes(self, fork: Fork, review_job: ReviewJob) -> PointedOutcomes:
        """Return the outcomes of calls that the review's answers point at, and that the sessions prove."""
        answers = [message.text for message in fork.session.log.messages if message.role == "assistant"]
        reviewed = {review_job.session_id: fork.last_turn, **dict.fromkeys(review_job.others, SHORT_TURNS)}
        trusted = self._service_of(fork.profile).changes.trusted_tools
        return await self._database.read(
            lambda db: verify_answers(db, answers, reviewed, fork.read_ids, trusted)
        )

    async def _converse(self, fork: Fork) -> str:
        """Run the review's conversation to its end and return a note on how it ended, empty if it ended well.

        If an earlier try has ended it, nothing is asked. Raises WhetError if it failed.
        """
        session = fork.session
        reason = await self._database.read(
            lambda db: turns.read_last_reason(db, sessions.key_of(db, session.id))
        )
        if reason == "budget":
            return f"it was stopped at its limit of {self._settings.max_steps} steps or its time"
        if reason == "answered":
            return ""
        if await session.log.claim_unfinished_turn() is not None:
            end = await run_turn(session, None, show_nothing)
        else:
            end = await run_turn(session, await self._next_message(fork), show_nothing)
        if end.reason in ("answered", "budget"):
            return end.error
        failure = fork.link.failure
        if isinstance(failure, BudgetReached) and session.log.session.usage.total_tokens:
            return failure.message  # the changes saved so far are paid for and stay valid
        raise failure or WhetError(end.error, hint=end.hint)

    async def _next_message(self, fork: Fork) -> Message:
        """Return the opening message, or the message to continue if a failed try had made progress."""
        log = fork.session.log
        if any(message.role == "assistant" for message in log.messages):
            return Message(role="user", content=wording.GO_ON)
        if log.messages:
            await log.undo_last_turn()
        return fork.opening

    async def _settle(
        self,
        job: Job,
        review_job: ReviewJob,
        fork: Fork,
        outcome: tuple[str, dict[int, str], PointedOutcomes],
    ) -> ReviewFinished:
        """Activate all saved changes together with the job's completion, then write the files. `outcome`: the
        note on its end, the rows that the judge rejects, and the outcomes of calls."""
        note, refused, pointed = outcome
        note = ", ".join(filter(None, (note, pointed.note)))
        now, child, service = iso(self._clock.now()), fork.session.id, self._service_of(fork.profile)

        def work(connection: apsw.Connection) -> tuple[list[LedgerRow], str]:
            if not jobs.complete(connection, job, self._clock):
                raise LeaseLost
            rows = service.settle(connection, job.id, refused)
            summary = wording.write_summary(rows)
            reviews.finish(connection, job.id, summary, note, now)
            pointed.store(connection)
            sessions.end_session(connection, child, "completed", now)
            return rows, summary

        rows, summary = await self._database.append(work)
        await service.apply(rows)
        saved_ids = tuple(row.id for row in rows if row.state in ("active", "inbox", "quarantined"))
        log.info("review %s: %s", job.id, summary or "nothing to save")
        return msgspec.structs.replace(
            _make_event(job, review_job, "saved" if saved_ids else "nothing", note),
            review_session_id=child,
            summary=summary,
            ledger_ids=saved_ids,
        )

    async def _postpone(self, job: Job, review_job: ReviewJob | None, error: BudgetReached) -> ReviewFinished:
        until = self._parts.budget.tomorrow()
        if not await self._database.append(lambda db: jobs.postpone(db, job, error.message, until)):
            raise LeaseLost
        return msgspec.structs.replace(_make_event(job, review_job, "waiting", _line(error)), until=until)

    async def _handle_failure(
        self, job: Job, review_job: ReviewJob | None, error: WhetError
    ) -> ReviewFinished:
        line = _line(error)

        def work(connection: apsw.Connection) -> str:
            failures = reviews.count_failure(connection, job.id, line)
            wait_s = None if review_job is None else retry_in_s(error, failures)
            if not jobs.fail(connection, job, line, self._clock, retry_in_s=wait_s):
                raise LeaseLost
            if wait_s is not None:
                return iso(read_time(connection, self._clock) + timedelta(seconds=wait_s))
            self._service_of("").discard(connection, job.id)
            return ""

        until = await self._database.append(work)
        log.warning("review %s failed, next try %s: %s", job.id, until or "never", line)
        state = "waiting" if until else "failed"
        return msgspec.structs.replace(_make_event(job, review_job, state, line), until=until)


def _make_event(
    job: Job, review_job: ReviewJob | None, state: Literal["saved", "nothing", "failed", "waiting"], note: str
) -> ReviewFinished:
    session_id = review_job.session_id if review_job else ""
    by_hand = review_job is not None and review_job.is_by_hand
    return ReviewFinished(job.id, session_id, "", state, note=note, by_hand=by_hand)


def retry_in_s(error: WhetError, failures: int) -> float | None:
    """Return the seconds until the next try after so many failures, or None for no more tries."""
    if isinstance(error, _FINAL) or failures >= _TRIES:
        return None
    first_s, by = _BACKOFF_S, _BACKOFF_BY
    if isinstance(error, _NEEDS_OPERATOR):
        first_s, by = _OPERATOR_BACKOFF_S, _OPERATOR_BACKOFF_BY
    wait_s = min(first_s * by ** (failures - 1), _BACKOFF_MOST_S)
    if isinstance(error, RateLimited) and error.retry_after_s:
        return max(wait_s, error.retry_after_s)
    return wait_s


def _line(error: WhetError) -> str:
    """Return an error as one line without secrets."""
    return mask(" ".join(error.message.split()))[:300]
