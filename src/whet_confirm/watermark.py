"""Stores the log's last known end in a file beside the database, to detect an older copy of the database."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from whet.config.paths import read_small
from whet.contract.texts import NOT_JSON, from_json
from whet_confirm.records import AuditEvent

_WIDTH = 512
_encode = msgspec.json.Encoder().encode


class LogMark(msgspec.Struct, frozen=True):
    """A known end of the log and its source. `head` is the hash of event `size` in hex."""

    size: int
    head: str
    where: str = ""


class Watermark:
    """A small file beside the database with the end of the log, written after every commit.

    Not synced: after a crash it may be behind the log, never ahead.
    """

    def __init__(self, path: Path, database: Path) -> None:
        self._path = path
        self._database = str(database.absolute())
        self._handle = -1

    def read(self) -> LogMark | None:
        """Return the mark for this database, or None."""
        try:
            mark = from_json(read_small(self._path) or "", LogMark)
        except msgspec.DecodeError:
            return None
        return mark if mark.where == self._database else None

    def write(self, event: AuditEvent) -> None:
        """Record that `event` is in the log."""
        if self._handle < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._handle = os.open(self._path, flags, 0o600)
        line = _encode(LogMark(event.id, event.hash.hex(), self._database))
        os.pwrite(self._handle, line.ljust(_WIDTH - 1) + b"\n", 0)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def last_mark(path: Path) -> LogMark | None:
    """Return the newest checkpoint in a file, or None if none can be read."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        mark = from_json(lines[-1], LogMark) if lines else None
    except (OSError, *NOT_JSON):
        return None
    return mark and LogMark(mark.size, mark.head, str(path))
