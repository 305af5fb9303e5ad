"""Read the state folder of OpenClaw, `~/.openclaw`: its sessions, and the notes in its agents' workspaces.

Each agent has a database, `agents/<agent>/agent/openclaw-agent.sqlite`, whose events are entries like pi's.
They are JSON; long ones are compressed by zstd. Older versions wrote the entries to files,
`agents/<agent>/sessions/*.jsonl`. Sessions of helpers are left out. Source: state of the versions 2026.6.11
and 2026.9.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec

from whet.contract.errors import ConfigError
from whet.contract.texts import NOT_JSON
from whet.moving import notes, pi
from whet.moving.copies import check_tables, open_copy
from whet.moving.importing import ImportOutcome
from whet.moving.lines import JsonLines
from whet.moving.notes import Note
from whet.moving.pairing import text_in
from whet.moving.tables import ForeignTable, check_columns
from whet.moving.zstd import unpack_bytes
from whet.store.bulk import PastSession
from whet.store.sessions import NewSession

ORIGIN = "openclaw"
_HINT = "it has an openclaw.json; ~/.openclaw by default"
_REQUIRED_COLUMNS = {
    "session_windows": ("session_id",),
    "transcript_events": ("session_id", "seq", "event_json"),
}
_MAX_EVENT_BYTES = 4_194_304
_SUPERSEDED = re.compile(r"<!--[^>]*\bsuperseded\b[^>]*-->\s*^- .*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_PLACEHOLDER = re.compile(r"^- .*\.\.\.\s*$", re.MULTILINE)
_UNFILLED = re.compile(
    r"^\s*(?:- )?(?:\*\*[^*\n]+:\*\*[ \t]*)?(?:_.*_|---+|\[[^\]\n]*\]\([^)\n]*\))?[ \t]*$", re.MULTILINE
)
"""A line of a form that nobody filled in: a label, advice in italics, a rule or a link."""
_TRAJECTORY = ".trajectory.jsonl"
_DIRECTIVES = "## Directives"


class Unread(msgspec.Struct):
    """Counts of unreadable lines and events, of compressed events and of sessions in archives, and the
    columns that a database lacks."""

    events: int = 0
    compressed: int = 0
    archived: int = 0
    missing_columns: tuple[str, ...] = ()

    def notice(self) -> str:
        """Return a line for the person, or "" if all was read."""
        parts: list[str] = []
        if self.events:
            parts.append(f"{self.events} unreadable events")
        if self.compressed:
            parts.append(f"{self.compressed} compressed events (install zstd, then import again)")
        if self.archived:
            parts.append(f"{self.archived} sessions in archives (open them in OpenClaw, then import again)")
        notices = [f"left out: {', '.join(parts)}"] if parts else []
        notices += [f"the database has no {', '.join(self.missing_columns)}"] if self.missing_columns else []
        return "; ".join(notices)


class OpenClawHome:
    """A state folder of OpenClaw. Raises ConfigError if it is not one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.databases: list[Path] = sorted(root.glob("agents/*/agent/openclaw-agent.sqlite"))
        files = sorted(root.glob("agents/*/sessions/*.jsonl"))
        helpers = {
            name for file in root.glob("agents/*/sessions/sessions.json") for name in _helpers_in(file)
        }
        self.transcripts: list[Path] = [
            path for path in files if not path.name.endswith(_TRAJECTORY) and path.stem not in helpers
        ]
        self.unread: Unread = Unread()
        if not (self.databases or self.transcripts or (root / "openclaw.json").is_file()):
            raise ConfigError(
                f"{root} is not a state folder of OpenClaw",
                hint=_HINT,
            )

    def count(self) -> int:
        """Return the number of sessions. Raises ConfigError if a database is damaged."""
        total = len(self.transcripts)
        for path in self.databases:
            with open_copy(path) as connection:
                check_columns(connection, f"{path} is not OpenClaw's", _REQUIRED_COLUMNS, hint=_HINT)
                check_tables(connection, tuple(_REQUIRED_COLUMNS))
                total += len(_session_rows(connection))
        return total

    def sessions(self) -> Iterator[PastSession]:
        """Yield the sessions with user messages, agent by agent, oldest first."""
        for path in self.transcripts:
            lines = JsonLines(path, pi.entry_decoder)
            past = pi.read_entries(list(lines), NewSession(id=path.stem, source=ORIGIN))
            self.unread.events += lines.bad
            if past is not None:
                yield past
        for path in self.databases:
            with open_copy(path) as connection:
                yield from self._sessions_in(connection)

    def _sessions_in(self, connection: apsw.Connection) -> Iterator[PastSession]:
        nodes, windows = _session_tables(connection)
        self.unread.missing_columns += (*nodes.missing, *windows.missing)
        for session_id, title, is_archived in _session_rows(connection):
            if is_archived:
                self.unread.archived += 1
                continue
            entries = self._entries(connection, session_id)
            past = pi.read_entries(entries, NewSession(id=session_id, source=ORIGIN, title=title))
            if past is not None:
                yield past

    def _entries(self, connection: apsw.Connection, session_id: str) -> list[pi.Entry]:
        columns = ("event_json", "event_zstd", "event_utf8_bytes")
        events = ForeignTable(connection, "transcript_events", columns, binary=("event_zstd",))
        rows = [
            tuple(row[column] for column in columns)
            for row in events.rows("WHERE session_id = ? ORDER BY seq", (session_id,))
        ]
        packed = [(frame, size) for text, frame, size in rows if text is None]
        unpacked = iter(_unpack(packed))
        entries = list[pi.Entry]()
        for text, _, _ in rows:
            event = str(text) if text is not None else next(unpacked)
            if event is None:
                self.unread.compressed += 1
                continue
            try:
                entries.append(pi.entry_decoder.decode(event))
            except NOT_JSON:
                self.unread.events += 1
        return entries

    def workspaces(self) -> list[Path]:
        """Return the existing workspaces of its agents: those in its settings, or the default one."""
        try:
            settings: Any = msgspec.json.decode((self.root / "openclaw.json").read_bytes())
        except (OSError, *NOT_JSON):  # it may have comments, which JSON has not
            settings = None
        names = list(dict.fromkeys(_workspaces_in(settings))) or [str(self.root / "workspace")]
        return [path for path in (Path(name).expanduser() for name in names) if path.is_dir()]

    def notes(self) -> tuple[list[Note], list[ImportOutcome]]:
        """Return the notes in MEMORY.md and USER.md of the workspaces, and an outcome for each other file."""
        all_notes: list[Note] = []
        left_out: list[ImportOutcome] = []
        for workspace in self.workspaces():
            own_notes, skipped = notes.read(workspace, _without_form)
            all_notes += own_notes
            left_out += skipped
            if days := len(list(workspace.glob("memory/*.md"))):
                why = f"{days} files, a diary; they stay in {workspace / 'memory'}"
                left_out.append(ImportOutcome("memory/", "left", why))
        return all_notes, left_out


