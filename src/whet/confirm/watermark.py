"""How far the log was seen to go, in files beside the database, so that an older copy of it shows."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from whet.config.paths import read_small
from whet.confirm.records import AuditEvent
from whet.contract.texts import NOT_JSON, from_json

_WIDTH = 512
_encode = msgspec.json.Encoder().encode


class LogMark(msgspec.Struct, frozen=True):
    """How far the log was seen to go, by whom; `head` is the hash of its event `size` in hex."""

    size: int
    head: str
    where: str = ""


class Watermark:
    """A small file beside the database that says how far the log goes, written after every commit.

    Not synced: after a crash it may say less than there is, never more.
    """

    def __init__(self, path: Path, database: Path) -> None:
        self._path = path
        self._database = str(database.absolute())
        self._handle = -1

    def read(self) -> LogMark | None:
        """Give what it says of this database; None where it says nothing."""
        try:
            found = from_json(read_small(self._path) or "", LogMark)
        except msgspec.DecodeError:
            return None
        return found if found.where == self._database else None

    def note(self, event: AuditEvent) -> None:
        """Say that `event` is in the log."""
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
    """Give the newest checkpoint of a file of them; None where there is none that can be read."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        found = from_json(lines[-1], LogMark) if lines else None
    except (OSError, *NOT_JSON):
        return None
    return found and LogMark(found.size, found.head, str(path))
