"""Measure whether a template helps: first calls of sessions that were started with it, against held-out
sessions.

Only sessions whose arm was drawn by lot count. The interval is the wider of two: one treats calls as
independent, the other sessions. A template that does harm is switched off by two tests that may be repeated
after every session: against the held-out sessions, one by one, and, because these are few, against the
rate of recent cold sessions plus a margin. Together they switch off a template without effect with a
probability of at most 5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw
import msgspec

from whet.contract.texts import plural
from whet.stats import Interval, rate_difference, ratio_difference, sum_evidence, wilson
from whet.store import warm
from whet.store.warm import ArmCounts, TemplateState

FIRST_CALLS = 10
MIN_SESSIONS = 8
_LIMITS = 33, 50
"""Evidence against the held-out sessions and against the cold ones: 3 % and 2 %."""
_COLD_SESSIONS = 200
_MIN_COLD = 20
_MARGIN = 0.15


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
    if judge_harm(
        warm_rows[::-1],
        held_rows[::-1],
        lambda: warm.list_cold_calls(connection, FIRST_CALLS, _COLD_SESSIONS),
    ):
        verdict = "hurts"
    elif min(len(warm_rows), len(held_rows)) < MIN_SESSIONS:
        verdict = "too few"
    else:
        verdict = "helps" if gap.low > 0 else "no evidence"
    return TemplateUplift(len(warm_rows), len(held_rows), gap, verdict, max(wins, default=""))


def judge_harm(
    warm_rows: Sequence[ArmCounts],
    held_rows: Sequence[ArmCounts],
    read_cold: Callable[[], Sequence[ArmCounts]],
) -> bool:
    """Return whether first calls fail more often with the template, by tests that may be repeated.

    Both arms come oldest first. `read_cold` reads recent sessions without a template; it is seldom called.
    """
    rates, held_rates = ([row.failed / row.calls for row in rows] for rows in (warm_rows, held_rows))
    pairs = zip(rates, held_rates, strict=False)
    if sum_evidence(rate - held for rate, held in pairs) >= _LIMITS[0]:
        return True
    if sum_evidence(rate / _MARGIN - 1 for rate in rates) < _LIMITS[1]:
        return False  # not even against a rate of zero, so the cold sessions need not be read
    cold = read_cold()
    if len(cold) < _MIN_COLD:
        return False
    usual = wilson(sum(row.failed for row in cold), sum(row.calls for row in cold)).high + _MARGIN
    return sum_evidence(rate / usual - 1 for rate in rates) >= _LIMITS[1]


def rate_gap(first: Sequence[ArmCounts], second: Sequence[ArmCounts]) -> Interval:
    """Return the error rate of `first` minus that of `second`, with the wider interval of calls and sessions.

    If the first interval spans zero, the second is not computed, because it could not change the
    conclusion.
    """
    counts = [(sum(r.failed for r in rows), sum(r.calls for r in rows)) for rows in (first, second)]
    by_calls = rate_difference(*counts[0], *counts[1])
    if min(len(first), len(second)) < MIN_SESSIONS or by_calls.spans_zero:
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
        reason = f"first calls failed more often with it ({plural(result.warm_sessions, 'session')})"
    state = TemplateState(reason, max(result.last_win, before.last_win))
    if state != before:
        warm.set_state(connection, hash_, name, state, now)
    return result
