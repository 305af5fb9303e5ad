"""Measure whether a template helps: first calls of sessions that were started with it, against held-out
sessions.

Only sessions whose arm was drawn by lot count. The interval is the wider of two: one treats calls as
independent, the other sessions. A template whose interval lies below zero is switched off.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from whet.stats import Interval, rate_difference, ratio_difference
from whet.store import warm
from whet.store.warm import ArmCounts, TemplateState

FIRST_CALLS = 10
LEAST_SESSIONS = 8


class TemplateUplift(msgspec.Struct, frozen=True):
    """How much lower the error rate of the first calls is with the template: held out minus warm. `verdict`
    is one of helps, hurts, no evidence, too few."""

    warm_sessions: int
    held_out_sessions: int
    interval: Interval
    verdict: str
    last_win: str = ""


def measure_uplift(connection: apsw.Connection, hash_: str) -> TemplateUplift:
    """Measure a template from its use."""
    rows = warm.list_first_calls(connection, hash_, FIRST_CALLS)
    warm_rows = [row for row in rows if row.arm == "warm"]
    held_rows = [row for row in rows if row.arm == "held_out"]
    gap = rate_gap(held_rows, warm_rows)
    wins = [row.at for row in warm_rows if row.failed == 0]
    if min(len(warm_rows), len(held_rows)) < LEAST_SESSIONS:
        verdict = "too few"
    else:
        verdict = "helps" if gap.low > 0 else "hurts" if gap.high < 0 else "no evidence"
    return TemplateUplift(len(warm_rows), len(held_rows), gap, verdict, max(wins, default=""))


def rate_gap(first: Sequence[ArmCounts], second: Sequence[ArmCounts]) -> Interval:
    """Return the error rate of `first` minus that of `second`, with the wider interval of calls and sessions.

    If the first interval spans zero, the second is not computed, because it could not change the
    conclusion.
    """
    counts = [(sum(r.failed for r in rows), sum(r.calls for r in rows)) for rows in (first, second)]
    by_calls = rate_difference(*counts[0], *counts[1])
    if min(len(first), len(second)) < LEAST_SESSIONS or by_calls.spans_zero:
        return by_calls  # the wider one would span zero too
    by_sessions = ratio_difference(_clusters(first), _clusters(second))
    low, high = min(by_calls.low, by_sessions.low), max(by_calls.high, by_sessions.high)
    return Interval(by_calls.estimate, low, high)


def _clusters(rows: Sequence[ArmCounts]) -> list[tuple[int, int]]:
    return [(row.failed, row.calls) for row in rows]


def update_verdict(connection: apsw.Connection, hash_: str, name: str, now: str) -> TemplateUplift:
    """Measure a template and switch it off if it does harm; a switched-off template stays off.

    Cheap if no measurement speaks against it.
    """
    result = measure_uplift(connection, hash_)
    before = warm.list_states(connection).get(hash_, TemplateState())
    reason = before.off_reason
    if not reason and result.verdict == "hurts":
        low, high = result.interval.low * 100, result.interval.high * 100
        reason = f"first calls failed more often with it ({low:+.0f} to {high:+.0f} points)"
    state = TemplateState(reason, max(result.last_win, before.last_win))
    if state != before:
        warm.set_state(connection, hash_, name, state, now)
    return result
