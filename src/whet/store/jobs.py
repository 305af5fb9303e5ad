"""Queue durable jobs, such as reviews, which survive the process that queued them.

A worker leases a job for a while and renews the lease. When the lease has run out, another worker may take
the job; in the home's own file also when the worker is known to be dead. Of the jobs of one kind and subject,
one runs at a time. Only the workers of a kind know what its jobs mean.

Every function takes a connection inside a transaction. All times come from one clock, in a team from the
database's (`read_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.store import claims
from whet.store.database import is_team, read_time

JobState: TypeAlias = Literal["waiting", "running", "done", "failed"]


class NewJob(msgspec.Struct, frozen=True):
    """A job to enqueue. `payload` is JSON text, `run_after` an ISO time or empty for at once.

    Jobs of one kind with the same `subject` never run at the same time; an empty one sets no such limit.
    """

    kind: str
    payload: str
    run_after: str = ""
    subject: str = ""


class QueuedJob(msgspec.Struct, frozen=True):
    """A queued job. `kinds` names its kinds of work for a person."""

    job_id: str
    kinds: tuple[str, ...]


TransactionWork = Callable[[apsw.Connection], Sequence[QueuedJob]]
"""A function that runs in a turn's transaction and returns the jobs that it queued.

It may run twice, so it must change nothing but the database.
"""


def queue_nothing(connection: apsw.Connection) -> Sequence[QueuedJob]:
    """Return no jobs: a TransactionWork that queues nothing."""
    return ()


class Job(msgspec.Struct, frozen=True):
    """A stored job. `attempts` counts its leases."""

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
    subject: str


_COLUMNS = ", ".join(Job.__struct_fields__)
OPEN = "state <> 'done' AND state <> 'failed'"
"""The condition of the index on open jobs. A query that repeats it uses the index and skips finished jobs."""


def enqueue(connection: apsw.Connection, job: NewJob, clock: Clock) -> str:
    """Store a job and return its id."""
    job_id, now = clock.new_id(), iso(read_time(connection, clock))
    connection.execute(
        "INSERT INTO jobs (id, kind, payload, state, created, run_after, subject)"
        " VALUES (?, ?, ?, 'waiting', ?, ?, ?)",
        (job_id, job.kind, job.payload, now, job.run_after or now, job.subject),
    )
    return job_id


def lease(
    connection: apsw.Connection,
    kinds: Sequence[str],
    owner: str,
    lease_s: float,
    clock: Clock,
    job_id: str = "",
) -> Job | None:
    """Lease the oldest job of these kinds that is due or has lost its worker, or None if there is none.

    With `job_id`, lease only that job. `owner` is a name from `claims.owner_name`, so that others can see
    whether this process lives.
    """
    now = read_time(connection, clock)
    free = _find_free(connection, kinds, iso(now))
    if not free or (job_id and job_id not in free):
        return None
    job_id = job_id or free[0]
    until = iso(now + timedelta(seconds=lease_s))
    connection.execute(
        "UPDATE jobs SET state = 'running', owner = ?, lease_until = ?, attempts = attempts + 1 WHERE id = ?",
        (owner, until, job_id),
    )
    return get(connection, job_id)


def is_due(connection: apsw.Connection, kinds: Sequence[str], clock: Clock) -> bool:
    """Return whether `lease` would return a job now."""
    return bool(_find_free(connection, kinds, iso(read_time(connection, clock))))


def seconds_until_due(connection: apsw.Connection, kinds: Sequence[str], clock: Clock) -> float | None:
    """Return the seconds until the next waiting job may run, negative if it is late, or None without one."""
    row = connection.execute(
        f"SELECT min(run_after) FROM jobs WHERE kind IN ({_marks(kinds)}) AND {OPEN} AND state = 'waiting'",
        tuple(kinds),
    ).fetchone()
    if row is None or not row[0]:
        return None
    return (datetime.fromisoformat(row[0]) - read_time(connection, clock)).total_seconds()


def find_waiting(connection: apsw.Connection, kind: str, subject: str) -> Job | None:
    """Return the job of this kind and subject that no worker has taken yet, or None."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE kind = ? AND subject = ? AND {OPEN} AND state = 'waiting'"
        " ORDER BY id LIMIT 1",
        (kind, subject),
    ).fetchone()
    return None if row is None else Job(*row)


