"""The list of sessions with a query, at 10,000 and at 100,000 sessions: `python -m benchmarks session-list`.

CPU of one call, the median of many, for what a person types: words that a few old sessions have in their
titles, one that many have, one that none has, the beginning of an id, and one or two characters.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import apsw

from benchmarks.measure import median
from benchmarks.store import vocabulary
from benchmarks.table import Row
from whet.clock import SystemClock
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession

_GOAL_MS = 10.0
_SIZES = (10_000, 100_000)
QUERIES = {
    "rare": "harbour plan",
    "common": "the",
    "absent": "zyzzyva",
    "id": "s00000",
    "two letters": "of",
    "two that none has": "zq",
    "one": "^",
}


def run(runs: int, _full: bool) -> list[Row]:
    """Measure each kind of query at both sizes."""
    found = {size: _at(size, max(runs, 3)) for size in _SIZES}
    told = [f"{kind} {found[_SIZES[0]][kind]:.2f} → {found[_SIZES[1]][kind]:.2f}" for kind in QUERIES]
    worst = max(found[_SIZES[1]].values())
    return [
        Row(
            "session-list",
            "list of sessions with a query, 10,000 → 100,000 sessions, CPU ms",
            f"≤ {_GOAL_MS:.0f} ms at 100,000",
            ", ".join(told),
            "none measured",
            worst <= _GOAL_MS,
            "python -m benchmarks session-list",
        )
    ]


def _at(size: int, runs: int) -> dict[str, float]:
    rng, words = random.Random(7), vocabulary(random.Random(7))
    with tempfile.TemporaryDirectory() as name:
        database = StateDatabase.open(Path(name) / "state.db", SystemClock())
        try:

            def fill(connection: apsw.Connection) -> None:
                for number in range(size):
                    title = " ".join(["the", *rng.choices(words, k=5)])
                    if number % (size // 10) == 7:
                        title = f"Harbour plan {number}"
                    at = f"2026-11-{1 + number * 20 // size:02}T00:00:00.{number % 1000:03}Z"
                    sessions.create(connection, NewSession(id=f"s{number:09}", title=title), at)

            database.write_now(fill)
            return {
                kind: median([_once(database, query) for _ in range(runs)]) for kind, query in QUERIES.items()
            }
        finally:
            database.close()


def _once(database: StateDatabase, query: str) -> float:
    began = time.thread_time()
    database.read_now(lambda db: sessions.list_sessions(db, 50, query=query))
    return (time.thread_time() - began) * 1000
