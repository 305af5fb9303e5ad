from __future__ import annotations

from whet.store import jobs
from whet.store.jobs import NewJob


def put(db, clock, kind="review", **fields):
    return db.write_now(lambda c: jobs.enqueue(c, NewJob(kind, "{}", **fields), clock))


def take(db, clock, owner="w1", kinds=("review",)):
    return db.write_now(lambda c: jobs.lease(c, kinds, owner, 60, clock))


def test_jobs_are_leased_oldest_first_and_only_once(db, clock):
    first = put(db, clock)
    clock.advance(1)
    second = put(db, clock)
    put(db, clock, kind="index")
    one, two = take(db, clock), take(db, clock, "w2")
    assert (one.id, one.attempts, one.owner, two.id) == (first, 1, "w1", second)
    assert take(db, clock) is None
    assert db.write_now(lambda c: jobs.complete(c, one, clock))
    assert db.read_now(lambda c: jobs.get(c, first)).state == "done"


def test_a_lost_lease_is_another_workers(db, clock):
    put(db, clock)
    old = take(db, clock)
    clock.advance(59)
    assert db.write_now(lambda c: jobs.heartbeat(c, old, 60, clock))
    clock.advance(59)
    assert take(db, clock, "w2") is None
    clock.advance(2)
    new = take(db, clock, "w2")
    assert (new.id, new.attempts) == (old.id, 2)
    for change in (jobs.complete, lambda c, j, k: jobs.heartbeat(c, j, 60, k)):
        assert not db.write_now(lambda c, change=change: change(c, old, clock))
    assert db.write_now(lambda c: jobs.complete(c, new, clock))


def test_a_failed_job_waits_then_is_given_up(db, clock):
    put(db, clock)
    job = take(db, clock)
    assert db.write_now(lambda c: jobs.fail(c, job, "no network", clock, retry_in_s=30))
    assert take(db, clock) is None
    clock.advance(31)
    again = take(db, clock)
    assert (again.attempts, again.error) == (2, "no network")
    assert db.write_now(lambda c: jobs.fail(c, again, "gave up", clock, retry_in_s=None))
    clock.advance(3600)
    assert take(db, clock) is None
    assert [(j.state, j.error) for j in db.read_now(lambda c: jobs.list_jobs(c, state="failed"))] == [
        ("failed", "gave up")
    ]
    assert db.read_now(lambda c: jobs.list_jobs(c, kinds=("other",))) == []


def test_a_job_for_later_waits(db, clock):
    put(db, clock, run_after="2026-11-21T09:00:10.000Z")
    assert take(db, clock) is None
    clock.advance(10)
    assert take(db, clock) is not None
