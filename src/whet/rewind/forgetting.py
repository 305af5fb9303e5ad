"""Deletes the records of deleted sessions, in every workspace of a home."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from whet.clock import Clock
from whet.rewind import database
from whet.rewind.database import RecordFile
from whet.rewind.pruning import forget_sessions
from whet.rewind.recorder import hold_lock


def forget_all_but(folder: Path, existing: Callable[[set[str]], set[str]], clock: Clock) -> int:
    """Delete the records of sessions that `existing` does not return, and return how many there were."""
    count = 0
    for path in sorted(folder.glob("*/files.db")):
        with (
            hold_lock(path.parent),
            closing(RecordFile.open_file(path, clock.now().isoformat(), 10.0)) as file,
        ):
            recorded = file.read_now(database.list_sessions)
            count += forget_sessions(file, recorded - existing(recorded))
    return count
