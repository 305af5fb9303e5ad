"""What a review may cost, when it is tried again, and how reviews of one conversation become one job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from tests.support import FixedClock, each
from whet.clock import iso
from whet.config.schema import ModelSettings, ReviewSettings
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    BudgetReached,
    ConfigError,
    ModelRefused,
    NotFound,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    WhetError,
)
from whet.contract.messages import Message, Usage
from whet.contract.protocols import ModelInfo, ModelReply, StreamItem
from whet.review.budget import Budget, MeteredLink
from whet.review.jobs import ReviewJob, Runtime, queue_review, read_review_job
from whet.review.triggers import day_start
from whet.review.worker import retry_in_s
from whet.store import jobs, reviews, sessions
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession, SessionKind


def limited(seconds: float | None) -> RateLimited:
    error = RateLimited("slow down")
    error.retry_after_s = seconds
    return error


@each(
    ("error", "failures", "wait_s"),
    [
        (Unavailable("down"), 1, 30.0),
        (Unavailable("down"), 2, 120.0),
        (Unavailable("down"), 4, 1920.0),
        (Unavailable("down"), 5, None),
        (WhetError("a bug"), 1, 30.0),
        (AuthRejected("no"), 1, 600.0),
        (QuotaExhausted("pay"), 2, 1800.0),
        (ConfigError("wrong"), 3, 5400.0),
        (AuthRejected("no"), 4, 14_400.0),
        (limited(None), 1, 30.0),
        (limited(10.0), 1, 30.0),
        (limited(1000.0), 1, 1000.0),
        (NotFound("gone"), 1, None),
        (ModelRefused("no"), 1, None),
        (BadRequest("shape"), 1, None),
    ],
)
def test_the_next_try_comes_later_each_time_and_last_of_all_what_a_person_must_mend(
    error: WhetError, failures: int, wait_s: float | None
) -> None:
    assert retry_in_s(error, failures) == wait_s


@pytest.fixture
def db(tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    database = StateDatabase.open(tmp_path / "state.db", clock)
    yield database
    database.close()


def stored_job(db: StateDatabase, job_id: str) -> jobs.Job:
    job = db.read_now(lambda c: jobs.get(c, job_id))
    assert job is not None
    return job


def spend(
    db: StateDatabase, clock: FixedClock, tokens: int, usd: float | None, kind: SessionKind = "review"
) -> None:
    """Store a session of today that has used this much."""

    def work(connection) -> None:
        row = sessions.create(connection, NewSession(id=clock.new_id(), kind=kind), iso(clock.now()))
        values = (tokens, usd, row.id)
        connection.execute("UPDATE sessions SET total_tokens = ?, cost_usd = ? WHERE id = ?", values)

    db.write_now(work)


def check(db: StateDatabase, clock: FixedClock, expected: Usage, **limits: float) -> None:
    settings = ReviewSettings(**{"daily_tokens": 0, **limits})
    asyncio.run(Budget(db, clock, settings).check(expected))


def test_the_days_tokens_may_be_used_to_the_last_and_not_beyond(db: StateDatabase, clock: FixedClock) -> None:
    spend(db, clock, 600, None)
    spend(db, clock, 9_000, None, kind="chat")
    check(db, clock, Usage(total_tokens=400), daily_tokens=1000)
    with pytest.raises(BudgetReached, match="600 of 1,000 tokens"):
        check(db, clock, Usage(total_tokens=401), daily_tokens=1000)
    check(db, clock, Usage(total_tokens=10**9))
    clock.advance(48 * 3600)
    check(db, clock, Usage(total_tokens=1000), daily_tokens=1000)


def test_a_limit_in_money_needs_prices(db: StateDatabase, clock: FixedClock) -> None:
    spend(db, clock, 1, 0.6)
    check(db, clock, Usage(cost_usd=0.4), daily_usd=1.0)
    with pytest.raises(BudgetReached, match=r"\$0.60 of \$1.00"):
        check(db, clock, Usage(cost_usd=0.41), daily_usd=1.0)
    with pytest.raises(BudgetReached, match="price"):
        check(db, clock, Usage(cost_usd=None), daily_usd=1.0)
    check(db, clock, Usage(total_tokens=9, cost_usd=None), daily_tokens=10)
    with pytest.raises(BudgetReached, match="1 of 10 tokens"):
        check(db, clock, Usage(total_tokens=10, cost_usd=0.1), daily_tokens=10, daily_usd=5.0)
    spend(db, clock, 1, None)
    with pytest.raises(BudgetReached, match="price"):
        check(db, clock, Usage(cost_usd=0.1), daily_usd=1.0)


def test_a_day_begins_and_ends_at_midnight_of_the_person(db: StateDatabase, clock: FixedClock) -> None:
    tomorrow = datetime.fromisoformat(Budget(db, clock, ReviewSettings()).tomorrow()).astimezone()
    today = datetime.fromisoformat(day_start(clock.now())).astimezone()
    assert (tomorrow.hour, tomorrow.minute, tomorrow.second, tomorrow.microsecond) == (0, 0, 0, 0)
    assert (tomorrow.date() - today.date()).days == 1
    assert today <= clock.now() < tomorrow


@pytest.mark.parametrize(
    ("now", "begin", "end"),
    [
        ("2026-03-29T12:00:00Z", "2026-03-28T23:00:00.000Z", "2026-03-29T22:00:00.000Z"),
        ("2026-10-24T22:30:00Z", "2026-10-24T22:00:00.000Z", "2026-10-25T23:00:00.000Z"),
        ("2026-10-25T12:00:00Z", "2026-10-24T22:00:00.000Z", "2026-10-25T23:00:00.000Z"),
    ],
)
def test_the_day_on_which_the_clocks_change_is_an_hour_shorter_or_longer(
    monkeypatch: pytest.MonkeyPatch, now: str, begin: str, end: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        moment = datetime.fromisoformat(now)
        found = day_start(moment), day_start(moment, later_days=1)
    time.tzset()
    assert found == (begin, end)


class Link:
    """A link that answers with so many tokens, or fails."""

    def __init__(self, info: ModelInfo, *answers: int | WhetError) -> None:
        self.info, self.answers, self.asked = info, list(answers), 0

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, WhetError):
            raise answer
        yield ModelReply(Message("assistant", "ok"), Usage(total_tokens=answer), "m", "end")


def test_each_call_is_expected_to_be_as_large_as_the_last(db: StateDatabase, clock: FixedClock) -> None:
    info = ModelInfo("p", "m", 100_000, 1_000, input_usd_per_mtok=1.0)
    budget = Budget(db, clock, ReviewSettings(daily_tokens=1000, share=1.0))
    link = Link(info, 900, 5, Unavailable("down"))
    metered = MeteredLink(link, budget, 1001, by_hand=False)

    async def ask() -> list[StreamItem]:
        return [item async for item in metered.stream([])]

    with pytest.raises(BudgetReached):
        asyncio.run(ask())
    assert link.asked == 0 and isinstance(metered.failure, BudgetReached)
    metered = MeteredLink(link, budget, 1000, by_hand=False)
    assert len(asyncio.run(ask())) == 1 and metered.failure is None
    spend(db, clock, 100, None)
    assert len(asyncio.run(ask())) == 1, "900 more are just allowed"
    with pytest.raises(Unavailable):
        asyncio.run(ask())
    assert isinstance(metered.failure, Unavailable) and link.asked == 3
    money = Budget(db, clock, ReviewSettings(daily_tokens=0, daily_usd=1.0, share=1.0))
    db.write_now(lambda c: c.execute("UPDATE sessions SET cost_usd = 0"))
    metered = MeteredLink(Link(info, 1), money, 1_000_000, by_hand=False)
    assert len(asyncio.run(ask())) == 1, "a dollar's worth"
    metered = MeteredLink(Link(info, 1), money, 1_000_001, by_hand=False)
    with pytest.raises(BudgetReached):
        asyncio.run(ask())


def test_the_share_of_the_day_bounds_only_what_nobody_asked_for(db: StateDatabase, clock: FixedClock) -> None:
    budget = Budget(db, clock, ReviewSettings(daily_tokens=0, share=0.5, free_tokens=100))

    async def ask(tokens: int, by_hand: bool) -> int:
        link = MeteredLink(Link(ModelInfo("p", "m", 100_000, 1_000), 1), budget, tokens, by_hand=by_hand)
        return len([item async for item in link.stream([])])

    assert asyncio.run(ask(50, False)) == 1 and asyncio.run(ask(10**6, True)) == 1
    with pytest.raises(BudgetReached, match="share of today"):
        asyncio.run(ask(51, False))


def order(turn: int, kinds: tuple, *reasons: str, session_id: str = "s1", focus: str = "") -> ReviewJob:
    runtime = Runtime(ModelSettings(model=f"m{turn}"))
    return ReviewJob(session_id, turn, kinds, reasons, runtime, 100, focus=focus)


def test_a_review_that_waits_is_widened_and_by_hand_it_comes_at_once(
    db: StateDatabase, clock: FixedClock
) -> None:
    def queue(new: ReviewJob):
        return db.write_now(lambda c: queue_review(c, new, "talk", clock))

    for id_ in ("s1", "s2"):
        db.write_now(lambda c, id_=id_: sessions.create(c, NewSession(id=id_), ""))
    first = queue(msgspec.structs.replace(order(3, ("skill",), "steps", focus="deploys"), others=("x", "y")))
    again = queue(order(2, ("memory",), "turns", "steps", focus="tests"))
    assert again.job_id == first.job_id and again.kinds == ("memory", "skill")
    job = stored_job(db, first.job_id)
    merged = read_review_job(job.payload)
    assert (merged.turn, merged.reasons, merged.focus) == (3, ("steps", "turns"), "deploys\ntests")
    assert merged.runtime.model.model == "m2", "the newest says which model answers"
    assert merged.others == ("x", "y"), "those of its first turn"
    clock.advance(-60)
    queue(order(4, ("memory",), "turns"))
    assert stored_job(db, first.job_id).run_after == job.run_after
    queue(order(4, ("memory",), "asked"))
    assert stored_job(db, first.job_id).run_after == iso(clock.now())
    other = queue(order(1, ("memory",), "turns", session_id="s2"))
    assert other.job_id != first.job_id
    assert len(db.read_now(reviews.list_open_payloads)) == 2
    db.write_now(lambda c: c.execute("UPDATE jobs SET payload = '{}'") and None)
    assert queue(order(4, ("memory",), "turns")).job_id not in (first.job_id, other.job_id)
    with pytest.raises(WhetError, match="can't be read"):
        read_review_job("{}")


def test_a_plain_review_leaves_how_the_waiting_one_reads_the_conversation(
    db: StateDatabase, clock: FixedClock
) -> None:
    db.write_now(lambda c: sessions.create(c, NewSession(id="s1"), ""))
    by_model = msgspec.structs.replace(order(3, ("skill",), "steps"), is_cached=True, excerpt_tokens=900)
    plain = msgspec.structs.replace(order(4, ("memory",), "recovery"), is_plain=True, turns=(4,))
    for new in (by_model, plain):
        job_id = db.write_now(lambda c, new=new: queue_review(c, new, "talk", clock)).job_id
    merged = read_review_job(stored_job(db, job_id).payload)
    assert (merged.turn, merged.turns, merged.is_plain) == (4, (4,), False)
    assert merged.is_cached and merged.excerpt_tokens == 900
