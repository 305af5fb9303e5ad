"""Convert Hermes Agent's jobs (`cron/jobs.json`) to paused schedules.

A person reviews and starts each one, because two programs must not do the same task at the same time.
Settings of a job without a counterpart are listed. A job that would do something else here is not imported.
Source: cron/jobs.py of hermes-agent 0.19.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.clock import Clock, iso
from whet.contract.errors import ConfigError
from whet.contract.texts import NOT_JSON
from whet.moving.hermes_chats import KINDS
from whet.moving.importing import ImportOutcome
from whet.schedules import timing
from whet.store.schedules import Schedule

PART = "schedules"
_DAY_MINUTES = 1_440
_TOOLSETS = {
    "file": "file",
    "terminal": "terminal",
    "web": "web",
    "search": "web",
    "memory": "memory",
    "skills": "skills",
    "session_search": "session",
    "delegation": "delegation",
    "todo": "planning",
}


class HermesJob(msgspec.Struct, frozen=True):
    """A job as a schedule, before it is stored with an id and a free name.

    `key` is the job's id in Hermes. `notes` list differences that a person should know before starting it.
    """

    key: str
    schedule: Schedule
    notes: tuple[str, ...]


class JobDefaults(msgspec.Struct, frozen=True):
    """The values for settings that a job does not have. `home_chat` returns a platform's home chat or ""."""

    time_zone: str
    folder: Path
    timeout_s: float
    home_chat: Callable[[str], str]


class _NotImported(Exception):
    """Raised with the reason why a job is not imported."""


def parse(raw: bytes) -> list[dict[str, Any]]:
    """Return the jobs in a jobs.json. Raises ConfigError if it is another kind of file."""
    try:
        document: Any = msgspec.json.decode(raw)
    except NOT_JSON as error:
        raise ConfigError("cron/jobs.json is not JSON") from error
    jobs: Any = cast(dict[str, Any], document).get("jobs") if isinstance(document, dict) else document
    if not isinstance(jobs, list):
        raise ConfigError("cron/jobs.json holds no jobs")
    return [cast(dict[str, Any], job) for job in cast(list[Any], jobs) if isinstance(job, dict)]


def read(
    jobs: Sequence[Mapping[str, Any]], defaults: JobDefaults, clock: Clock
) -> tuple[list[HermesJob], list[ImportOutcome]]:
    """Convert jobs to schedules. Returns them, and an outcome for each job that can't be imported."""
    hermes_jobs: list[HermesJob] = []
    left_out: list[ImportOutcome] = []
    for number, job in enumerate(jobs, 1):
        label = " ".join(str(job.get("name") or job.get("prompt") or f"job {number}").split())[:60]
        try:
            hermes_jobs.append(_convert_job(job, label, defaults, clock))
        except _NotImported as why:
            left_out.append(ImportOutcome(label, "left", str(why)))
        except ConfigError as error:
            left_out.append(ImportOutcome(label, "left", error.message))
    return hermes_jobs, left_out


def choose_name(label: str, is_taken: Callable[[str], bool]) -> str:
    """Return an unused schedule name made from a job's label."""
    base = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:30].strip("-") or "schedule"
    name, number = base, 1
    while is_taken(name):
        number += 1
        name = f"{base}-{number}"
    return name


def describe_schedule(job: HermesJob, name: str) -> ImportOutcome:
    """Return the outcome for a stored schedule: when it runs, and its notes."""
    schedule = job.schedule
    zone = timing.find_zone(schedule.time_zone)
    when = (
        schedule.expression or f"once, {datetime.fromisoformat(schedule.at).astimezone(zone):%Y-%m-%d %H:%M}"
    )
    target = f" to {schedule.target}" if schedule.target else ""
    return ImportOutcome(
        name, "added, paused", "; ".join([f"{when} ({schedule.time_zone}){target}", *job.notes])
    )


def _convert_job(job: Mapping[str, Any], label: str, defaults: JobDefaults, clock: Clock) -> HermesJob:
    notes: list[str] = []
    if job.get("no_agent"):
        raise _NotImported("it runs a script without the agent; the system's own cron can do that")
    if job.get("script"):
        raise _NotImported(
            f"it reads what its script {str(job['script'])[:80]} prints; nothing does that here"
        )
    if job.get("context_from"):
        raise _NotImported("it goes on from another job's answer; nothing does that here")
    expression, at = _read_timing(job.get("schedule"), job, defaults.time_zone, clock)
    schedule = Schedule(
        id="",
        name=label,
        created=iso(clock.now()),
        expression=expression,
        at=at,
        time_zone=defaults.time_zone,
        prompt=_read_prompt(job),
        workspace=_read_folder(job, defaults, notes),
        target=_read_target(job, defaults, notes),
        toolsets=_read_toolsets(job),
        timeout_s=defaults.timeout_s,
        paused=True,
    )
    repeat = job.get("repeat")
    times = cast(dict[str, Any], repeat).get("times") if isinstance(repeat, dict) else None
    if expression and isinstance(times, int):
        notes.append(f"it would end after {times} runs there, and goes on here")
    if model := job.get("model") or job.get("provider"):
        notes.append(f"its own model {str(model)[:60]} is not taken over")
    if job.get("enabled") is False:
        notes.append("it was paused there too")
    return HermesJob(str(job.get("id") or label), schedule, tuple(notes))


