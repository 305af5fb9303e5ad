"""Error rates by tool, by position in a session and by session length, and whether long sessions err less.

Lower error rates of long sessions may only mean that bad sessions end early. So the verdict compares calls
within the same session and tool: the later half against the earlier half. The outcomes must already be in
the store (`label.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import apsw
import msgspec

from whet.stats import Interval, typical_mean, wilson
from whet.store import calls
from whet.warm.mine import ToolTally

POSITIONS = ("1-10", "11-30", "31-100", "over 100")
LENGTHS = ("under 10", "10-29", "30-99", "100 and more")
_BEGINNINGS = (10, 30, 100)
_MIN_IN_HALF = 2
_MIN_SESSIONS = 10


class Rate(msgspec.Struct, frozen=True):
    """Failed calls of all calls, with the interval of the rate."""

    label: str
    calls: int
    failed: int
    rate: Interval


class Rates(msgspec.Struct, frozen=True):
    """The rates of the store. `within` is later minus earlier half of the same session and tool, over
    `compared` sessions; below zero means that later calls err less."""

    sessions: int
    calls: int
    by_tool: tuple[Rate, ...]
    by_position: tuple[Rate, ...]
    by_length: tuple[Rate, ...]
    within: Interval
    compared: int
    verdict: str


class _Sums:
    def __init__(self) -> None:
        self.sessions = 0
        self.by_tool: dict[str, ToolTally] = {}
        self.by_position = [ToolTally() for _ in POSITIONS]
        self.by_length = [ToolTally() for _ in LENGTHS]
        self.gaps: list[float] = []
        self._key = -1
        self._run: list[tuple[str, bool]] = []

    def add_call(self, key: int, name: str, position: int, outcome: str) -> None:
        """Add one call; a session's calls arrive together and in order."""
        if outcome in ("denied", "unknown"):
            return
        if key != self._key:
            self.end_session()
            self._key = key
        failed = outcome == "failed"
        self.by_tool.setdefault(name, ToolTally()).add(failed)
        self.by_position[bisect_right(_BEGINNINGS, position)].add(failed)
        self._run.append((name, failed))

    def end_session(self) -> None:
        """Add the session that has ended."""
        run, self._run = self._run, []
        if not run:
            return
        self.sessions += 1
        tally = self.by_length[bisect_right(_BEGINNINGS, len(run))]
        tally.calls += len(run)
        tally.failed += sum(failed for _, failed in run)
        if (gap := _gap(run)) is not None:
            self.gaps.append(gap)


def _gap(run: list[tuple[str, bool]]) -> float | None:
    """Return later minus earlier error rate within a session, per tool, weighted by its calls; None if it is
    too short."""
    weighted = total = 0.0
    for tool in {name for name, _ in run}:
        failures = [failed for name, failed in run if name == tool]
        half = len(failures) // 2
        if half < _MIN_IN_HALF:
            continue
        early, late = failures[:half], failures[-half:]
        weighted += (sum(late) / half - sum(early) / half) * len(failures)
        total += len(failures)
    return weighted / total if total else None


def measure(connection: apsw.Connection) -> Rates:
    """Read every judged call of the store, once."""
    sums = _Sums()
    calls.visit_outcomes(connection, sums.add_call)
    sums.end_session()
    within = typical_mean(sums.gaps)
    tools = sorted(sums.by_tool.items(), key=lambda row: (-row[1].calls, row[0]))
    return Rates(
        sessions=sums.sessions,
        calls=sum(tally.calls for tally in sums.by_tool.values()),
        by_tool=tuple(_rate(name, tally) for name, tally in tools),
        by_position=_rates(POSITIONS, sums.by_position),
        by_length=_rates(LENGTHS, sums.by_length),
        within=within,
        compared=len(sums.gaps),
        verdict=_verdict(within, len(sums.gaps)),
    )


def _rate(label: str, tally: ToolTally) -> Rate:
    return Rate(label, tally.calls, tally.failed, wilson(tally.failed, tally.calls))


def _rates(labels: Sequence[str], tallies: list[ToolTally]) -> tuple[Rate, ...]:
    return tuple(_rate(label, tally) for label, tally in zip(labels, tallies, strict=True) if tally.calls)


def _verdict(within: Interval, compared: int) -> str:
    if compared < _MIN_SESSIONS:
        return (
            f"No evidence either way: only {compared} sessions have a tool with {2 * _MIN_IN_HALF} or more "
            f"calls; {_MIN_SESSIONS} are needed."
        )
    points = f"{abs(within.estimate) * 100:.1f} points, {compared} sessions"
    if within.high < 0:
        return f"Long sessions err less here: later calls of the same session and tool fail less ({points})."
    if within.low > 0:
        return f"Long sessions err more here: later calls of the same session and tool fail more ({points})."
    return (
        "No evidence that long sessions err less here: within the same session and tool the interval spans "
        "zero. A lower rate of long sessions above may only mean that bad sessions end early."
    )
