"""Durable work for later: reviews and the like survive the process that asked for them.

A worker leases a job for a while and renews the lease; a lease that ran out is another worker's to take.
Every function takes a connection inside a transaction. What a job means is its kind's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import apsw
import msgspec

from whet.clock import Clock, iso

JobState: TypeAlias = Literal["waiting", "running", "done", "failed"]


class NewJob(msgspec.Struct, frozen=True):
    """A job to enqueue: `payload` is JSON text, `run_after` an ISO time or empty for at once."""

    kind: str
    payload: str
    run_after: str = ""


class Job(msgspec.Struct, frozen=True):
    """A stored job; `attempts` counts its leases."""

    id: str
    kind: str
    payload: str
    state: JobState
    created: str
    run_after: str
    attempts: int
    owner: str
    lease_until: str
    finished: str
    error: str


_COLUMNS = "id, kind, payload, state, created, run_after, attempts, owner, lease_until, finished, error"


def enqueue(connection: apsw.Connection, job: NewJob, clock: Clock) -> str:
    """Store a job and give its id."""
    return insert(connection, clock.new_id(), job, iso(clock.now()))


def insert(connection: apsw.Connection, job_id: str, job: NewJob, now: str) -> str:
    """Store a job under an id that was made before."""
    connection.execute(
        "INSERT INTO jobs (id, kind, payload, state, created, run_after) VALUES (?, ?, ?, 'waiting', ?, ?)",
        (job_id, job.kind, job.payload, now, job.run_after or now),
    )
    return job_id


def lease(
    connection: apsw.Connection, kinds: Sequence[str], owner: str, lease_s: float, clock: Clock
) -> Job | None:
    """Take the oldest job of these kinds that is due, or whose worker stopped renewing; None without one."""
    now = clock.now()
    marks = ", ".join("?" * len(kinds))
    row = connection.execute(
        f"SELECT id FROM jobs WHERE kind IN ({marks}) AND state <> 'done' AND state <> 'failed'"
        " AND run_after <= ? AND (state = 'waiting' OR lease_until <= ?) ORDER BY run_after, id LIMIT 1",
        (*kinds, iso(now), iso(now)),
    ).fetchone()
    if row is None:
        return None
    until = iso(now + timedelta(seconds=lease_s))
    connection.execute(
        "UPDATE jobs SET state = 'running', owner = ?, lease_until = ?, attempts = attempts + 1 WHERE id = ?",
        (owner, until, row[0]),
    )
    return get(connection, row[0])


def get(connection: apsw.Connection, job_id: str) -> Job | None:
    """Give a job, None where there is none."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else Job(*row)


def heartbeat(connection: apsw.Connection, job: Job, lease_s: float, clock: Clock) -> bool:
    """Renew the lease; False where another worker has taken the job, and this one must stop."""
    until = iso(clock.now() + timedelta(seconds=lease_s))
    return _change(connection, job, "lease_until = ?", (until,))


def complete(connection: apsw.Connection, job: Job, clock: Clock) -> bool:
    """Mark the job done; False where another worker has taken it, and nothing was changed."""
    return _change(connection, job, "state = 'done', error = '', finished = ?", (iso(clock.now()),))


def fail(
    connection: apsw.Connection, job: Job, error: str, clock: Clock, *, retry_in_s: float | None
) -> bool:
    """Put the job back to run in `retry_in_s` seconds, or give it up (None); False as in `complete`."""
    now = clock.now()
    if retry_in_s is None:
        return _change(connection, job, "state = 'failed', error = ?, finished = ?", (error, iso(now)))
    later = iso(now + timedelta(seconds=retry_in_s))
    change = "state = 'waiting', error = ?, run_after = ?, owner = '', lease_until = ''"
    return _change(connection, job, change, (error, later))


def list_jobs(
    connection: apsw.Connection, *, kinds: Sequence[str] = (), state: JobState | None = None, limit: int = 50
) -> list[Job]:
    """Give jobs, newest first."""
    where, values = ["1"], list[Any]()
    if kinds:
        where.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values += kinds
    if state:
        where.append("state = ?")
        values.append(state)
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?",
        (*values, limit),
    )
    return [Job(*row) for row in rows]


def _change(connection: apsw.Connection, job: Job, change: str, values: tuple[Any, ...]) -> bool:
    connection.execute(
        f"UPDATE jobs SET {change} WHERE id = ? AND state = 'running' AND owner = ? AND attempts = ?",
        (*values, job.id, job.owner, job.attempts),
    )
    return connection.changes() == 1
