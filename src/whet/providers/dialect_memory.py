"""Store the dialects that were learned from refusals, so that later processes need not be refused again.

The file is one JSON object. Its keys are a wire format, address and model; its values the dialect, the tool
cuts and the day. An entry is valid for 30 days, because servers change; one without a day, which a person
wrote, is valid for ever. An invalid entry is kept and reported, but has no effect. Loaded only if the file
exists, and after a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.config.model_servers import ServerDialect
from whet.config.paths import lock_folder, replace_file
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_json, from_values
from whet.providers.tool_schemas import NO_CUTS, ToolCuts

_DAYS = 30
_MAX_ENTRIES = 100


class LearnedDialect(msgspec.Struct, frozen=True):
    """The dialect and tool cuts for one model of a server. `day`: when it was learned (ISO date), empty if a
    person wrote it."""

    dialect: ServerDialect = ServerDialect()
    cuts: ToolCuts = NO_CUTS
    day: str = ""


def read_dialect(path: Path, key: str, today: date) -> LearnedDialect | None:
    """Return the valid entry `key`, or None."""
    entries, _ = _read_entries(_read_raw(path))
    learned = entries.get(key)
    return learned if learned is not None and _is_valid(learned, today) else None


def note_dialect(path: Path, key: str, dialect: ServerDialect, cuts: ToolCuts, today: date) -> None:
    """Store an entry; durable on return, but nothing is done if the file can't be written. An entry that a
    person wrote stays without a day. Drops expired entries."""
    with suppress(WhetError), lock_folder(path.parent):
        raw = _read_raw(path)
        entries, _ = _read_entries(raw)
        kept: dict[str, object] = {
            name: value
            for name, value in raw.items()
            if name not in entries or _is_valid(entries[name], today)
        }
        before = entries.get(key)
        kept.pop(key, None)
        is_by_hand = before is not None and not before.day
        kept[key] = LearnedDialect(dialect, cuts, "" if is_by_hand else today.isoformat())
        _write(path, dict(list(kept.items())[-_MAX_ENTRIES:]))


def forget_dialects(path: Path) -> None:
    """Delete all learned entries, durable on return. Keeps those that a person wrote. Raises WhetError if the
    file can't be written."""
    with lock_folder(path.parent):
        raw = _read_raw(path)
        kept = {name: value for name, value in raw.items() if not _is_learned(value)}
        if kept != raw:
            _write(path, kept)


def _write(path: Path, entries: Mapping[str, object]) -> None:
    replace_file(path, msgspec.json.format(msgspec.json.encode(entries)).decode(), mode=0o600)


def read_dialects(path: Path, today: date) -> dict[str, LearnedDialect]:
    """Return all entries that are valid today, by wire format, address and model."""
    entries, _ = _read_entries(_read_raw(path))
    return {name: entry for name, entry in entries.items() if _is_valid(entry, today)}


def find_dialect_faults(path: Path) -> list[str]:
    """Return the errors in the file, one line each."""
    raw = _read_raw(path)
    if not raw and path.exists() and path.read_bytes().strip() not in (b"", b"{}"):
        return [f"{path} is not a JSON object of entries"]
    return _read_entries(raw)[1]


def describe_dialect(learned: LearnedDialect) -> str:
    """Return one line about the differences from the usual dialect."""
    usual = msgspec.structs.asdict(ServerDialect())
    parts = [
        f"{name} {_words(value)}"
        for name, value in msgspec.structs.asdict(learned.dialect).items()
        if value != usual[name]
    ]
    cuts = learned.cuts
    parts += [
        f"tools without {name} {_words(value)}"
        for name, value in (("names", cuts.names), ("keywords", cuts.keywords))
        if value
    ]
    parts += [f"{cuts.max_tools} tools at most"] if cuts.max_tools else []
    parts += [f"descriptions of {cuts.description_chars} characters"] if cuts.description_chars else []
    parts += ["no schema for tools without arguments"] if cuts.empty else []
    parts += ["plain schemas of tools"] if cuts.all_plain else []
    origin = f"learned {learned.day}" if learned.day else "set by hand"
    return f"{'; '.join(parts) or 'asked as usual'} ({origin})"


def _words(value: object) -> str:
    return ", ".join(map(str, cast("Sequence[object]", value))) if isinstance(value, tuple) else str(value)


def _is_valid(entry: LearnedDialect, today: date) -> bool:
    return not entry.day or entry.day >= (today - timedelta(days=_DAYS)).isoformat()


def _is_learned(value: object) -> bool:
    return isinstance(value, Mapping) and bool(cast("Mapping[str, object]", value).get("day"))


def _read_raw(path: Path) -> dict[str, Any]:
    try:
        return from_json(path.read_bytes(), dict[str, Any])
    except (OSError, *NOT_JSON):
        return {}


def _read_entries(raw: Mapping[str, Any]) -> tuple[dict[str, LearnedDialect], list[str]]:
    """Return the entries that can be read, and a line for each error."""
    entries: dict[str, LearnedDialect] = {}
    faults: list[str] = []
    for name, value in raw.items():
        try:
            entry = from_values(value, LearnedDialect)
        except msgspec.ValidationError as error:
            faults.append(f"{name}: {error}")
            continue
        unknown = [
            *_unknown(value, LearnedDialect),
            *_unknown(value.get("dialect", {}), ServerDialect),
            *_unknown(value.get("cuts", {}), ToolCuts),
        ]
        faults += [f"{name}: there is no {word}" for word in unknown]
        entries[name] = entry
    return entries, faults


def _unknown(value: Mapping[str, Any], kind: type[msgspec.Struct]) -> list[str]:
    return [name for name in value if name not in kind.__struct_encode_fields__]
