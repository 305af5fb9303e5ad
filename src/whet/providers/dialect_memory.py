"""Keep what model servers refused in a file, so that later processes ask them in the accepted way at once.

One JSON object: by wire format, address and model the dialect, the cut tools and the day. An entry counts for
30 days, as servers change, and one without a day for ever: a person wrote it. An entry that can't be read is
kept, reported and has no effect. Loaded if the file exists, and after a refusal.
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
    """How one model of a server is asked. `day`: when that was learned (ISO date), empty if a person wrote
    it."""

    dialect: ServerDialect = ServerDialect()
    cuts: ToolCuts = NO_CUTS
    day: str = ""


def read_dialect(path: Path, key: str, today: date) -> LearnedDialect | None:
    """Return what was learned of a server, or None."""
    entries, _ = _read_entries(_read_raw(path))
    learned = entries.get(key)
    return learned if learned is not None and _is_valid(learned, today) else None


def note_dialect(path: Path, key: str, dialect: ServerDialect, cuts: ToolCuts, today: date) -> None:
    """Keep what was learned of a server; durable on return unless the file can't be written. An entry that
    a person wrote stays one."""
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
        kept[key] = LearnedDialect(
            dialect, cuts, before.day and today.isoformat() if before else today.isoformat()
        )
        _write(path, dict(list(kept.items())[-_MAX_ENTRIES:]))


def forget_dialects(path: Path) -> None:
    """Delete what was learned of all servers, durable on return; entries that a person wrote stay. Raises
    WhetError if the file can't be written."""
    with lock_folder(path.parent):
        raw = _read_raw(path)
        kept = {name: value for name, value in raw.items() if not _is_learned(value)}
        if kept != raw:
            _write(path, kept)


def _write(path: Path, entries: Mapping[str, object]) -> None:
    replace_file(path, msgspec.json.format(msgspec.json.encode(entries)).decode(), mode=0o600)


def read_dialects(path: Path, today: date) -> dict[str, LearnedDialect]:
    """Return what was learned of every server that counts today, by wire format, address and model."""
    entries, _ = _read_entries(_read_raw(path))
    return {name: entry for name, entry in entries.items() if _is_valid(entry, today)}


def find_dialect_faults(path: Path) -> list[str]:
    """Return what can't be read in the file, one line for each entry."""
    raw = _read_raw(path)
    if not raw and path.exists() and path.read_bytes().strip() not in (b"", b"{}"):
        return [f"{path} is not a JSON object of entries"]
    return _read_entries(raw)[1]


def describe_dialect(learned: LearnedDialect) -> str:
    """Say in a line how a server is asked, where that differs from the usual way."""
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
    """Return the entries, and why others can't be read."""
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
