"""Schedules as rows: the next time, runs that begin and end once, and clocks that were set back."""

from __future__ import annotations

from functools import partial

import pytest

from tests.store.support import on
from tests.support import list_jobs
from whet.clock import iso
from whet.contract.errors import ConfigError, NotFound
from whet.store import jobs, schedules, sessions, turns
from whet.store.schedules import KEPT_RUNS, Firing, Schedule, ScheduleGoal, ScheduleRun

pytestmark = [pytest.mark.usefixtures("still_time"), pytest.mark.slow_rows("postgres")]

HOURLY = Schedule(
    "abc1",
    "Reports",
    "2026",
    "0 * * * *",
    "",
    "UTC",
    "say hi",
    toolsets=("web", "files"),
    quiet="22:00-07:00",
)


def at(clock, seconds):
    clock.advance(seconds)
    moment = iso(clock.now())
    clock.advance(-seconds)
    return moment


def lease(db, clock):
    return on(db, jobs.lease, (schedules.KIND,), "w1", 60, clock)


def test_a_schedule_is_kept_whole_and_found_by_name_or_id(db, clock):
    on(db, schedules.add, HOURLY, at(clock, 60), clock)
    goal = ScheduleGoal("make check", 0.5, 9, ("a",), ("b",), until_achieved=True)
    other = Schedule(
        "abd2", "abc", "2026", "", "2027", "UTC", "x", "s1", "/w", "notify", (), 60.0, True, goal
    )
    on(db, schedules.add, other, at(clock, 60), clock)
    assert on(db, schedules.list_schedules) == [other, HOURLY]
    assert on(db, schedules.get, "abc1") == HOURLY and on(db, schedules.get, "zz") is None
    assert on(db, schedules.has_name, "reports") and not on(db, schedules.has_name, "other")
    assert on(db, schedules.find, "REPORTS") == HOURLY and on(db, schedules.find, "abd") == other
    assert on(db, schedules.find, "ABC") == other, "a name is meant before the beginning of an id"
    with pytest.raises(NotFound, match="several"):
        on(db, schedules.find, "ab")
    for name in ("zzz", ""):
        with pytest.raises(NotFound, match="no schedule"):
            on(db, schedules.find, name)
    with pytest.raises(ConfigError, match="already"):
        on(db, schedules.add, HOURLY, "", clock)


def test_pausing_stops_the_next_time_and_removing_what_waits(db, clock):
    first, later = at(clock, 60), at(clock, 120)
    on(db, schedules.add, HOURLY, first, clock)
    assert on(db, schedules.find_next_due, "abc1") == first
    on(db, schedules.pause, "abc1")
    assert on(db, schedules.find_next_due, "abc1") == "" and on(db, schedules.get, "abc1").paused
    on(db, schedules.resume, "abc1", later, clock)
    on(db, schedules.resume, "abc1", first, clock)
    assert on(db, schedules.find_next_due, "abc1") == first and not on(db, schedules.get, "abc1").paused
    assert len(on(db, list_jobs)) == 1, "one next time"
    ended = on(db, schedules.run_now, "abc1", clock)
    job = lease(db, clock)
    on(db, schedules.begin_run, job, schedules.read_firing(job), "now")
    assert on(db, schedules.finish, job, ("answered", "", ""), clock)
    by_hand = on(db, schedules.run_now, "abc1", clock)
    job = lease(db, clock)
    assert job.id == by_hand and schedules.read_firing(job) == Firing("abc1", iso(clock.now()), by_hand=True)
    owner = partial(on, db, jobs.find_running_owner, schedules.KIND)
    assert owner("abc1", clock) == "w1" and owner("x", clock) == ""
    on(db, schedules.begin_run, job, schedules.read_firing(job), "now")
    on(db, schedules.remove, "abc1")
    assert on(db, schedules.get, "abc1") is None
    assert {job.id for job in on(db, list_jobs)} == {ended, by_hand}, "what runs goes on"
    assert on(db, schedules.get_run, by_hand) is not None and on(db, schedules.get_run, ended) is None


