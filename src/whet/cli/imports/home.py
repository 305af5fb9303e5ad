"""The parts of a Hermes home, apart from its sessions, that `whet import hermes` imports or, in a dry run,
reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
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
from whet.moving.carry import Consent, ImportOutcome
from whet.moving.hermes_home import HermesHome
from whet.moving.hermes_memory import import_memory
from whet.schedules import timing
from whet.store import imported_items, paired, schedules
from whet.store.database import StateDatabase, has_store, open_store

T = TypeVar("T")
ORIGIN = "hermes"
PARTS = ("settings", "keys", "plugins", "persona", "mcp", "chats", "schedules")
_PAIRED = "paired"


class _Records:
    """The record of earlier imports, kept in the store, and the person's consent to new ones. In a dry run
    the store is only read, and only if it exists."""

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
        database = self._database
        return (
            database.read_now(lambda db: imported_items.list_names(db, ORIGIN, part)) if database else set()
        )

    def ask(self, question: Callable[[apsw.Connection], bool]) -> bool:
        """Ask the store a question. Returns False if there is no store."""
        return self._database.read_now(question) if self._database else False

    def keep(self, part: str, names: Iterable[str]) -> None:
        """Remember the names of items that were imported, or that exist here under the same name."""
        now, names = iso(self.clock.now()), list(names)
        if names:
            self.write(lambda db: [imported_items.record_name(db, ORIGIN, part, name, now) for name in names])

    def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Write to the store. Not allowed in a dry run."""
        assert self._database is not None
        return self._database.write_now(work)


def take_parts(
    home: Home, theirs: HermesHome, parts: Sequence[str], consent: Consent, *, dry: bool
) -> dict[str, list[ImportOutcome]]:
    """Import the requested parts of `PARTS`, one after the other. Each part is durable before the next
    begins."""
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
        on = [*theirs.enabled_plugins(), *([provider] if provider else [])]
        report["plugins"] = hermes_plugins.import_plugins(home, folders, on, consent, dry=dry)
        if provider:
            is_found = provider in {folder.name for folder in folders}
            report["plugins"] += import_memory(home, theirs.root, provider, is_found=is_found, dry=dry)
    later_parts = [part for part in ("persona", "mcp", "chats", "schedules") if part in parts]
    if later_parts:
        with _Records(home, consent, dry=dry) as records:
            for part in later_parts:
                report[part] = _TAKE[part](home, theirs, settings, records, dry)
    return report


def _persona(
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
        records.keep(part, [result.what for result in results if result.how == "set"])
    return results


def _mcp(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[ImportOutcome]:
    servers, skipped = hermes_mcp.read(settings, theirs.env())
    results = hermes_mcp.import_servers(home, servers, records.imported_names(hermes_mcp.PART), dry=dry)
    if not dry:
        records.keep(hermes_mcp.PART, [result.what for result in results if result.how in ("set", "kept")])
    return results + skipped


def _chats(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[ImportOutcome]:
    part = hermes_chats.PART
    channels, skipped = hermes_chats.read(settings, theirs.env())
    results = hermes_chats.import_channels(
        home, channels, records.imported_names(part), dry=dry, check=parse_gateway
    )
    if not dry and any(result.how == "set" for result in results):
        records.keep(part, [part])
    try:
        people = theirs.read_paired_people()
    except ConfigError as error:
        return [*results, *skipped, ImportOutcome("pairing", "left", error.message)]
    return [*results, *skipped, *_let_in(people, records, dry)]


def _let_in(people: Sequence[paired.PairedPerson], records: _Records, dry: bool) -> list[ImportOutcome]:
    """Pair the people who had paired with a code in Hermes. People whose pairing was removed here stay
    unpaired."""
    before, results, now = records.imported_names(_PAIRED), list[ImportOutcome](), iso(records.clock.now())
    for person in people:
        name = f"{person.channel} {person.user}"
        if name in before or records.ask(
            lambda db, pairing=person: paired.is_paired(db, pairing.channel, pairing.user)
        ):
            results.append(ImportOutcome(name, "kept", "came before, or is let in already"))
            continue

        def work(db: apsw.Connection, pairing: paired.PairedPerson = person, name: str = name) -> None:
            paired.add_person(db, msgspec.structs.replace(pairing, since=pairing.since or now))
            imported_items.record_name(db, ORIGIN, _PAIRED, name, now)

        if not dry:
            records.write(work)
        results.append(
            ImportOutcome(name, "let in", "had a code there; gets a memory of their own, may approve nothing")
        )
    return results


def _schedules(
    home: Home, theirs: HermesHome, settings: dict[str, Any], records: _Records, dry: bool
) -> list[ImportOutcome]:
    ours = load(home, {}, environ=os.environ).settings
    env = theirs.env()
    try:
        defaults = hermes_cron.JobDefaults(
            time_zone=_zone(settings, env),
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
                job.schedule.name, lambda text: text in planned_names or records.ask(_has(text))
            )
            planned_names.add(name)
            results.append(hermes_cron.describe_schedule(job, name))
        else:
            results.append(records.write(_job_writer(job, records.clock)))
    return results + skipped


def _has(name: str) -> Callable[[apsw.Connection], bool]:
    return lambda db: schedules.has_name(db, name)


def _job_writer(job: hermes_cron.HermesJob, clock: SystemClock) -> Callable[[apsw.Connection], ImportOutcome]:
    """Return a function that stores a paused schedule and records its import in one transaction, so that two
    imports at once do not add it twice."""

    def work(db: apsw.Connection) -> ImportOutcome:
        if job.key in imported_items.list_names(db, ORIGIN, hermes_cron.PART):
            return ImportOutcome(job.schedule.name, "kept", "it came before")
        name = hermes_cron.choose_name(job.schedule.name, lambda text: schedules.has_name(db, text))
        schedule = msgspec.structs.replace(job.schedule, id=clock.new_id(), name=name)
        schedules.add(db, schedule, schedule.at or iso(clock.now()), clock)
        schedules.pause(db, schedule.id)
        imported_items.record_name(db, ORIGIN, hermes_cron.PART, job.key, iso(clock.now()))
        return hermes_cron.describe_schedule(job, name)

    return work


def _zone(settings: dict[str, Any], env: dict[str, str]) -> str:
    """Return the time zone of the Hermes jobs. Raises ConfigError if the zone is unknown."""
    zone = str(env.get("HERMES_TIMEZONE") or settings.get("timezone") or "") or local_zone()
    timing.find_zone(zone)
    return zone


_Take = Callable[[Home, HermesHome, "dict[str, Any]", _Records, bool], "list[ImportOutcome]"]
_TAKE: dict[str, _Take] = {"persona": _persona, "mcp": _mcp, "chats": _chats, "schedules": _schedules}
