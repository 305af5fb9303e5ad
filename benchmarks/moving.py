"""How fast another agent's sessions move in, searchable at the end, and whether each message is there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw

from benchmarks.hermes_db import fill
from benchmarks.measure import median
from benchmarks.measure import run as measured
from benchmarks.startup import WHET
from benchmarks.table import Row


def run(runs: int, full: bool) -> list[Row]:
    """Import 10,000 made-up sessions of Hermes Agent's schema, `runs` times into a new home."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = Path(folder) / "theirs"
        theirs.mkdir()
        total = fill(theirs / "state.db", 10_000, 12)
        samples = []
        home = Path(folder)
        for number in range(max(runs, 3)):
            home = Path(folder) / f"home-{number}"
            command = [WHET, "import", "hermes", str(theirs), "--only", "sessions"]
            samples.append(measured(command, WHET_HOME=str(home)))
        found = apsw.Connection(str(home / "state.db"))
        indexed = "SELECT count(*) FROM messages_fts WHERE rowid % 2 = 0"
        counts = f"SELECT (SELECT count(*) FROM messages), ({indexed})"
        (stored,) = found.execute(counts)
        found.close()
    rate = total / median([sample.wall_s for sample in samples])
    cpu_s = median([sample.cpu_s for sample in samples])
    whole = stored == (total, total)
    return [
        Row(
            "import",
            f"import of 10,000 Hermes Agent sessions ({total:,} messages), indexed",
            "≥ 20,000 messages per second of CPU, every message found",
            f"{total / cpu_s:,.0f}/s ({1e6 * cpu_s / total:.0f} µs a message), by the clock {rate:,.0f}/s;"
            f" {stored[1]:,} of {total:,} in the index",
            "none published",
            whole and total / cpu_s >= 20_000,
            "python -m benchmarks moving",
        )
    ]
