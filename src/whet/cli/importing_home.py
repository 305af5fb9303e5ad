"""What `whet import hermes` takes of a home besides its sessions, part by part, or says that it would."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from whet.clock import SystemClock, iso
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.gateway.settings import parse_gateway
from whet.moving import hermes_chats, hermes_cron, hermes_mcp, hermes_persona, hermes_plugins, hermes_settings
from whet.moving.carry import TakenOver
from whet.moving.hermes_home import HermesHome
from whet.schedules import timing
from whet.store import moved, paired, schedules
from whet.store.database import StateDatabase, has_store, open_store
from whet.store.paired import PairedPerson

T = TypeVar("T")
ORIGIN = "hermes"
PARTS = ("settings", "keys", "plugins", "persona", "mcp", "chats", "schedules")
_PAIRED = "paired"


class _Records:
    """What came before: the store, where there is one or one may be made."""

    def __init__(self, home: Home, *, dry: bool) -> None:
        self.clock = SystemClock()
        self._database: StateDatabase | None = None
        if not dry:
            home.ensure()
        if not dry or has_store(home):
            self._database = open_store(home, self.clock)

    def __enter__(self) -> _Records:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def came(self, part: str) -> set[str]:
        """Give the names of what came of a part."""
        database = self._database
        return database.read_now(lambda db: moved.came(db, ORIGIN, part)) if database else set()

    def ask(self, question: Callable[[apsw.Connection], bool]) -> bool:
        """Ask the store; False where there is none."""
        return self._database.read_now(question) if self._database else False

    def keep(self, part: str, names: Iterable[str]) -> None:
        """Remember what came, or is here under its name."""
        now, names = iso(self.clock.now()), list(names)
        if names:
            self.write(lambda db: [moved.note(db, ORIGIN, part, name, now) for name in names])

    def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Write to the store; not in a dry run."""
        assert self._database is not None
        return self._database.write_now(work)


def take_parts(
    home: Home, theirs: HermesHome, parts: Sequence[str], *, dry: bool
) -> dict[str, list[TakenOver]]:
    """Take the parts of `PARTS` that are asked for, each whole before the next; durable one by one."""
    settings = theirs.settings()
    report: dict[str, list[TakenOver]] = {}
    if "settings" in parts:
        report["settings"] = hermes_settings.take_settings(home, settings, dry=dry) + theirs.profiles()
    if "keys" in parts:
        keys = theirs.keys()
        if own := hermes_settings.own_key(settings):
            keys.setdefault(*own)
        report["keys"] = hermes_settings.take_keys(home, keys, dry=dry)
    if "plugins" in parts:
        on = theirs.enabled_plugins()
        report["plugins"] = hermes_plugins.take_plugins(home, theirs.plugins(), on, dry=dry)
    wanted = [part for part in ("persona", "mcp", "chats", "schedules") if part in parts]
    if wanted:
        with _Records(home, dry=dry) as records:
            for part in wanted:
                report[part] = _TAKE[part](home, theirs, settings, records, dry)
    return report


