"""Write a team's metrics in the Prometheus text format: queue, leases, questions, durations of turns.

They contain no names of people, sessions or models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import apsw

from whet.store.team_status import COUNTS

_ASKED = f"""
SELECT {COUNTS} (SELECT coalesce(extract(epoch FROM now() - min(lease_until)), 0)::float8 FROM claims
   WHERE lease_until < now()),
  (SELECT count(*) FROM team_questions WHERE answer IS NULL AND until > now())
"""
_NAMES = (
    ("whet_queue_waiting", "turns that wait for a worker"),
    ("whet_queue_running", "turns that a worker has"),
    ("whet_queue_aside", "turns that were set aside, because workers stopped while they ran them"),
    ("whet_queue_oldest_seconds", "how long the oldest of them has waited"),
    ("whet_leases_held", "sessions whose lease runs"),
    ("whet_leases_run_out", "sessions whose lease ran out and that nobody has taken over"),
    ("whet_lease_overdue_seconds", "how long ago the first of these ran out"),
    ("whet_questions_waiting", "questions that wait for a person"),
)
_LATELY = """
SELECT reason, count(*), sum(attempts - 1),
  percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM ended - asked)::float8)
FROM team_turns WHERE state = 'done' AND ended > now() - interval '5 minutes' GROUP BY reason ORDER BY reason
"""


class WorkerCounts:
    """The counters of one worker."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.fenced = 0
        self.running = 0

    def text(self) -> str:
        """Return the counters in the Prometheus text format."""
        ended = [(f'{{reason="{reason}"}}', count) for reason, count in sorted(self.ended.items())]
        return (
            _format("whet_worker_turns_running", "turns that this worker runs", [("", self.running)])
            + _format("whet_worker_turns_total", "turns that ended at this worker", ended, kind="counter")
            + _format(
                "whet_worker_fenced_total",
                "turns that another worker had taken over",
                [("", self.fenced)],
                kind="counter",
            )
        )


def team_text(connection: apsw.Connection) -> str:
    """Return the team's metrics in the Prometheus text format. Durations and take-overs are those of the last
    five minutes."""
    row = connection.execute(_ASKED).fetchone()
    assert row is not None  # an aggregate query always returns a row
    text = "".join(
        _format(name, help_, [("", value)]) for (name, help_), value in zip(_NAMES, row, strict=True)
    )
    ended: list[tuple[str, float]] = []
    seconds: list[tuple[str, float]] = []
    retaken_count = 0
    for reason, count, retaken, quantiles in connection.execute(_LATELY).fetchall():
        retaken_count += int(retaken)
        ended.append((f'{{reason="{reason}"}}', count))
        seconds += [
            (f'{{reason="{reason}",quantile="{quantile}"}}', value)
            for quantile, value in zip((0.5, 0.95, 0.99), quantiles, strict=True)
        ]
    return (
        text
        + _format("whet_turns_ended", "turns that ended in the last five minutes", ended)
        + _format("whet_turn_seconds", "from asking for these turns to their ends", seconds)
        + _format("whet_turns_taken_over", "take-overs in these turns", [("", retaken_count)])
    )


def _format(name: str, help_: str, samples: Iterable[tuple[str, float]], *, kind: str = "gauge") -> str:
    """Return a metric as text. Each sample is its labels and its value."""
    lines = [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        number = f"{value:.3f}" if isinstance(value, float) else str(value)
        lines.append(f"{name}{labels} {number}")
    return "".join(f"{line}\n" for line in lines)
