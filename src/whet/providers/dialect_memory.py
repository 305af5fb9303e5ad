"""Keep what model servers refused in a file, so that later processes ask them in the accepted way at once.

One JSON object: by wire format, address and model the dialect, the cut tools and the day. An entry counts for
30 days, as servers change; a person may delete entries or the file. A file that can't be read or written
counts as empty. Loaded if the file exists, and after a refusal.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import msgspec

from whet.config.model_servers import ServerDialect
from whet.config.paths import replace_file
from whet.contract.errors import ConfigError
from whet.contract.texts import NOT_JSON, from_json
from whet.providers.tool_schemas import ToolCuts

_DAYS = 30
_MAX_ENTRIES = 100


class LearnedDialect(msgspec.Struct, frozen=True):
    """How one model of a server is asked. `day`: when that was learned (ISO date)."""

    dialect: ServerDialect
    cuts: ToolCuts
    day: str


def read_dialect(path: Path, key: str, today: date) -> LearnedDialect | None:
    """Return what was learned of a server, or None."""
    learned = _read_all(path).get(key)
    return learned if learned is not None and learned.day >= _oldest(today) else None


def note_dialect(path: Path, key: str, dialect: ServerDialect, cuts: ToolCuts, today: date) -> None:
    """Keep what was learned of a server; durable on return unless the file can't be written."""
    entries = {name: entry for name, entry in _read_all(path).items() if entry.day >= _oldest(today)}
    entries.pop(key, None)
    entries[key] = LearnedDialect(dialect, cuts, today.isoformat())
    newest = dict(list(entries.items())[-_MAX_ENTRIES:])
    text = msgspec.json.format(msgspec.json.encode(newest)).decode()
    with suppress(ConfigError):
        replace_file(path, text, mode=0o600)


def _oldest(today: date) -> str:
    return (today - timedelta(days=_DAYS)).isoformat()


def _read_all(path: Path) -> dict[str, LearnedDialect]:
    try:
        return from_json(path.read_bytes(), dict[str, LearnedDialect])
    except (OSError, *NOT_JSON):
        return {}
