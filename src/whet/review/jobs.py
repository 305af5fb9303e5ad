"""The payload of a review job: which session, since which turn, what for, and who asked.

It is written in the turn's end transaction and read by whichever process runs the job. It holds no key,
only the name of the variable that holds the key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.config.schema import ModelSettings
from whet.contract.errors import WhetError
from whet.contract.texts import from_json, to_json
from whet.contract.tools import Tag, tags_of
from whet.store import jobs, reviews
from whet.store.database import read_time
from whet.store.jobs import NewJob, QueuedJob

Kind = Literal["memory", "skill"]
KINDS: tuple[Kind, ...] = ("memory", "skill")
TAG_OF: dict[Kind, Tag] = {"memory": "notes", "skill": "skills"}
"""The tags of the tools that write the lessons of each kind of review."""


class Runtime(msgspec.Struct, frozen=True):
    """The model that answered the conversation: its settings, and the key of the pool that was in use."""

    model: ModelSettings
    key_name: str = ""


class ReviewJob(msgspec.Struct, frozen=True):
    """A review's task. `turn` is the turn that called for it, for `reasons`; it sees that and what has ended
    since. `context_tokens` is the size of that turn's last request; `others` are one-shots of the same folder
    that are reviewed with it. `is_cached`: the server keeps prompts in a cache; `is_brief`: it ends when its
    writes were taken, and if `excerpt_tokens` is not 0, it reads an excerpt of at most that size, since more
    costs too much; `allowance`: how much the day's reviews may weigh even beyond their share;
    `is_plain`: only lessons that need no model are looked for; `turns`: the turns that may hold some,
    `corrected_turns`: those of them whose message corrected the turn before;
    `plain_is_enough`: if each of them does, no model is asked."""

    session_id: str
    turn: int
    kinds: tuple[Kind, ...]
    reasons: tuple[str, ...]
    runtime: Runtime
    context_tokens: int
    focus: str = ""
    others: tuple[str, ...] = ()
    is_cached: bool = False
    is_brief: bool = False
    excerpt_tokens: int = 0
    allowance: int = 0
    is_plain: bool = False
    turns: tuple[int, ...] = ()
    corrected_turns: tuple[int, ...] = ()
    plain_is_enough: bool = False

    @property
    def is_by_hand(self) -> bool:
        """Whether a person requested it."""
        return "asked" in self.reasons


def read_review_job(payload: str) -> ReviewJob:
    """Parse a job's payload. Raises WhetError if another version wrote it in another format."""
    try:
        return from_json(payload, ReviewJob)
    except msgspec.DecodeError as error:
        raise WhetError(
            f"the review's order can't be read ({error})", hint="whet review run --session ID"
        ) from error


def reviewable_kinds(tools: Collection[str]) -> tuple[Kind, ...]:
    """Return the kinds of reviews that a session with these tools can have."""
    tags = frozenset[str]().union(*map(tags_of, tools))
    return tuple(kind for kind in KINDS if TAG_OF[kind] in tags)


def queue_review(
    connection: apsw.Connection, review_job: ReviewJob, conversation_id: str, clock: Clock
) -> QueuedJob:
    """Queue a review, or extend the one that waits for this conversation; it then sees the newer turn."""
    waiting_job = jobs.find_waiting(connection, reviews.KIND, conversation_id)
    if waiting_job is not None and (merged := _merge_jobs(waiting_job.payload, review_job)) is not None:
        at_once = iso(read_time(connection, clock)) if review_job.is_by_hand else waiting_job.run_after
        jobs.rewrite(connection, waiting_job, to_json(merged), at_once)
        return QueuedJob(waiting_job.id, merged.kinds)
    job = NewJob(reviews.KIND, to_json(review_job), subject=conversation_id)
    job_id = jobs.enqueue(connection, job, clock)
    reviews.add(connection, job_id, review_job.session_id)
    return QueuedJob(job_id, review_job.kinds)


def _merge_jobs(payload: str, new: ReviewJob) -> ReviewJob | None:
    """Return one job for both, or None if the old one is about another session or can't be read."""
    try:
        old = read_review_job(payload)
    except WhetError:
        return None
    if old.session_id != new.session_id:
        return None
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in (*old.kinds, *new.kinds))
    model_job = old if new.is_plain else new  # a plain one forecasts no request
    focus = "\n".join(dict.fromkeys(filter(None, (old.focus, new.focus))))
    return msgspec.structs.replace(
        new,
        kinds=kinds,
        reasons=tuple(dict.fromkeys((*old.reasons, *new.reasons))),
        focus=focus,
        turn=max(old.turn, new.turn),
        others=old.others or new.others,
        is_cached=model_job.is_cached,
        is_brief=model_job.is_brief,
        excerpt_tokens=model_job.excerpt_tokens,
        allowance=max(old.allowance, new.allowance),
        is_plain=old.is_plain and new.is_plain,
        turns=tuple(dict.fromkeys((*old.turns, *new.turns))),
        corrected_turns=tuple(dict.fromkeys((*old.corrected_turns, *new.corrected_turns))),
        plain_is_enough=all(job.is_plain or job.plain_is_enough for job in (old, new)),
    )
