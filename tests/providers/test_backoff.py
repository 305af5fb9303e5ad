"""Back-off: which errors, how often, how long."""

from __future__ import annotations

import pytest

from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ContextOverflow,
    ProviderError,
    RateLimited,
    Unavailable,
    WireError,
)
from whet.providers.backoff import Backoff


def backoff(retries: int = 4) -> Backoff:
    return Backoff(retries, uniform=lambda low, high: high)


def test_the_cap_doubles_and_the_retries_end():
    waits = [backoff().wait_s(attempt, Unavailable("x")) for attempt in range(1, 6)]
    assert waits == [0.5, 1.0, 2.0, 4.0, None]
    assert backoff(20).wait_s(7, WireError("x")) == 30.0
    assert backoff(10_000).wait_s(10_000, WireError("x")) == 30.0


@pytest.mark.parametrize(
    "error", [AuthRejected("x"), BadRequest("x"), ContextOverflow("x"), ProviderError("x")]
)
def test_what_waiting_cannot_mend_fails_at_once(error):
    assert backoff().wait_s(1, error) is None
    assert Backoff(4, patience_s=900.0).wait_s(1, error) is None
    assert Backoff(0, patience_s=900.0).wait_s(1, Unavailable("x")) is None


def test_retry_after_is_honoured_up_to_a_minute():
    limited = RateLimited("x")
    limited.retry_after_s = 60.0
    assert backoff().wait_s(1, limited) == 60.25
    limited.retry_after_s = 60.5
    assert backoff().wait_s(1, limited) is None


def test_jitter_is_full():
    low = Backoff(4, uniform=lambda low, high: low)
    assert low.wait_s(3, Unavailable("x")) == 0.0


def test_a_pause_that_the_server_asked_for_is_never_cut_short():
    asked = RateLimited("x")
    asked.retry_after_s = 7.0
    jitter: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        jitter.append((low, high))
        return 0.1

    assert Backoff(4, uniform=uniform).wait_s(1, asked) == 7.1 and jitter == [(0.0, 0.25)]
    assert Backoff(4, uniform=uniform).wait_s(1, RateLimited("x")) == 0.1 and jitter[1:] == [(0.0, 0.5)]


@pytest.mark.parametrize(
    ("attempt", "lost_s", "wait_s"),
    [(1, 0.0, 0.5), (2, 10.0, 1.0), (3, 4.0, 2.0), (3, 9.0, 1.0), (3, 10.0, None), (9, 1.0, 9.0)],
)
def test_tries_go_on_while_there_is_patience_and_no_wait_is_longer(attempt, lost_s, wait_s):
    patient = Backoff(2, patience_s=10.0, uniform=lambda low, high: high)
    assert patient.wait_s(attempt, Unavailable("x"), lost_s) == wait_s
    assert patient.wait_s(attempt, WireError("x"), lost_s) == (None if attempt > 2 else 0.5 * attempt)


def test_a_server_on_this_machine_is_asked_again_every_five_seconds():
    near = Backoff(20, patience_s=900.0, uniform=lambda low, high: high, is_local=True)
    assert [near.wait_s(attempt, Unavailable("x")) for attempt in (4, 5, 20)] == [4.0, 5.0, 5.0]
    assert near.wait_s(20, WireError("x")) == 30.0
    near.is_local = False
    assert near.wait_s(20, Unavailable("x")) == 30.0


def test_a_pause_longer_than_a_minute_is_kept_where_the_patience_lasts_for_it():
    patient = Backoff(1, patience_s=100.0, uniform=lambda low, high: high)
    asked = Unavailable("x")
    for seconds, lost_s, wait_s in ((90.0, 10.0, 90.25), (90.0, 11.0, None), (60.0, 99.0, 60.25)):
        asked.retry_after_s = seconds
        assert patient.wait_s(2, asked, lost_s) == wait_s