def rewrite(connection: apsw.Connection, job: Job, payload: str, run_after: str) -> bool:
    """Change the payload and time of a waiting job. Return False if a worker has taken it by now."""
    connection.execute(
        "UPDATE jobs SET payload = ?, run_after = ? WHERE id = ? AND state = 'waiting' AND attempts = ?",
        (payload, run_after, job.id, job.attempts),
    )
    return connection.changes() == 1


def _find_free(connection: apsw.Connection, kinds: Sequence[str], now: str) -> list[str]:
    """Return the ids of the jobs that may be taken, oldest first.

    A job that was created in the future is due, because the clock must have been set back.
    """
    records = connection.execute(
        "SELECT id, kind, subject, state, owner, lease_until, run_after <= ?1 OR created > ?1 FROM jobs"
        f" WHERE kind IN ({_marks(kinds, 2)}) AND {OPEN} ORDER BY run_after, id",
        (now, *kinds),
    ).fetchall()
    free: list[tuple[str, str, str]] = []
    busy: set[tuple[str, str]] = set()
    for job_id, kind, subject, state, owner, until, due in records:
        if state == "running" and _is_held(connection, owner, until, now):
            busy.add((kind, subject))
        elif due or state == "running":
            free.append((job_id, kind, subject))
    return [id_ for id_, kind, subject in free if not subject or (kind, subject) not in busy]


def find_running_owner(connection: apsw.Connection, kind: str, subject: str, clock: Clock) -> str:
    """Return the name of the worker that holds a job of this kind and subject now, or an empty string."""
    row = connection.execute(
        "SELECT owner, lease_until FROM jobs WHERE kind = ? AND subject = ? AND state = 'running'",
        (kind, subject),
    ).fetchone()
    if row is None:
        return ""
    owner, until = row
    return owner if _is_held(connection, owner, until, iso(read_time(connection, clock))) else ""


def _is_held(connection: apsw.Connection, owner: str, until: str, now: str) -> bool:
    """Return whether a running job still belongs to its worker. In a team the lease alone decides."""
    return until > now and (is_team(connection) or not claims.is_gone(connection, owner))


def _marks(values: Sequence[str], first: int = 1) -> str:
    return ", ".join(f"?{number}" for number in range(first, first + len(values)))


def get(connection: apsw.Connection, job_id: str) -> Job | None:
    """Return a job, or None if it does not exist."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else Job(*row)


def heartbeat(connection: apsw.Connection, job: Job, lease_s: float, clock: Clock) -> bool:
    """Renew the lease. Return False if another worker has taken the job; then this one must stop."""
    until = iso(read_time(connection, clock) + timedelta(seconds=lease_s))
    return _change(connection, job, "lease_until = ?", (until,))


def release(connection: apsw.Connection, job: Job) -> bool:
    """Put the job back, due at once, because its worker has to stop. Return False as `complete` does."""
    return _change(connection, job, "state = 'waiting', owner = '', lease_until = ''", ())


def complete(connection: apsw.Connection, job: Job, clock: Clock) -> bool:
    """Mark the job done. Return False and change nothing if another worker has taken it."""
    now = iso(read_time(connection, clock))
    return _change(connection, job, "state = 'done', error = '', finished = ?", (now,))


def fail(
    connection: apsw.Connection, job: Job, error: str, clock: Clock, *, retry_in_s: float | None
) -> bool:
    """Put the job back to run in `retry_in_s` seconds, or mark it failed if that is None.

    Return False as `complete` does.
    """
    now = read_time(connection, clock)
    if retry_in_s is None:
        return _change(connection, job, "state = 'failed', error = ?, finished = ?", (error, iso(now)))
    return postpone(connection, job, error, iso(now + timedelta(seconds=retry_in_s)))


def postpone(connection: apsw.Connection, job: Job, why: str, until: str) -> bool:
    """Put the job back to run at `until` (ISO). Return False as `complete` does."""
    change = "state = 'waiting', error = ?, run_after = ?, owner = '', lease_until = ''"
    return _change(connection, job, change, (why, until))


def _change(connection: apsw.Connection, job: Job, change: str, values: tuple[Any, ...]) -> bool:
    connection.execute(
        f"UPDATE jobs SET {change} WHERE id = ? AND state = 'running' AND owner = ? AND attempts = ?",
        (*values, job.id, job.owner, job.attempts),
    )
    return connection.changes() == 1
