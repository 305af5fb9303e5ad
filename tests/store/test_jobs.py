from __future__ import annotations

import os
import subprocess

import pytest

from tests.support import list_jobs
from whet.store import claims, jobs

pytestmark = pytest.mark.usefixtures("still_time")


def put(db, clock, kind="review", **fields):
    return db.write_now(lambda c: jobs.enqueue(c, jobs.NewJob(kind, "{}", **fields), clock))


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
    assert [(j.state, j.error) for j in db.read_now(lambda c: list_jobs(c, state="failed"))] == [
        ("failed", "gave up")
    ]
    assert db.read_now(lambda c: list_jobs(c, kinds=("other",))) == []


def test_a_job_for_later_waits(db, clock):
    put(db, clock, run_after="2026-11-21T09:00:10.000Z")
    assert take(db, clock) is None
    clock.advance(10)
    assert take(db, clock) is not None


def test_a_dead_workers_job_is_taken_at_once_a_living_ones_is_not(db, clock):
    put(db, clock)
    mine = take(db, clock, claims.owner_name("t1"))
    assert take(db, clock, "w2") is None, "this process lives"
    host, pid, _, nonce, token = mine.owner.split(" ")
    for gone in (f"{host} {pid} elsewhen-1 {token}", f"{host} 999999999 - {nonce} {token}"):
        db.write_now(lambda c, gone=gone: c.execute("UPDATE jobs SET owner = ?", (gone,)))
        assert db.read_now(lambda c, gone=gone: db.is_team or claims.is_gone(c, gone))
        if db.is_team:  # names of machines and processes say nothing there: the lease does
            assert take(db, clock, claims.owner_name("t2")) is None
            continue
        taken = take(db, clock, claims.owner_name("t2"))
        assert taken is not None and taken.id == mine.id
    elsewhere = f"another-host {pid} - {token}"
    assert not db.read_now(lambda c: claims.is_gone(c, elsewhere)), "what can't be known is not a death"


def test_a_process_that_has_ended_is_gone_before_its_parent_asks_about_it(db):
    if db.is_team:
        return  # there the lease says so
    host, _, _, nonce, token = claims.owner_name("t").split(" ")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        owner = f"{host} {child.pid} {claims.read_process_birth(child.pid)} {nonce} {token}"
        assert not db.read_now(lambda c: claims.is_gone(c, owner))
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert db.read_now(lambda c: claims.is_gone(c, owner))


def test_one_job_of_a_subject_at_a_time(db, clock):
    first, second = put(db, clock, subject="talk"), put(db, clock, subject="talk")
    other = put(db, clock, subject="other")
    one = take(db, clock)
    assert [one.id, take(db, clock).id, take(db, clock)] == [first, other, None]
    assert db.write_now(lambda c: jobs.complete(c, one, clock))
    assert take(db, clock).id == second


def test_a_waiting_job_can_be_rewritten_until_it_is_taken(db, clock):
    put(db, clock, subject="talk")
    job = db.read_now(lambda c: jobs.find_waiting(c, "review", "talk"))
    assert db.write_now(lambda c: jobs.rewrite(c, job, '{"more":1}', job.run_after))
    assert take(db, clock).payload == '{"more":1}'
    assert not db.write_now(lambda c: jobs.rewrite(c, job, "{}", job.run_after))
    assert db.read_now(lambda c: jobs.find_waiting(c, "review", "talk")) is None


def test_a_released_job_is_due_at_once_and_a_clock_set_back_strands_none(db, clock):
    put(db, clock)
    job = take(db, clock)
    assert db.write_now(lambda c: jobs.release(c, job))
    clock.advance(-86_400)
    assert db.read_now(lambda c: jobs.is_due(c, ("review",), clock))
    assert take(db, clock) is not None


def test_one_job_is_taken_by_its_id_where_it_is_free(db, clock):
    first, second = put(db, clock), put(db, clock)

    def named(job_id):
        return db.write_now(lambda c: jobs.lease(c, ("review",), "w1", 60, clock, job_id))

    assert named("another") is None
    assert named(second).id == second and named(second) is None
    assert take(db, clock).id == first