def _session_rows(connection: apsw.Connection) -> list[tuple[str, str, bool]]:
    """Return the id and the title of each session that is not a helper's, and whether it is in an archive."""
    node_rows, window_rows = _session_tables(connection)
    nodes: dict[Any, dict[str, Any]] = {
        row["session_key"]: row for row in node_rows.rows() if row["session_key"] is not None
    }
    with_events = {
        row[0] for row in connection.execute("SELECT DISTINCT session_id FROM transcript_events").fetchall()
    }
    windows = [
        {**row, "created_at": row["created_at"] if isinstance(row["created_at"], int) else 0}
        for row in window_rows.rows()
    ]
    sessions = list[tuple[str, str, bool]]()
    for window in sorted(windows, key=lambda row: (row["created_at"], str(row["session_id"]))):
        node = nodes.get(window["session_key"]) or {}
        if window["spawned_by"] or node.get("spawned_by"):
            continue
        titles = (node.get("label"), node.get("display_name"), window["display_name"])
        title = next((text for text in map(text_in, titles) if text), "")
        session_id = str(window["session_id"])
        sessions.append((session_id, title, session_id not in with_events))
    return sessions


def _session_tables(connection: apsw.Connection) -> tuple[ForeignTable, ForeignTable]:
    nodes = ("session_key", "label", "display_name", "spawned_by")
    windows = ("session_id", "session_key", "display_name", "spawned_by", "created_at")
    return (
        ForeignTable(connection, "session_nodes", nodes),
        ForeignTable(connection, "session_windows", windows),
    )


def _unpack(packed: list[tuple[Any, Any]]) -> list[bytes | None]:
    """Return the events in zstd frames (frame, size of the event), or None for each without zstd."""
    failed: list[bytes | None] = [None] * len(packed)
    if not packed or not all(_is_frame(frame, size) for frame, size in packed):
        return failed
    sizes: list[int] = [size for _, size in packed]
    unpacked = unpack_bytes(b"".join(frame for frame, _ in packed))
    if unpacked is None or len(unpacked) != sum(sizes):
        return failed
    start = 0
    events: list[bytes | None] = []
    for size in sizes:
        events.append(unpacked[start : start + size])
        start += size
    return events


def _is_frame(frame: object, size: object) -> bool:
    return isinstance(frame, bytes) and isinstance(size, int) and 0 < size <= _MAX_EVENT_BYTES


def _without_form(name: str, text: str) -> str:
    """Return a notes file without the text of its template. USER.md has notes only below its directives."""
    if name == "USER.md" and _DIRECTIVES in text:
        section = text.partition(_DIRECTIVES)[2].partition("\n## ")[0]
        text = f"{_DIRECTIVES}\n{section[section.find('<!--') :]}" if "<!--" in section else ""
    return _UNFILLED.sub("", _PLACEHOLDER.sub("", _COMMENT.sub("", _SUPERSEDED.sub("", text))))


def _helpers_in(index: Path) -> Iterator[str]:
    """Yield the ids of helpers' sessions in an older version's list of sessions."""
    try:
        entries: Any = msgspec.json.decode(index.read_bytes())
    except (OSError, *NOT_JSON):
        return
    for key, value in _to_fields(entries).items():
        entry = _to_fields(value)
        if ":subagent:" in key or entry.get("spawnedBy"):
            yield str(entry.get("sessionId") or "")


def _workspaces_in(settings: object) -> Iterator[str]:
    agents = _to_fields(_to_fields(settings).get("agents"))
    listed: object = agents.get("list")
    items = cast("list[object]", listed) if isinstance(listed, list) else []
    for fields in (_to_fields(agents.get("defaults")), *map(_to_fields, items)):
        if isinstance(name := fields.get("workspace"), str) and name:
            yield name


def _to_fields(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
