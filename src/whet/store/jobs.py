"""Durable work for later: reviews and the like survive the process that asked for them.

A worker leases a job for a while and renews the lease; a lease that ran out, or whose owner in the home's
own file is known to be dead, is another worker's to take. Of the jobs of one kind and subject one runs at a
time. Every function takes a connection inside a transaction. All times are of one clock, in a team the
database's (`time_of`). What a job means is its kind's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.store import claims
from whet.store.database import is_team, time_of

JobState: TypeAlias = Literal["waiting", "running", "done", "failed"]


class NewJob(msgspec.Struct, frozen=True):
    """A job to enqueue: `payload` is JSON text, `run_after` an ISO time or empty for at once.

    Jobs of one kind with the same `subject` never run at the same time; empty: there is no such limit.
    """

    kind: str
    payload: str
    run_after: str = ""
    subject: str = ""


class Queued(msgspec.Struct, frozen=True):
    """A job that stands in the queue: what it is for, in words that a person is shown."""

    job_id: str
    kinds: tuple[str, ...]


AtEnd = Callable[[apsw.Connection], Sequence[Queued]]
"""What else a turn's end transaction does; may run twice, so it changes nothing but the database."""


def nothing(connection: apsw.Connection) -> Sequence[Queued]:
    """Queue nothing."""
    return ()


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
    subject: str


_COLUMNS = ", ".join(Job.__struct_fields__)
OPEN = "state <> 'done' AND state <> 'failed'"
"""What is open, in the words of its index: a query that says them passes over the jobs of months."""


def enqueue(connection: apsw.Connection, job: NewJob, clock: Clock) -> str:
    """Store a job and give its id."""
    job_id, now = clock.new_id(), iso(time_of(connection, clock))
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
    """Take the oldest job of these kinds that is due or whose worker is gone, or `job_id` if it is among
    them; None without one.

    `owner` is a name from `claims.owner_name`, so that others can see whether this process lives.
    """
    now = time_of(connection, clock)
    free = _free(connection, kinds, iso(now))
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
    """Say whether `lease` would give a job now. Changes nothing."""
    return bool(_free(connection, kinds, iso(time_of(connection, clock))))


def due_in_s(connection: apsw.Connection, kinds: Sequence[str], clock: Clock) -> float | None:
    """Give the seconds until the next waiting job may run, below 0 for a late one; None where none waits."""
    row = connection.execute(
        f"SELECT min(run_after) FROM jobs WHERE kind IN ({_marks(kinds)}) AND {OPEN} AND state = 'waiting'",
        tuple(kinds),
    ).fetchone()
    if row is None or not row[0]:
        return None
    return (datetime.fromisoformat(row[0]) - time_of(connection, clock)).total_seconds()


def waiting(connection: apsw.Connection, kind: str, subject: str) -> Job | None:
    """Give the job of this kind and subject that nobody works on yet; None without one."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE kind = ? AND subject = ? AND {OPEN} AND state = 'waiting'"
        " ORDER BY id LIMIT 1",
        (kind, subject),
    ).fetchone()
    return None if row is None else Job(*row)


def rewrite(connection: apsw.Connection, job: Job, payload: str, run_after: str) -> bool:
    """Change what a waiting job is to do, and when; False where somebody works on it by now."""
    connection.execute(
        "UPDATE jobs SET payload = ?, run_after = ? WHERE id = ? AND state = 'waiting' AND attempts = ?",
        (payload, run_after, job.id, job.attempts),
    )
    return connection.changes() == 1


def _free(connection: apsw.Connection, kinds: Sequence[str], now: str) -> list[str]:
    """Find the jobs that may be taken, oldest first. One from the future is due: the clock was set back."""
    found = connection.execute(
        "SELECT id, kind, subject, state, owner, lease_until, run_after <= ?1 OR created > ?1 FROM jobs"
        f" WHERE kind IN ({_marks(kinds, 2)}) AND {OPEN} ORDER BY run_after, id",
        (now, *kinds),
    ).fetchall()
    free: list[tuple[str, str, str]] = []
    busy: set[tuple[str, str]] = set()
    for job_id, kind, subject, state, owner, until, due in found:
        if state == "running" and _is_held(connection, owner, until, now):
            busy.add((kind, subject))
        elif due or state == "running":
            free.append((job_id, kind, subject))
    return [id_ for id_, kind, subject in free if not subject or (kind, subject) not in busy]


def running_owner(connection: apsw.Connection, kind: str, subject: str, clock: Clock) -> str:
    """Name the worker that a job of this kind and subject is held by now; empty where none is."""
    row = connection.execute(
        "SELECT owner, lease_until FROM jobs WHERE kind = ? AND subject = ? AND state = 'running'",
        (kind, subject),
    ).fetchone()
    if row is None:
        return ""
    owner, until = row
    return owner if _is_held(connection, owner, until, iso(time_of(connection, clock))) else ""


def _is_held(connection: apsw.Connection, owner: str, until: str, now: str) -> bool:
    """Whether a running job is its worker's still: in a team by its lease alone."""
    return until > now and (is_team(connection) or not claims.is_gone(connection, owner))


def _marks(values: Sequence[str], first: int = 1) -> str:
    return ", ".join(f"?{number}" for number in range(first, first + len(values)))


def get(connection: apsw.Connection, job_id: str) -> Job | None:
    """Give a job, None where there is none."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else Job(*row)


def heartbeat(connection: apsw.Connection, job: Job, lease_s: float, clock: Clock) -> bool:
    """Renew the lease; False where another worker has taken the job, and this one must stop."""
    until = iso(time_of(connection, clock) + timedelta(seconds=lease_s))
    return _change(connection, job, "lease_until = ?", (until,))


def release(connection: apsw.Connection, job: Job) -> bool:
    """Put the job back, due at once, because its worker has to stop; False as in `complete`."""
    return _change(connection, job, "state = 'waiting', owner = '', lease_until = ''", ())


def complete(connection: apsw.Connection, job: Job, clock: Clock) -> bool:
    """Mark the job done; False where another worker has taken it, and nothing was changed."""
    now = iso(time_of(connection, clock))
    return _change(connection, job, "state = 'done', error = '', finished = ?", (now,))


def fail(
    connection: apsw.Connection, job: Job, error: str, clock: Clock, *, retry_in_s: float | None
) -> bool:
    """Put the job back to run in `retry_in_s` seconds, or give it up (None); False as in `complete`."""
    now = time_of(connection, clock)
    if retry_in_s is None:
        return _change(connection, job, "state = 'failed', error = ?, finished = ?", (error, iso(now)))
    return put_off(connection, job, error, iso(now + timedelta(seconds=retry_in_s)))


def put_off(connection: apsw.Connection, job: Job, why: str, until: str) -> bool:
    """Put the job back to run at `until` (ISO); False as in `complete`."""
    change = "state = 'waiting', error = ?, run_after = ?, owner = '', lease_until = ''"
    return _change(connection, job, change, (why, until))


def _change(connection: apsw.Connection, job: Job, change: str, values: tuple[Any, ...]) -> bool:
    connection.execute(
        f"UPDATE jobs SET {change} WHERE id = ? AND state = 'running' AND owner = ? AND attempts = ?",
        (*values, job.id, job.owner, job.attempts),
    )
    return connection.changes() == 1
