"""Store schedules, the job for each one's next time, and the results of runs.

An active schedule has exactly one waiting job, for its next time, in the table that reviews use too. The
folder `schedules` computes the times and carries out the runs. Every function takes a connection inside a
transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.config.schema import Settings
from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import from_json, shared_decoder
from whet.store import jobs
from whet.store.database import read_time
from whet.store.jobs import Job, NewJob

KIND = "schedule"
KEPT_RUNS = 100
_CORRECTION = timedelta(hours=3)
_HINT = "`whet cron list` shows them"

RunEnd: TypeAlias = Literal["answered", "budget", "failed", "refused", "crashed", "stopped", "missed", ""]
"""How a run's turn ended. `stopped`: its worker was ended; `missed`: it was too late to catch up; "": it
runs."""


class ScheduleGoal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The goal of a schedule's runs. `until_achieved`: the schedule pauses once a run has achieved it."""

    verify: str = ""
    budget_usd: float = 0.0
    steps: int = 0
    guard: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    until_achieved: bool = False


class Schedule(msgspec.Struct, frozen=True):
    """A prompt and the times to run it. Either `expression` (cron, read in `time_zone`) or `at` (ISO) is set.

    An empty `session_id` means a new session each time, empty `toolsets` the configured ones. `target` is a
    file, "notify", or empty. `quiet` are hours in which a chat receives nothing, like "22:00-07:00". Times
    are ISO.
    """

    id: str
    name: str
    created: str
    expression: str
    at: str
    time_zone: str
    prompt: str
    session_id: str = ""
    workspace: str = ""
    target: str = ""
    toolsets: tuple[str, ...] = ()
    timeout_s: float = 3600.0
    paused: bool = False
    goal: ScheduleGoal | None = None
    quiet: str = ""


class ScheduleWish(msgspec.Struct, frozen=True):
    """A person's description of a new schedule. An empty or zero value means the default.

    Either `expression` or `at` tells the times. An empty `session` means a new session each time.
    """

    prompt: str
    expression: str = ""
    at: str = ""
    name: str = ""
    time_zone: str = ""
    workspace: str = ""
    target: str = ""
    session: str = ""
    toolsets: tuple[str, ...] = ()
    timeout_s: float = 0.0
    goal: ScheduleGoal | None = None
    quiet: str = ""


ScheduleAdder: TypeAlias = Callable[[apsw.Connection, Settings, ScheduleWish, Clock], tuple[Schedule, str]]
"""Stores a new schedule, and returns it with its first time. Raises ConfigError and NotFound."""


class Firing(msgspec.Struct, frozen=True):
    """A job's payload: the schedule and the scheduled time."""

    schedule_id: str
    due: str
    by_hand: bool = False


class ScheduleRun(msgspec.Struct, frozen=True):
    """One run.

    `begun` counts how often its turn was begun or resumed, and is 0 until its prompt is stored.
    `turns_before` is the number of turns that its session had before that one.
    """

    job_id: str
    schedule_id: str
    due: str
    by_hand: bool
    started: str
    finished: str = ""
    begun: int = 0
    session_id: str = ""
    turns_before: int = 0
    result: RunEnd = ""
    note: str = ""
    text: str = ""


_COLUMNS = ", ".join(Schedule.__struct_fields__)
_RUN = "job, schedule, due, by_hand, started, finished, begun, session_id, turns_before, result, note, text"
_NOT_BEGUN = "kind = ? AND subject = ? AND state = 'waiting' AND id NOT IN (SELECT job FROM schedule_runs)"
_firings = shared_decoder(Firing)


