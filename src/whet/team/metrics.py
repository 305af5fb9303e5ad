"""A team's metrics in the Prometheus text format: queue, leases, questions, duration of turns. No names."""

from __future__ import annotations

from collections import Counter

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
        """Return the counters as text."""
        lines = [
            *_gauge("whet_worker_turns_running", "turns that this worker runs", self.running),
            "# HELP whet_worker_turns_total turns that ended at this worker",
            "# TYPE whet_worker_turns_total counter",
            *(f'whet_worker_turns_total{{reason="{why}"}} {n}' for why, n in sorted(self.ended.items())),
            "# HELP whet_worker_fenced_total turns that another worker had taken over",
            "# TYPE whet_worker_fenced_total counter",
            f"whet_worker_fenced_total {self.fenced}",
        ]
        return "\n".join(lines) + "\n"


def team_text(connection: apsw.Connection) -> str:
    """Read the team's metrics and return them as text. Latency and take-overs cover the last five minutes."""
    row = connection.execute(_ASKED).fetchone()
    assert row is not None  # an aggregate query always returns a row
    lines = [
        line for (name, help_), value in zip(_NAMES, row, strict=True) for line in _gauge(name, help_, value)
    ]
    lines += [
        "# HELP whet_turn_seconds from asking for a turn to its end, of the last five minutes",
        "# TYPE whet_turn_seconds gauge",
    ]
    again = 0
    for reason, count, retaken, quantiles in connection.execute(_LATELY).fetchall():
        again += int(retaken)
        lines.append(f'whet_turns_ended{{reason="{reason}"}} {count}')
        lines += [
            f'whet_turn_seconds{{reason="{reason}",quantile="{at}"}} {seconds:.3f}'
            for at, seconds in zip((0.5, 0.95, 0.99), quantiles, strict=True)
        ]
    lines += _gauge("whet_turns_taken_over", "take-overs in turns of the last five minutes", again)
    return "\n".join(lines) + "\n"


def _gauge(name: str, help_: str, value: float) -> tuple[str, ...]:
    number = f"{value:.3f}" if isinstance(value, float) else str(value)
    return f"# HELP {name} {help_}", f"# TYPE {name} gauge", f"{name} {number}"
