"""Hermes Agent's jobs (`cron/jobs.json`) as schedules here, each of them paused.

A person looks at each and lets it run: two programs must not do the same work at the same hour. What a job
has and a schedule has not is named; a job that would do something else here is left. Source: cron/jobs.py of
hermes-agent 0.19.0.
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
from whet.moving.carry import TakenOver
from whet.moving.hermes_chats import KINDS
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
    """A job as a schedule, without the id and the free name that it gets when it is stored; `key` is its id
    there, `notes` say what a person must know before letting it run."""

    key: str
    schedule: Schedule
    notes: tuple[str, ...]


class JobDefaults(msgspec.Struct, frozen=True):
    """What a job takes from around it: the time zone, the folder where it has none of its own, the limit of a
    run, and where messages without an address go on a platform (empty: nowhere)."""

    time_zone: str
    folder: Path
    timeout_s: float
    home_chat: Callable[[str], str]


class _Left(Exception):
    """Why a job does not come."""


def parse(raw: bytes) -> list[dict[str, Any]]:
    """Give the jobs in a jobs.json. Raises ConfigError for another kind of file."""
    try:
        whole: Any = msgspec.json.decode(raw)
    except NOT_JSON as error:
        raise ConfigError("cron/jobs.json is no JSON") from error
    jobs: Any = cast(dict[str, Any], whole).get("jobs") if isinstance(whole, dict) else whole
    if not isinstance(jobs, list):
        raise ConfigError("cron/jobs.json holds no jobs")
    return [cast(dict[str, Any], job) for job in cast(list[Any], jobs) if isinstance(job, dict)]


def read(
    jobs: Sequence[Mapping[str, Any]], place: JobDefaults, clock: Clock
) -> tuple[list[HermesJob], list[TakenOver]]:
    """Read jobs as schedules; those that can't be one are listed."""
    found, left = list[HermesJob](), list[TakenOver]()
    for number, job in enumerate(jobs, 1):
        label = " ".join(str(job.get("name") or job.get("prompt") or f"job {number}").split())[:60]
        try:
            found.append(_read_one(job, label, place, clock))
        except _Left as why:
            left.append(TakenOver(label, "left", str(why)))
        except ConfigError as error:
            left.append(TakenOver(label, "left", error.message))
    return found, left


def name_of(label: str, is_taken: Callable[[str], bool]) -> str:
    """Make a schedule's name of a job's, one that nothing has yet."""
    base = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:30].strip("-") or "schedule"
    name, number = base, 1
    while is_taken(name):
        number += 1
        name = f"{base}-{number}"
    return name


def told(found: HermesJob, name: str) -> TakenOver:
    """Say of a schedule, by its name here, when it comes and what to know of it."""
    one = found.schedule
    zone = timing.find_zone(one.time_zone)
    when = one.expression or f"once, {datetime.fromisoformat(one.at).astimezone(zone):%Y-%m-%d %H:%M}"
    target = f" to {one.target}" if one.target else ""
    return TakenOver(name, "added, paused", "; ".join([f"{when} ({one.time_zone}){target}", *found.notes]))


def _read_one(job: Mapping[str, Any], label: str, place: JobDefaults, clock: Clock) -> HermesJob:
    notes: list[str] = []
    if job.get("no_agent"):
        raise _Left("it runs a script without the agent; the system's own cron can do that")
    if job.get("script"):
        raise _Left(f"it reads what its script {str(job['script'])[:80]} prints; nothing does that here")
    if job.get("context_from"):
        raise _Left("it goes on from another job's answer; nothing does that here")
    expression, at = _when(job.get("schedule"), job, place.time_zone, clock)
    schedule = Schedule(
        id="",
        name=label,
        created=iso(clock.now()),
        expression=expression,
        at=at,
        time_zone=place.time_zone,
        prompt=_prompt(job),
        workspace=_folder(job, place, notes),
        target=_target(job, place, notes),
        toolsets=_toolsets(job),
        timeout_s=place.timeout_s,
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


def _prompt(job: Mapping[str, Any]) -> str:
    named = job.get("skills") or ([job["skill"]] if job.get("skill") else [])
    skills = (
        ", ".join(str(name) for name in cast(list[Any], named)) if isinstance(named, list) else str(named)
    )
    words = str(job.get("prompt") or "").strip()
    if not words and not skills:
        raise _Left("it has no prompt")
    return f"Use these skills: {skills}.\n\n{words}".strip() if skills else words


def _when(found: Any, job: Mapping[str, Any], zone: str, clock: Clock) -> tuple[str, str]:
    """Give a cron expression or a single time (ISO). Raises _Left, ConfigError."""
    plan = cast(dict[str, Any], found) if isinstance(found, dict) else {"kind": "cron", "expr": str(found)}
    if plan.get("kind") == "interval":
        return _interval(plan.get("minutes"), str(job.get("next_run_at") or ""), zone), ""
    if plan.get("kind") == "once":
        try:
            return "", iso(timing.parse_single_time(str(plan.get("run_at")), zone, clock.now()))
        except ConfigError as error:
            raise _Left("its only time has passed" if "past" in error.message else error.message) from error
    return timing.parse_expression(str(plan.get("expr") or plan.get("display") or "")), ""


def _interval(minutes: Any, next_run: str, zone: str) -> str:
    """Write "every so many minutes" as an expression with the same times; only some can be written."""
    if not isinstance(minutes, int) or minutes < 1:
        raise _Left("it says no interval")
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
    raise _Left(f"every {minutes} minutes is no cron expression; whet cron add, with the nearest that is")


def _folder(job: Mapping[str, Any], place: JobDefaults, notes: list[str]) -> str:
    folder = Path(str(job.get("workdir") or place.folder)).expanduser()
    if not folder.is_absolute():
        folder = place.folder / folder
    if not folder.is_dir():
        notes.append(f"its folder {folder} is not here")
    return str(folder)


def _target(job: Mapping[str, Any], place: JobDefaults, notes: list[str]) -> str:
    """Give the conversation that its answers go to; they stay in their sessions where there is none."""
    named = job.get("deliver")
    names = cast(list[Any], named) if isinstance(named, list) else str(named or "local").split(",")
    targets: list[str] = []
    for name in (str(one).strip() for one in names):
        if name in ("", "local"):
            continue
        kind, _, chat = (_origin(job) if name == "origin" else name).partition(":")
        chat = chat.partition(":")[0] or place.home_chat(kind)
        if kind in KINDS and re.fullmatch(r"-?\w+", chat):
            targets.append(f"{kind}:{chat}")
        else:
            notes.append(f"nothing is sent to {name[:60]} from here")
    if targets[1:]:
        notes.append(f"only the first of its places is told, not {', '.join(targets[1:])}")
    return targets[0] if targets else ""


def _origin(job: Mapping[str, Any]) -> str:
    origin = job.get("origin")
    facts = cast(dict[str, Any], origin) if isinstance(origin, dict) else {}
    return f"{facts.get('platform', '')}:{facts.get('chat_id', '')}"


def _toolsets(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the toolsets that it is confined to; fewer tools there never become all of them here."""
    named = job.get("enabled_toolsets")
    if not isinstance(named, list) or not named:
        return ()
    ours = [_TOOLSETS[str(name)] for name in cast(list[Any], named) if str(name) in _TOOLSETS]
    if not ours:
        raise _Left(f"none of its toolsets is here: {', '.join(map(str, cast(list[Any], named)))[:80]}")
    return tuple(dict.fromkeys(ours))