def _read_prompt(job: Mapping[str, Any]) -> str:
    skill_names = job.get("skills") or ([job["skill"]] if job.get("skill") else [])
    skills = (
        ", ".join(str(name) for name in cast(list[Any], skill_names))
        if isinstance(skill_names, list)
        else str(skill_names)
    )
    prompt = str(job.get("prompt") or "").strip()
    if not prompt and not skills:
        raise _NotImported("it has no prompt")
    return f"Use these skills: {skills}.\n\n{prompt}".strip() if skills else prompt


def _read_timing(raw_schedule: Any, job: Mapping[str, Any], zone: str, clock: Clock) -> tuple[str, str]:
    """Return a cron expression and a single time (ISO), one of which is "". Raises _NotImported and
    ConfigError."""
    fields = (
        cast(dict[str, Any], raw_schedule)
        if isinstance(raw_schedule, dict)
        else {"kind": "cron", "expr": str(raw_schedule)}
    )
    if fields.get("kind") == "interval":
        return _convert_interval(fields.get("minutes"), str(job.get("next_run_at") or ""), zone), ""
    if fields.get("kind") == "once":
        try:
            return "", iso(timing.parse_single_time(str(fields.get("run_at")), zone, clock.now()))
        except ConfigError as error:
            raise _NotImported(
                "its only time has passed" if "past" in error.message else error.message
            ) from error
    return timing.parse_expression(str(fields.get("expr") or fields.get("display") or "")), ""


def _convert_interval(minutes: Any, next_run: str, zone: str) -> str:
    """Return a cron expression for "every N minutes". Raises _NotImported if there is none."""
    if not isinstance(minutes, int) or minutes < 1:
        raise _NotImported("it says no interval")
    try:
        first = datetime.fromisoformat(next_run).astimezone(timing.find_zone(zone))
        minute, hour, weekday = first.minute, first.hour, (first.weekday() + 1) % 7
    except (ValueError, OverflowError):
        minute = hour = weekday = 0
    if minutes <= 60 and 60 % minutes == 0:
        return f"{minute % minutes}-59/{minutes} * * * *" if minutes < 60 else f"{minute} * * * *"
    hours = minutes // 60
    if minutes % 60 == 0 and hours < 24 and 24 % hours == 0:
        return f"{minute} {hour % hours}-23/{hours} * * *"
    if minutes == _DAY_MINUTES:
        return f"{minute} {hour} * * *"
    if minutes == 7 * _DAY_MINUTES:
        return f"{minute} {hour} * * {weekday}"
    raise _NotImported(
        f"every {minutes} minutes is not a cron expression; whet cron add, with the nearest that is"
    )


def _read_folder(job: Mapping[str, Any], defaults: JobDefaults, notes: list[str]) -> str:
    folder = Path(str(job.get("workdir") or defaults.folder)).expanduser()
    if not folder.is_absolute():
        folder = defaults.folder / folder
    if not folder.is_dir():
        notes.append(f"its folder {folder} is not here")
    return str(folder)


def _read_target(job: Mapping[str, Any], defaults: JobDefaults, notes: list[str]) -> str:
    """Return the conversation that the job's answers are sent to, or "" to leave them in the session."""
    deliver = job.get("deliver")
    names = cast(list[Any], deliver) if isinstance(deliver, list) else str(deliver or "local").split(",")
    targets: list[str] = []
    for name in (str(part).strip() for part in names):
        if name in ("", "local"):
            continue
        kind, _, chat = (_read_origin(job) if name == "origin" else name).partition(":")
        chat = chat.partition(":")[0] or defaults.home_chat(kind)
        if kind in KINDS and re.fullmatch(r"-?\w+", chat):
            targets.append(f"{kind}:{chat}")
        else:
            notes.append(f"nothing is sent to {name[:60]} from here")
    if targets[1:]:
        notes.append(f"only the first of its places is told, not {', '.join(targets[1:])}")
    return targets[0] if targets else ""


def _read_origin(job: Mapping[str, Any]) -> str:
    origin = job.get("origin")
    facts = cast(dict[str, Any], origin) if isinstance(origin, dict) else {}
    return f"{facts.get('platform', '')}:{facts.get('chat_id', '')}"


def _read_toolsets(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the toolsets that the job is limited to, or () if it has no limit.

    Raises _NotImported if none of them exists here, because a limit must not become full access.
    """
    toolsets = job.get("enabled_toolsets")
    if not isinstance(toolsets, list) or not toolsets:
        return ()
    ours = [_TOOLSETS[str(name)] for name in cast(list[Any], toolsets) if str(name) in _TOOLSETS]
    if not ours:
        raise _NotImported(
            f"none of its toolsets is here: {', '.join(map(str, cast(list[Any], toolsets)))[:80]}"
        )
    return tuple(dict.fromkeys(ours))
