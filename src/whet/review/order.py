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
from whet.contract.texts import from_json
from whet.contract.tools import Tag, tags_of
from whet.store import jobs, reviews
from whet.store.database import time_of
from whet.store.jobs import NewJob, Queued

Kind = Literal["memory", "skill"]
KINDS: tuple[Kind, ...] = ("memory", "skill")
TAG_OF: dict[Kind, Tag] = {"memory": "notes", "skill": "skills"}
"""The tags of the tools that write the lessons of each kind of review."""


class Runtime(msgspec.Struct, frozen=True):
    """The model that answered the conversation: its settings, and the key of the pool that was in use."""

    model: ModelSettings
    key_name: str = ""


class Order(msgspec.Struct, frozen=True):
    """A review's task. `turn` is the turn that called for it, for `reasons`; it sees that and what has ended
    since. `context_tokens` is the size of that turn's last request; `others` are one-shots of the same folder
    that are reviewed with it. `is_cached`: the server keeps prompts in a cache; `is_excerpt`: an excerpt is
    read, since that is cheaper; `allowance`: how much the day's reviews may weigh even beyond their share."""

    session_id: str
    turn: int
    kinds: tuple[Kind, ...]
    reasons: tuple[str, ...]
    runtime: Runtime
    context_tokens: int
    focus: str = ""
    others: tuple[str, ...] = ()
    is_cached: bool = False
    is_excerpt: bool = False
    allowance: int = 0

    @property
    def is_by_hand(self) -> bool:
        """Whether a person requested it."""
        return "asked" in self.reasons


def read_order(payload: str) -> Order:
    """Parse a job's payload. Raises WhetError if another version wrote it in another format."""
    try:
        return from_json(payload, Order)
    except msgspec.DecodeError as error:
        raise WhetError(
            f"the review's order can't be read ({error})", hint="whet review run --session ID"
        ) from error


def kinds_for(tools: Collection[str]) -> tuple[Kind, ...]:
    """Return the kinds of reviews that a session with these tools can have."""
    tags = frozenset[str]().union(*map(tags_of, tools))
    return tuple(kind for kind in KINDS if TAG_OF[kind] in tags)


def put(connection: apsw.Connection, order: Order, conversation_id: str, clock: Clock) -> Queued:
    """Queue a review, or extend the one that waits for this conversation; it then sees the newer turn."""
    waiting_job = jobs.waiting(connection, reviews.KIND, conversation_id)
    if waiting_job is not None and (merged := _merged(waiting_job.payload, order)) is not None:
        at_once = iso(time_of(connection, clock)) if order.is_by_hand else waiting_job.run_after
        jobs.rewrite(connection, waiting_job, _text(merged), at_once)
        return Queued(waiting_job.id, merged.kinds)
    job = NewJob(reviews.KIND, _text(order), subject=conversation_id)
    job_id = jobs.enqueue(connection, job, clock)
    reviews.add(connection, job_id, order.session_id)
    return Queued(job_id, order.kinds)


def _merged(payload: str, new: Order) -> Order | None:
    """Return one job for both, or None if the old one is about another session or can't be read."""
    try:
        old = read_order(payload)
    except WhetError:
        return None
    if old.session_id != new.session_id:
        return None
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in (*old.kinds, *new.kinds))
    focus = "\n".join(dict.fromkeys(filter(None, (old.focus, new.focus))))
    return msgspec.structs.replace(
        new,
        kinds=kinds,
        reasons=tuple(dict.fromkeys((*old.reasons, *new.reasons))),
        focus=focus,
        turn=max(old.turn, new.turn),
        others=old.others or new.others,
        allowance=max(old.allowance, new.allowance),
    )


def _text(order: Order) -> str:
    return msgspec.json.encode(order).decode()
