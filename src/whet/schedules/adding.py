"""Add a schedule as a person describes it: check it, name it, and find its first time."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from whet.clock import Clock, iso, local_zone
from whet.config.schema import Settings
from whet.contract.errors import ConfigError
from whet.schedules import goals, quiet, timing
from whet.schedules.execution import NOTIFY, check_target, is_chat
from whet.store import schedules, sessions
from whet.store.database import read_time
from whet.store.schedules import Schedule, ScheduleWish
from whet.tools.registry import TOOLSETS


def add_schedule(
    connection: apsw.Connection, settings: Settings, wish: ScheduleWish, clock: Clock
) -> tuple[Schedule, str]:
    """Store a schedule, and return it with its first time. Raises ConfigError if the description is invalid,
    NotFound if its session does not exist."""
    schedule, due = _build(settings, wish, clock.new_id(), read_time(connection, clock))
    check_target(connection, schedule.target)
    session = sessions.resolve_id(connection, wish.session) if wish.session else ""
    name = schedule.name or _make_name(connection, schedule.prompt)
    schedule = msgspec.structs.replace(schedule, session_id=session, name=name)
    schedules.add(connection, schedule, due, clock)
    return schedule, due


def _build(settings: Settings, wish: ScheduleWish, schedule_id: str, now: datetime) -> tuple[Schedule, str]:
    if bool(wish.expression) == bool(wish.at):
        raise ConfigError(
            "a schedule has a cron expression or one time", hint="'0 9 * * 1-5' on workdays, or 18:30 once"
        )
    zone = wish.time_zone or settings.agent.time_zone or local_zone()
    if wish.time_zone:
        timing.check_typed_zone(zone)
    else:
        timing.find_zone(zone)
    prompt = _check_text(wish.prompt, "prompt")
    if not prompt.strip():
        raise ConfigError("there is no prompt", hint="say in the prompt what to do")
    workspace = _parse_path(wish.workspace or settings.tools.workspace or os.getcwd())
    if not workspace.is_dir():
        raise ConfigError(f"{workspace} is not a folder", hint="name the folder to work in")
    if unknown := [name for name in wish.toolsets if name not in TOOLSETS]:
        raise ConfigError(f"there is no toolset {unknown[0]}", hint=f"they are: {', '.join(TOOLSETS)}")
    schedule = Schedule(
        id=schedule_id,
        name=_check_text(" ".join(wish.name.split()), "name"),
        created=iso(now),
        expression=timing.parse_expression(wish.expression) if wish.expression else "",
        at=iso(timing.parse_single_time(wish.at, zone, now)) if wish.at else "",
        time_zone=zone,
        prompt=prompt,
        workspace=str(workspace),
        target=_read_target(wish.target),
        toolsets=wish.toolsets,
        timeout_s=wish.timeout_s or settings.agent.turn_timeout_s,
        goal=wish.goal,
        quiet=quiet.parse_span(wish.quiet),
    )
    if wish.goal is not None:
        goals.check_goal(wish.goal, wish.session)
    return schedule, schedule.at or iso(timing.next_after(schedule, now))


def _read_target(text: str) -> str:
    if text in ("", NOTIFY) or is_chat(text):
        return text
    path = _parse_path(_check_text(text, "target"))
    if path.is_dir() or text.endswith(("/", os.sep)):
        raise ConfigError(f"{path} is a folder", hint="name a file in it, e.g. " + str(path / "{date}.md"))
    return str(path)


def _parse_path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{text} names the home of nobody here") from error


def _check_text(text: str, label: str) -> str:
    """Return typed or piped text unchanged. Raises ConfigError if it is not valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the {label} is not UTF-8 text", hint="iconv turns other encodings into it"
        ) from error
    return text


def _make_name(db: apsw.Connection, prompt: str) -> str:
    """Return a name from a prompt's first words that no other schedule has."""
    words = re.findall(r"[a-z0-9]+", prompt.lower())[:4]
    base = "-".join(words)[:30].strip("-") or "schedule"
    name, number = base, 1
    while schedules.has_name(db, name):
        number += 1
        name = f"{base}-{number}"
    return name
