"""Goals at set times, pursued with nobody there; quiet hours, and what is sent after them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.schedules.rig import MINUTE_S, Bench, does, says
from whet.clock import iso
from whet.contract.channels import ChatPlace
from whet.contract.errors import ConfigError
from whet.schedules import quiet
from whet.store import chats, goals, schedules
from whet.store.digests import HeldAnswer

_ECHO = "echo done > done.txt"


def _chat(bench: Bench) -> int:
    chat_place = ChatPlace("telegram", "77")
    return bench.database.write_now(lambda db: chats.get_or_create_chat(db, chat_place)).id


def _sent(bench: Bench) -> list[str]:
    sql = "SELECT body FROM gateway_outbox ORDER BY id"
    rows = bench.database.read_now(lambda db: db.execute(sql).fetchall())
    return [json.loads(body)["text"] for (body,) in rows]


@pytest.mark.slow
def test_each_run_is_a_goal_until_one_is_achieved(bench, server):
    aim = schedules.ScheduleGoal("test -f done.txt", steps=3, until_achieved=True)
    made = bench.add(goal=aim, prompt="make the build green")
    server.install([says("all done, believe me")] * 3)
    [run] = bench.after()
    assert run.result in ("budget", "failed") and "make the build green" in run.text
    assert bench.next(made), "it comes again"
    server.install([does("terminal", command=_ECHO), says("done")])
    [run] = bench.after()
    assert (run.result, run.note) == ("answered", "goal achieved")
    assert "did: done.txt" in run.text
    assert bench.next(made) == "", "it is reached: no further time comes"
    states = bench.database.read_now(lambda db: [goal.state for goal in goals.list_goals(db)])
    assert states[0] == "achieved" and len(states) == 2


@pytest.mark.slow
def test_a_goal_that_a_killed_worker_began_is_gone_on_with(bench, server):
    made = bench.add(goal=schedules.ScheduleGoal("test -f done.txt"), prompt="make it")
    server.install([does("terminal", command=_ECHO), says("done")])
    [run] = bench.after()
    job = run.job_id

    def as_a_kill_leaves_it(db: object) -> None:
        sql = "UPDATE jobs SET state = 'running', owner = 'gone', lease_until = ? WHERE id = ?"
        db.execute(sql, (iso(bench.clock.now()), job))  # type: ignore[attr-defined]
        db.execute("UPDATE schedule_runs SET result = '', finished = '' WHERE job = ?", (job,))  # type: ignore[attr-defined]

    bench.database.write_now(as_a_kill_leaves_it)
    [again] = bench.after(MINUTE_S)
    assert (again.job_id, again.result, again.session_id) == (job, "answered", run.session_id)
    assert server.count == 2, "the model is not asked again"
    assert len(bench.database.read_now(goals.list_goals)) == 1
    assert len(bench.runs(made)) == 1


def test_what_comes_in_quiet_hours_is_sent_together_after_them(bench, server):
    _chat(bench)
    now = bench.clock.now().astimezone(UTC)
    hours = f"{now:%H:%M}-{(now.hour + 1) % 24:02}:{now:%M}"
    bench.add(target="telegram:77", quiet=hours)
    bench.add("*/20 * * * *", name="news", target="telegram:77", quiet=hours)
    server.install([says("first"), says("second"), says("third")])
    assert len(bench.after(20 * MINUTE_S)) == 2
    assert _sent(bench) == []
    bench.after(40 * MINUTE_S)
    digest, *rest = _sent(bench)
    assert digest.startswith("While it was quiet: 2 results.") and "first" in digest and "second" in digest
    assert all("While it was quiet" not in text for text in rest)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-21T22:30", "2026-11-22T07:00"),
        ("2026-11-22T06:59", "2026-11-22T07:00"),
        ("2026-11-22T07:00", ""),
    ],
)
def test_quiet_hours_go_over_midnight(now, until):
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    moment = quiet.find_end(quiet.parse_span("22:00-7:00"), "UTC", at)
    assert (moment.strftime("%Y-%m-%dT%H:%M") if moment else "") == until


def test_quiet_hours_that_are_none_are_refused():
    for text in ("25:00-07:00", "22-7", "07:00-07:00", "x"):
        with pytest.raises(ConfigError):
            quiet.parse_span(text)


def test_a_digest_names_each_result_and_cuts_long_ones():
    answers = [HeldAnswer("a", "answered", "", "x" * 5_000), HeldAnswer("b", "failed", "why", "")]
    text = quiet.format_digest(answers)
    assert "a (answered)" in text and "b (failed)\nwhy" in text and len(text) < 1_000


def test_a_schedule_s_goal_is_stored_whole(bench):
    aim = schedules.ScheduleGoal("make test", 1.5, 7, ("a",), ("b",), until_achieved=True)
    made = bench.add(goal=aim, quiet="22:00-07:00")
    found = bench.database.read_now(lambda db: schedules.get(db, made.id))
    assert found is not None and (found.goal, found.quiet) == (aim, "22:00-07:00")