def add(connection: apsw.Connection, schedule: Schedule, due: str, clock: Clock) -> None:
    """Store a schedule, with `due` as its first time. Raises ConfigError if the name is already used."""
    if connection.execute("SELECT 1 FROM schedules WHERE name = ?", (schedule.name,)).fetchone():
        raise ConfigError(f"there is a schedule {schedule.name} already", hint="--name gives another one")
    values = [getattr(schedule, name) for name in Schedule.__struct_fields__]
    values[10], values[12] = ",".join(schedule.toolsets), int(schedule.paused)
    values[13] = msgspec.json.encode(schedule.goal).decode() if schedule.goal is not None else ""
    connection.execute(f"INSERT INTO schedules ({_COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
    set_next_run(connection, schedule.id, due, clock)


def has_name(connection: apsw.Connection, name: str) -> bool:
    """Return whether a schedule has this name."""
    return connection.execute("SELECT 1 FROM schedules WHERE name = ?", (name,)).fetchone() is not None


def get(connection: apsw.Connection, schedule_id: str) -> Schedule | None:
    """Return a schedule by its id, or None if it was removed."""
    schedules = _select(connection, "WHERE id = ?", schedule_id)
    return schedules[0] if schedules else None


def find(connection: apsw.Connection, name: str) -> Schedule:
    """Return a schedule by name, or by the beginning of its id. Raises NotFound."""
    where = "WHERE name = ?1 OR (?1 <> '' AND substr(id, 1, length(?1)) = ?1)"
    schedules = _select(connection, f"{where} ORDER BY name <> ?1 COLLATE NOCASE LIMIT 2", name)
    if not schedules:
        raise NotFound(f"there is no schedule {name}", hint=_HINT)
    if len(schedules) > 1 and schedules[0].name.lower() != name.lower():
        raise NotFound(f"{name} fits several schedules", hint=_HINT)
    return schedules[0]


def last_goal(connection: apsw.Connection) -> Schedule | None:
    """Return the most recent goal that was queued to begin at once, or None."""
    where = "WHERE goal <> '' AND at = created ORDER BY at DESC, id DESC LIMIT 1"
    schedules = _select(connection, where)
    return schedules[0] if schedules else None


def list_schedules(connection: apsw.Connection) -> list[Schedule]:
    """Return all schedules, sorted by name."""
    return _select(connection, "ORDER BY name")


def remove(connection: apsw.Connection, schedule_id: str) -> None:
    """Delete a schedule and the records of its runs. Their sessions stay, and a running one continues."""
    connection.execute(
        "DELETE FROM jobs WHERE kind = ? AND subject = ? AND state = 'waiting'", (KIND, schedule_id)
    )
    connection.execute(
        "DELETE FROM schedule_runs WHERE schedule = ? AND (result <> '' OR job NOT IN (SELECT id FROM jobs))",
        (schedule_id,),
    )
    connection.execute("DELETE FROM schedules WHERE id = ?", (schedule_id,))


def pause(connection: apsw.Connection, schedule_id: str) -> None:
    """Pause a schedule. A run that has begun continues, even if it waits for its session."""
    connection.execute("UPDATE schedules SET paused = 1 WHERE id = ?", (schedule_id,))
    _stop_waiting(connection, schedule_id)


def resume(connection: apsw.Connection, schedule_id: str, due: str, clock: Clock) -> None:
    """Resume a paused schedule, with `due` as its next time."""
    connection.execute("UPDATE schedules SET paused = 0 WHERE id = ?", (schedule_id,))
    _stop_waiting(connection, schedule_id)
    set_next_run(connection, schedule_id, due, clock)


def set_next_run(connection: apsw.Connection, schedule_id: str, due: str, clock: Clock) -> str:
    """Set a schedule's next time to `due` (ISO), and return the job's id."""
    return _enqueue(connection, Firing(schedule_id, due), clock)


def run_now(connection: apsw.Connection, schedule_id: str, clock: Clock) -> str:
    """Queue a run on request, and return the job's id. The schedule's next time stays."""
    return _enqueue(connection, Firing(schedule_id, iso(read_time(connection, clock)), by_hand=True), clock)


def find_next_due(connection: apsw.Connection, schedule_id: str) -> str:
    """Return a schedule's next time, or an empty string if there is none."""
    row = connection.execute(
        f"SELECT min(run_after) FROM jobs WHERE {_NOT_BEGUN}", (KIND, schedule_id)
    ).fetchone()
    return row[0] or "" if row else ""


def correct_clock_change(
    connection: apsw.Connection, clock: Clock, after: Callable[[Schedule, datetime], str]
) -> None:
    """Correct jobs that were created later than now, because the clock was set back.

    If it was set back by up to three hours, the next time stays, so that nothing runs twice. If it was more,
    the clock was wrong before, and the next time is computed from now.
    """
    now = read_time(connection, clock)
    rows = connection.execute(
        "SELECT id, subject, created, payload FROM jobs WHERE kind = ? AND state = 'waiting' AND created > ?",
        (KIND, iso(now)),
    ).fetchall()
    for job_id, schedule_id, created, payload in rows:
        schedule, firing = get(connection, schedule_id), _firings.decode(payload)
        due = firing.due
        is_wrong = datetime.fromisoformat(created) - now > _CORRECTION
        if is_wrong and schedule is not None and schedule.expression and not firing.by_hand:
            due = after(schedule, now)
        text = msgspec.json.encode(msgspec.structs.replace(firing, due=due)).decode()
        connection.execute(
            "UPDATE jobs SET created = ?, run_after = ?, payload = ? WHERE id = ?",
            (iso(now), due, text, job_id),
        )


def read_firing(job: Job) -> Firing:
    """Read the payload of a job."""
    return _firings.decode(job.payload)


def begin_run(connection: apsw.Connection, job: Job, firing: Firing, now: str) -> tuple[ScheduleRun, bool]:
    """Return the run of a leased job, and whether it is new. Another worker may have begun it."""
    if (run := get_run(connection, job.id)) is not None:
        return run, False
    connection.execute(
        "INSERT INTO schedule_runs (job, schedule, due, by_hand, started) VALUES (?, ?, ?, ?, ?)",
        (job.id, firing.schedule_id, firing.due, int(firing.by_hand), now),
    )
    _forget_old(connection, firing.schedule_id)
    return ScheduleRun(job.id, firing.schedule_id, firing.due, firing.by_hand, now), True


def get_run(connection: apsw.Connection, job_id: str) -> ScheduleRun | None:
    """Return a run, or None if it has not begun."""
    row = connection.execute(f"SELECT {_RUN} FROM schedule_runs WHERE job = ?", (job_id,)).fetchone()
    return None if row is None else _run(row)


def set_run_session(connection: apsw.Connection, job_id: str, session_id: str) -> None:
    """Store the session of a run, before its prompt is stored."""
    connection.execute("UPDATE schedule_runs SET session_id = ? WHERE job = ?", (session_id, job_id))


def record_prompt(connection: apsw.Connection, job_id: str, key: int) -> None:
    """Record that a run's prompt is the last turn of the session `key`, in the transaction that stores it."""
    connection.execute(
        "UPDATE schedule_runs SET begun = 1,"
        " turns_before = (SELECT coalesce(max(number), 1) - 1 FROM turns WHERE session = ?) WHERE job = ?",
        (key, job_id),
    )


def count_resume(connection: apsw.Connection, job_id: str) -> None:
    """Count one more resume of a run's turn."""
    connection.execute("UPDATE schedule_runs SET begun = begun + 1 WHERE job = ?", (job_id,))


def count_denied_calls(connection: apsw.Connection, job_id: str) -> list[tuple[str, int]]:
    """Return each tool with denied calls in a run's turns, and their number, in the order of the calls."""
    return connection.execute(
        "SELECT c.name, count(*) FROM schedule_runs r JOIN sessions s ON s.id = r.session_id"
        " JOIN tool_calls c ON c.session = s.key AND c.turn > r.turns_before"
        " WHERE r.job = ? AND c.error_kind = 'denied' GROUP BY c.name ORDER BY min(c.seq)",
        (job_id,),
    ).fetchall()


def postpone_run(connection: apsw.Connection, job: Job, why: str, until: str) -> None:
    """Repeat a run at `until` because its session is in use. This does not count as begun."""
    if jobs.postpone(connection, job, why, until):
        connection.execute(
            "UPDATE schedule_runs SET begun = begun - 1 WHERE job = ? AND begun > 1", (job.id,)
        )


def finish(connection: apsw.Connection, job: Job, outcome: tuple[RunEnd, str, str], clock: Clock) -> bool:
    """Complete a run and its job with (result, note, text). Return False if another worker has taken it."""
    if not jobs.complete(connection, job, clock):
        return False
    connection.execute(
        "UPDATE schedule_runs SET finished = ?, result = ?, note = ?, text = ? WHERE job = ?",
        (iso(read_time(connection, clock)), *outcome, job.id),
    )
    return True


def list_runs(connection: apsw.Connection, schedule_id: str, limit: int = 20) -> list[ScheduleRun]:
    """Return a schedule's runs, newest first."""
    cursor = connection.execute(
        f"SELECT {_RUN} FROM schedule_runs WHERE schedule = ? ORDER BY started DESC, job DESC LIMIT ?",
        (schedule_id, limit),
    )
    return [_run(row) for row in cursor]


def _enqueue(connection: apsw.Connection, firing: Firing, clock: Clock) -> str:
    payload = msgspec.json.encode(firing).decode()
    return jobs.enqueue(connection, NewJob(KIND, payload, firing.due, firing.schedule_id), clock)


def _stop_waiting(connection: apsw.Connection, schedule_id: str) -> None:
    connection.execute(f"DELETE FROM jobs WHERE {_NOT_BEGUN}", (KIND, schedule_id))


def _forget_old(connection: apsw.Connection, schedule_id: str) -> None:
    old = connection.execute(
        "SELECT job FROM schedule_runs WHERE schedule = ? AND result <> ''"
        " ORDER BY started DESC, job DESC LIMIT -1 OFFSET ?",
        (schedule_id, KEPT_RUNS),
    ).fetchall()
    for (job_id,) in old:
        connection.execute("DELETE FROM schedule_runs WHERE job = ?", (job_id,))
        connection.execute("DELETE FROM jobs WHERE id = ?", (job_id,))


def _select(connection: apsw.Connection, clauses: str, *values: str) -> list[Schedule]:
    cursor = connection.execute(f"SELECT {_COLUMNS} FROM schedules {clauses}", values)
    return [_read_schedule(row) for row in cursor.fetchall()]


def _read_schedule(row: tuple[Any, ...]) -> Schedule:
    toolsets = tuple(name for name in str(row[10]).split(",") if name)
    goal = from_json(row[13], ScheduleGoal) if row[13] else None
    return Schedule(*row[:10], toolsets, row[11], bool(row[12]), goal, row[14])  # pyright: ignore[reportCallIssue] the columns are the fields


def _run(row: tuple[Any, ...]) -> ScheduleRun:
    return ScheduleRun(*row[:3], bool(row[3]), *row[4:])  # pyright: ignore[reportCallIssue] the columns are the fields