def _persona(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[TakenOver]:
    agent: Any = settings.get("agent")
    prompt = agent.get("system_prompt") if isinstance(agent, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] foreign YAML
    try:
        words = hermes_persona.persona(theirs.soul(), prompt if isinstance(prompt, str) else "")
    except ConfigError as error:
        return [TakenOver("SOUL.md", "left", error.message)]
    part = hermes_persona.PART
    taken = hermes_persona.take(home, words, came=bool(records.came(part)), dry=dry)
    if not dry:
        records.keep(part, [one.what for one in taken if one.how == "set"])
    return taken


def _mcp(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[TakenOver]:
    found, left = hermes_mcp.read(settings, theirs.env())
    taken = hermes_mcp.take(home, found, records.came(hermes_mcp.PART), dry=dry)
    if not dry:
        records.keep(hermes_mcp.PART, [one.what for one in taken if one.how in ("set", "kept")])
    return taken + left


def _chats(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[TakenOver]:
    part = hermes_chats.PART
    found, left = hermes_chats.read(settings, theirs.env())
    taken = hermes_chats.take(home, found, records.came(part), dry=dry, check=parse_gateway)
    if not dry and any(one.how == "set" for one in taken):
        records.keep(part, [part])
    try:
        people = theirs.paired()
    except ConfigError as error:
        return [*taken, *left, TakenOver("pairing", "left", error.message)]
    return [*taken, *left, *_let_in(people, records, dry)]


def _let_in(people: Sequence[PairedPerson], records: _Records, dry: bool) -> list[TakenOver]:
    """Let in who was let in by a code there; who was sent away here stays away."""
    before, taken, now = records.came(_PAIRED), list[TakenOver](), iso(records.clock.now())
    for person in people:
        name = f"{person.channel} {person.user}"
        if name in before or records.ask(lambda db, one=person: paired.is_paired(db, one.channel, one.user)):
            taken.append(TakenOver(name, "kept", "came before, or is let in already"))
            continue

        def work(db: apsw.Connection, one: PairedPerson = person, name: str = name) -> None:
            paired.let_in(db, msgspec.structs.replace(one, since=one.since or now))
            moved.note(db, ORIGIN, _PAIRED, name, now)

        if not dry:
            records.write(work)
        taken.append(
            TakenOver(name, "let in", "had a code there; gets a memory of their own, may approve nothing")
        )
    return taken


def _schedules(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[TakenOver]:
    ours = load(home, {}, environ=os.environ).settings
    env = theirs.env()
    try:
        place = hermes_cron.JobDefaults(
            time_zone=_zone(settings, env),
            folder=Path(ours.tools.workspace or "~").expanduser().absolute(),
            timeout_s=ours.agent.turn_timeout_s,
            home_chat=lambda kind: hermes_chats.home_chat(settings, env, kind),
        )
        found, left = hermes_cron.read(theirs.jobs(), place, records.clock)
    except ConfigError as error:
        return [TakenOver("cron/jobs.json", "left", error.message)]
    before, named, taken = records.came(hermes_cron.PART), set[str](), list[TakenOver]()
    for one in found:
        if one.key in before:
            taken.append(TakenOver(one.schedule.name, "kept", "it came before"))
        elif dry:
            name = hermes_cron.name_of(
                one.schedule.name, lambda text: text in named or records.ask(_has(text))
            )
            named.add(name)
            taken.append(hermes_cron.told(one, name))
        else:
            taken.append(records.write(_adding(one, records.clock)))
    return taken + left


def _has(name: str) -> Callable[[apsw.Connection], bool]:
    return lambda db: schedules.is_taken(db, name)


def _adding(found: hermes_cron.HermesJob, clock: SystemClock) -> Callable[[apsw.Connection], TakenOver]:
    """Store a schedule, paused, and that it came, in one transaction: another import may be at work too."""

    def work(db: apsw.Connection) -> TakenOver:
        if found.key in moved.came(db, ORIGIN, hermes_cron.PART):
            return TakenOver(found.schedule.name, "kept", "it came before")
        name = hermes_cron.name_of(found.schedule.name, lambda text: schedules.is_taken(db, text))
        schedule = msgspec.structs.replace(found.schedule, id=clock.new_id(), name=name)
        schedules.add(db, schedule, schedule.at or iso(clock.now()), clock)
        schedules.pause(db, schedule.id)
        moved.note(db, ORIGIN, hermes_cron.PART, found.key, iso(clock.now()))
        return hermes_cron.told(found, name)

    return work


def _zone(settings: dict[str, Any], env: dict[str, str]) -> str:
    """Give the time zone that its jobs are read in. Raises ConfigError for one that is not known."""
    named = str(env.get("HERMES_TIMEZONE") or settings.get("timezone") or "") or timing.local_zone()
    timing.find_zone(named)
    return named


_Take = Callable[[Home, HermesHome, "dict[str, Any]", _Records, bool], "list[TakenOver]"]
_TAKE: dict[str, _Take] = {"persona": _persona, "mcp": _mcp, "chats": _chats, "schedules": _schedules}
