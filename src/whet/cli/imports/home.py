"""Import the settings, chats, schedules and other parts of a Hermes home, or report them in a dry run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from whet.clock import SystemClock, iso, local_zone
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.gateway.settings import parse_gateway
from whet.moving import hermes_chats, hermes_cron, hermes_mcp, hermes_persona, hermes_plugins, hermes_settings
from whet.moving.hermes_home import HermesHome
from whet.moving.hermes_memory import import_memory
from whet.moving.importing import Consent, ImportOutcome
from whet.schedules import timing
from whet.store import imported_items, paired, schedules
from whet.store.database import StateDatabase, has_store, open_store

T = TypeVar("T")
ORIGIN = "hermes"
PARTS = ("settings", "keys", "plugins", "persona", "mcp", "chats", "schedules")
_PAIRED = "paired"


class _Records:
    """Records in the store what was imported, and asks for the person's consent to more. In a dry run the
    store is only read, and only if it exists."""

    def __init__(self, home: Home, consent: Consent, *, dry: bool) -> None:
        self.consent = consent
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

    def imported_names(self, part: str) -> set[str]:
        """Return the names of the items of a part that were imported before."""
        if self._database is None:
            return set()
        return self._database.read_now(lambda db: imported_items.list_names(db, ORIGIN, part))

    def check(self, query: Callable[[apsw.Connection], bool]) -> bool:
        """Return the result of `query`, or False if there is no store."""
        return self._database.read_now(query) if self._database else False

    def keep(self, part: str, names: Iterable[str]) -> None:
        """Record the names of items that were imported, or that already existed here."""
        now, names = iso(self.clock.now()), list(names)
        if names:
            self.write(lambda db: [imported_items.record_name(db, ORIGIN, part, name, now) for name in names])

    def write(self, operation: Callable[[apsw.Connection], T]) -> T:
        """Run `operation` in a transaction. Must not be called in a dry run."""
        assert self._database is not None
        return self._database.write_now(operation)


def take_parts(
    home: Home, theirs: HermesHome, parts: Sequence[str], consent: Consent, *, dry: bool
) -> dict[str, list[ImportOutcome]]:
    """Import the requested parts of `PARTS`. Each part is durable before the next one begins."""
    settings = theirs.settings()
    report: dict[str, list[ImportOutcome]] = {}
    if "settings" in parts:
        report["settings"] = (
            hermes_settings.import_settings(home, settings, dry=dry) + theirs.report_profiles()
        )
    if "keys" in parts:
        keys = theirs.keys()
        if own_key := hermes_settings.find_own_key(settings):
            keys.setdefault(*own_key)
        report["keys"] = hermes_settings.import_keys(home, keys, dry=dry)
    if "plugins" in parts:
        provider, folders = theirs.memory_provider(), theirs.plugins()
        enabled = [*theirs.enabled_plugins(), *([provider] if provider else [])]
        report["plugins"] = hermes_plugins.import_plugins(home, folders, enabled, consent, dry=dry)
        if provider:
            is_found = provider in {folder.name for folder in folders}
            report["plugins"] += import_memory(home, theirs.root, provider, is_found=is_found, dry=dry)
    later_parts = [part for part in ("persona", "mcp", "chats", "schedules") if part in parts]
    if later_parts:
        with _Records(home, consent, dry=dry) as records:
            for part in later_parts:
                report[part] = _IMPORTERS[part](home, theirs, settings, records, dry)
    return report


def _import_persona(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[ImportOutcome]:
    agent: Any = settings.get("agent")
    prompt = agent.get("system_prompt") if isinstance(agent, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] foreign YAML
    try:
        words = hermes_persona.read_persona(theirs.soul(), prompt if isinstance(prompt, str) else "")
    except ConfigError as error:
        return [ImportOutcome("SOUL.md", "left", error.message)]
    part = hermes_persona.PART
    results = hermes_persona.import_persona(
        home, words, records.consent, was_imported=bool(records.imported_names(part)), dry=dry
    )
    if not dry:
        records.keep(part, [result.item for result in results if result.result == "set"])
    return results


def _import_mcp(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[ImportOutcome]:
    servers, skipped = hermes_mcp.read(settings, theirs.env())
    results = hermes_mcp.import_servers(home, servers, records.imported_names(hermes_mcp.PART), dry=dry)
    if not dry:
        records.keep(hermes_mcp.PART, [result.item for result in results if result.result in ("set", "kept")])
    return results + skipped


def _import_chats(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[ImportOutcome]:
    part = hermes_chats.PART
    channels, skipped = hermes_chats.read(settings, theirs.env())
    results = hermes_chats.import_channels(
        home, channels, records.imported_names(part), dry=dry, check=parse_gateway
    )
    if not dry and any(result.result == "set" for result in results):
        records.keep(part, [part])
    try:
        people = theirs.read_paired_people()
    except ConfigError as error:
        return [*results, *skipped, ImportOutcome("pairing", "left", error.message)]
    before = records.imported_names(_PAIRED)
    pairings = [_pair_person(person, before, records, dry) for person in people]
    return [*results, *skipped, *pairings]


def _pair_person(
    person: paired.PairedPerson, before: set[str], records: _Records, dry: bool
) -> ImportOutcome:
    """Pair a person who had paired with a code in Hermes. Someone who was imported `before` and whose pairing
    was removed here stays unpaired."""
    name, now = f"{person.channel} {person.user}", iso(records.clock.now())
    if name in before or records.check(lambda db: paired.is_paired(db, person.channel, person.user)):
        return ImportOutcome(name, "kept", "came before, or is let in already")

    def add_person(db: apsw.Connection) -> None:
        paired.add_person(db, msgspec.structs.replace(person, since=person.since or now))
        imported_items.record_name(db, ORIGIN, _PAIRED, name, now)

    if not dry:
        records.write(add_person)
    return ImportOutcome(name, "let in", "had a code there; gets a memory of their own, may approve nothing")


def _import_schedules(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[ImportOutcome]:
    ours = load(home, {}, environ=os.environ).settings
    env = theirs.env()
    try:
        defaults = hermes_cron.JobDefaults(
            time_zone=_read_zone(settings, env),
            folder=Path(ours.tools.workspace or "~").expanduser().absolute(),
            timeout_s=ours.agent.turn_timeout_s,
            home_chat=lambda kind: hermes_chats.home_chat(settings, env, kind),
        )
        jobs, skipped = hermes_cron.read(theirs.jobs(), defaults, records.clock)
    except ConfigError as error:
        return [ImportOutcome("cron/jobs.json", "left", error.message)]
    before = records.imported_names(hermes_cron.PART)
    planned_names: set[str] = set()
    results: list[ImportOutcome] = []
    for job in jobs:
        if job.key in before:
            results.append(ImportOutcome(job.schedule.name, "kept", "it came before"))
        elif dry:
            name = hermes_cron.choose_name(
                job.schedule.name,
                lambda text: text in planned_names or records.check(lambda db: schedules.has_name(db, text)),
            )
            planned_names.add(name)
            results.append(hermes_cron.describe_schedule(job, name))
        else:
            results.append(records.write(partial(_add_paused, job=job, clock=records.clock)))
    return results + skipped


def _add_paused(db: apsw.Connection, job: hermes_cron.HermesJob, clock: SystemClock) -> ImportOutcome:
    """Store a paused schedule and record its import, in one transaction, so that two imports at once do not
    add it twice."""
    if job.key in imported_items.list_names(db, ORIGIN, hermes_cron.PART):
        return ImportOutcome(job.schedule.name, "kept", "it came before")
    name = hermes_cron.choose_name(job.schedule.name, lambda text: schedules.has_name(db, text))
    schedule = msgspec.structs.replace(job.schedule, id=clock.new_id(), name=name)
    schedules.add(db, schedule, schedule.at or iso(clock.now()), clock)
    schedules.pause(db, schedule.id)
    imported_items.record_name(db, ORIGIN, hermes_cron.PART, job.key, iso(clock.now()))
    return hermes_cron.describe_schedule(job, name)


def _read_zone(settings: dict[str, Any], env: dict[str, str]) -> str:
    """Return the time zone of the Hermes jobs. Raises ConfigError if the zone is unknown."""
    zone = str(env.get("HERMES_TIMEZONE") or settings.get("timezone") or "") or local_zone()
    timing.find_zone(zone)
    return zone


_Importer = Callable[[Home, HermesHome, "dict[str, Any]", _Records, bool], "list[ImportOutcome]"]
_IMPORTERS: dict[str, _Importer] = {
    "persona": _import_persona,
    "mcp": _import_mcp,
    "chats": _import_chats,
    "schedules": _import_schedules,
}