def test_a_run_begins_once_counts_its_tries_and_ends_once(db, clock):
    on(db, schedules.add, HOURLY, iso(clock.now()), clock)
    job = lease(db, clock)
    firing = schedules.read_firing(job)
    assert on(db, schedules.get_run, job.id) is None
    run, is_new = on(db, schedules.begin_run, job, firing, "t1")
    assert is_new and run == ScheduleRun(job.id, "abc1", firing.due, False, "t1")
    assert on(db, schedules.begin_run, job, firing, "t2") == (run, False)
    on(db, sessions.create, sessions.NewSession(id="s1"), "now")
    key = db.read_now(lambda c: sessions.key_of(c, "s1"))
    for number in (1, 2, 3):
        on(db, turns.begin_turn, key, turns.TurnRecord(f"t{number}", "s1", number, "now"))
    on(db, schedules.set_run_session, job.id, "s1")
    on(db, schedules.record_prompt, job.id, key)
    on(db, schedules.count_resume, job.id)
    run = on(db, schedules.get_run, job.id)
    assert (run.session_id, run.turns_before, run.begun) == ("s1", 2, 2)
    on(db, schedules.postpone_run, job, "in use", at(clock, 60))
    assert on(db, schedules.get_run, job.id).begun == 1
    assert not on(db, schedules.finish, job, ("answered", "", ""), clock), "it was given back"
    clock.advance(60)
    again = lease(db, clock)
    on(db, schedules.postpone_run, again, "in use", iso(clock.now()))
    assert on(db, schedules.get_run, job.id).begun == 1, "its prompt stays said"
    again = lease(db, clock)
    assert on(db, schedules.finish, again, ("answered", "a note", "hello"), clock)
    [run] = on(db, schedules.list_runs, "abc1")
    assert (run.result, run.note, run.text, run.finished) == ("answered", "a note", "hello", iso(clock.now()))


@pytest.mark.slow
def test_old_runs_are_forgotten(db, clock):
    on(db, schedules.add, HOURLY, at(clock, 9_999_999), clock)
    for _ in range(KEPT_RUNS + 3):
        clock.advance(1)
        on(db, schedules.run_now, "abc1", clock)
        job = lease(db, clock)
        on(db, schedules.begin_run, job, schedules.read_firing(job), iso(clock.now()))
        on(db, schedules.finish, job, ("answered", "", ""), clock)
    kept = on(db, schedules.list_runs, "abc1", limit=1000)
    assert len(kept) == KEPT_RUNS + 1 and kept[0].started > kept[1].started
    assert len(on(db, schedules.list_runs, "abc1")) == 20
    assert len(on(db, list_jobs, limit=1000)) == KEPT_RUNS + 2, "their jobs go with them"


@pytest.mark.parametrize(("hours", "moves"), [(2.9, False), (3.1, True)])
def test_a_clock_set_back_far_was_wrong_before(db, clock, hours, moves):
    due = at(clock, 60)
    on(db, schedules.add, HOURLY, due, clock)
    single = Schedule("one", "once", "2026", "", "2027", "UTC", "x")
    on(db, schedules.add, single, due, clock)
    hand = on(db, schedules.run_now, "abc1", clock)
    asked = on(db, jobs.get, hand).run_after
    clock.advance(-hours * 3600)
    on(db, schedules.correct_clock_change, clock, lambda schedule, now: f"next of {schedule.name}")
    assert on(db, schedules.find_next_due, "one") == due
    fields = {job.id: job for job in on(db, list_jobs)}
    assert {job.created for job in fields.values()} == {iso(clock.now())}
    assert fields[hand].run_after == asked and schedules.read_firing(fields[hand]).by_hand
    [hourly] = [job for job in fields.values() if job.subject == "abc1" and job.id != hand]
    assert hourly.run_after == schedules.read_firing(hourly).due == ("next of Reports" if moves else due)
