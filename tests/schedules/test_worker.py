"""Schedules run by workers: once, by one of them, with nobody there, and by a stated rule after a fault."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from contextlib import closing
from datetime import UTC, datetime

import pytest

from tests.app.helper_runs import helper, mind, shell, steps
from tests.schedules.rig import HOUR_S, MINUTE_S, Bench, does, says
from tests.support import beat, list_jobs
from whet.clock import SystemClock
from whet.contract.errors import ConfigError
from whet.contract.messages import Message
from whet.schedules.execution import check_target, is_chat
from whet.store import chats, jobs, schedules, sessions
from whet.store.database import StateDatabase
from whet.store.leases import HEARTBEAT_S
from whet.store.transcript import Transcript
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer


def test_it_runs_when_due_and_not_before_and_its_answer_is_kept(bench, server):
    server.install([says("Hello from the night.")])
    made = bench.add(target=str(bench.work / "{date}.md"))
    assert bench.drain() == []
    [run] = bench.after()
    assert (run.result, run.note, run.text) == ("answered", "", "Hello from the night.")
    (answer,) = bench.work.iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\.md", answer.name), "the day on which it is written, not the test's"
    assert answer.read_text() == "Hello from the night.\n"
    row = bench.database.read_now(lambda db: sessions.get(db, run.session_id))
    assert (row.source, row.title, row.turns) == ("cron", "reports", 1)
    sent = server.requests[-1].json_body["messages"][-1]["content"]
    assert "say hello" in sent and "Nobody is there" in sent
    assert bench.next(made) == "2026-11-21T09:20:00.000Z"
    assert bench.drain() == []


async def test_two_workers_never_run_one_firing_twice(bench, server):
    server.install([says("once"), says("twice")])
    made = bench.add()
    bench.clock.advance(10 * MINUTE_S)
    with closing(StateDatabase.open(bench.home.database, bench.clock)) as other:
        await asyncio.gather(bench.worker().drain(), bench.worker(database=other).drain())
    assert [run.result for run in bench.runs(made)] == ["answered"]
    assert server.count == 1


def test_several_missed_times_are_one_run_and_too_old_ones_are_none(bench, server):
    server.install([says("late")])
    made = bench.add("0 10 * * *")
    [run] = bench.after(2 * 24 * HOUR_S + 2 * HOUR_S)  # two days and an hour late
    assert run.result == "answered"
    assert "made up for 2026-11-21T10:00:00.000Z, and for 2 later ones" in run.note
    assert bench.next(made) == "2026-11-24T10:00:00.000Z"
    [run] = bench.after(24 * HOUR_S + 13 * HOUR_S)
    assert run.result == "missed" and "too late" in run.note and run.session_id == ""
    assert bench.next(made) == "2026-11-25T10:00:00.000Z"
    bench.clock.moment = datetime(2026, 11, 25, 10, 30, tzinfo=UTC)
    [run] = bench.drain(bench.worker(catch_up_s=0))
    assert run.result == "missed"
    assert server.count == 1


def test_a_clock_set_back_a_little_runs_nothing_twice(bench, server):
    server.install([says("one"), says("two")])
    made = bench.add()
    assert len(bench.after()) == 1
    assert bench.after(-2 * HOUR_S) == []
    assert bench.next(made) == "2026-11-21T09:20:00.000Z"
    assert [run.result for run in bench.after(2 * HOUR_S + 10 * MINUTE_S)] == ["answered"]


def test_a_clock_that_was_years_ahead_does_not_silence_a_schedule(bench, server):
    server.install([says("in the future"), says("now")])
    made = bench.add("0 * * * *")
    bench.clock.moment = datetime(2033, 5, 1, 12, 0, tzinfo=UTC)
    assert [run.result for run in bench.drain()] == ["answered"]
    bench.clock.moment = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    assert bench.drain() == []
    assert bench.next(made) == "2026-11-21T10:00:00.000Z"
    assert [run.result for run in bench.after(30 * MINUTE_S)] == ["answered"]


@pytest.mark.slow
def test_what_needs_an_approval_is_denied_and_the_model_is_told_why(bench, server):
    fine = does("terminal", command="echo it is fine")
    denied = does("write_file", path="denied.txt", content="x")
    server.install([fine, denied, says("done what I may")])
    bench.add()
    [run] = bench.after()
    assert run.result == "answered"
    assert not (bench.work / "denied.txt").exists()
    contents = [row["content"] for row in server.requests[-1].json_body["messages"] if row["role"] == "tool"]
    assert "it is fine" in contents[0]
    assert "nobody" in contents[1].lower()


def test_a_session_can_be_named_and_toolsets_too(bench, server):
    server.install([says("first"), says("second")])
    made = bench.add(toolsets=("file",))
    [run] = bench.after()
    tools = {tool["function"]["name"] for tool in server.requests[0].json_body["tools"]}
    assert "read_file" in tools and "terminal" not in tools
    bench.add(name="again", session_id=run.session_id)
    bench.database.write_now(lambda db: schedules.pause(db, made.id))
    [second] = bench.after()
    assert second.session_id == run.session_id
    texts = [row["content"] for row in server.requests[1].json_body["messages"] if row["role"] == "assistant"]
    assert texts == ["first"]


def test_a_single_time_comes_once(bench, server):
    server.install([says("once")])
    made = bench.add("", at="2026-11-21T09:05:00.000Z")
    assert [run.result for run in bench.after(HOUR_S)] == ["answered"]
    assert bench.next(made) == ""
    assert bench.after(HOUR_S) == []


def test_a_session_that_is_in_use_is_waited_for(bench, server):
    server.install([says("after you")])
    clock = SystemClock()

    async def hold() -> str:
        log = await Transcript.create(bench.database, sessions.NewSession(id="held"), clock)
        await log.begin_turn(Message("user", "mine"))
        bench.add(session_id="held")
        bench.clock.advance(10 * MINUTE_S)
        await bench.worker().drain()
        return log.session.id

    asyncio.run(hold())
    assert bench.told == [] and server.count == 0


def test_a_failed_run_says_why_and_the_next_time_stands(bench, server):
    server.install([ScriptedReply(fault=Fault(status=500)), says("better")])
    made = bench.add()
    [run] = bench.after()
    assert run.result == "failed" and run.note
    assert [run.result for run in bench.after()] == ["answered"]
    bench.work.rmdir()
    [run] = bench.after()
    assert run.result == "failed" and "is gone" in run.note
    assert bench.next(made) == "2026-11-21T09:40:00.000Z"


def test_a_run_without_a_model_says_what_to_do(bench):
    bench.home.config.write_text("{}")
    bench.add()
    [run] = bench.after()
    assert run.result == "failed" and "is set; set model.provider" in run.note


@pytest.mark.slow
def test_a_run_is_cut_at_its_limit(bench, server):
    server.install([says("slow", fault=Fault(stall_after=0))])
    bench.add(timeout_s=0.3)
    [run] = bench.after()
    assert run.result == "budget" and "limit" in run.note


def test_a_polite_stop_ends_the_run_and_it_does_not_come_again(bench, server):
    server.install([says("slow", fault=Fault(stall_after=0))])
    made = bench.add()
    bench.clock.advance(10 * MINUTE_S)

    async def stop() -> None:
        running = asyncio.create_task(bench.worker().drain())
        await asyncio.to_thread(server.wait_for_stall)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(stop())
    assert [run.result for run in bench.runs(made)] == ["stopped"]
    assert bench.drain() == []


async def test_a_long_run_keeps_its_lease_and_ends_where_another_worker_took_it(bench, server):
    server.install([says("slow", fault=Fault(stall_after=0))])
    made = bench.add()
    bench.clock.advance(10 * MINUTE_S)

    def lease() -> jobs.Job:
        [running] = bench.database.read_now(lambda db: list_jobs(db, state="running"))
        return running

    running = asyncio.create_task(bench.worker().run_one())
    await asyncio.to_thread(server.wait_for_stall)
    before = lease().lease_until
    bench.clock.advance(HEARTBEAT_S)
    await beat(bench.database, HEARTBEAT_S)
    assert lease().lease_until > before
    bench.database.write_now(lambda db: db.execute("UPDATE jobs SET owner = 'w2' WHERE state = 'running'"))
    await beat(bench.database, HEARTBEAT_S)
    assert await running is None
    server.release()
    assert [run.result for run in bench.runs(made)] == [""] and bench.told == []


def test_an_answer_goes_to_a_conversation_of_the_gateway_once(bench, server):
    server.install([says("a " * 1_500), ScriptedReply(fault=Fault(status=500))])
    with pytest.raises(ConfigError):
        bench.database.read_now(lambda db: check_target(db, "telegram:7"))
    chat_place = chats.ChatPlace("telegram", "7", user="7")
    chat = bench.database.write_now(lambda db: chats.get_or_create_chat(db, chat_place))
    bench.database.read_now(lambda db: check_target(db, "telegram:7"))
    bench.add(target="telegram:7")
    bench.after()
    bench.after()
    sql = "SELECT chat, body FROM gateway_outbox ORDER BY id"
    rows = bench.database.read_now(lambda db: db.execute(sql).fetchall())
    texts = [json.loads(body)["text"] for _, body in rows]
    assert {at for at, _ in rows} == {chat.id}
    assert len(texts) == 3 and "".join(texts[:2]).count("a") == 1_500
    assert texts[2].startswith("reports: failed.")


def test_a_conversation_is_known_by_its_channels_own_name(bench, server):
    server.install([says("hello there")])
    assert is_chat("my-bot:-1007") and is_chat("webhook:a/b")
    assert not is_chat("/out/my-bot:7") and not is_chat("notify")
    chat_place = chats.ChatPlace("my-bot", "-1007", user="7")
    bench.database.write_now(lambda db: chats.get_or_create_chat(db, chat_place))
    bench.database.read_now(lambda db: check_target(db, "my-bot:-1007"))
    bench.add(target="my-bot:-1007")
    bench.after()
    sql = "SELECT channel FROM gateway_outbox"
    [(name,)] = bench.database.read_now(lambda db: db.execute(sql).fetchall())
    assert name == "my-bot" and not list(bench.work.iterdir())


def test_a_removed_schedule_runs_no_more(bench, server):
    made = bench.add()
    bench.clock.advance(10 * MINUTE_S)
    bench.database.write_now(lambda db: schedules.remove(db, made.id))
    assert bench.drain() == []
    assert server.count == 0


@pytest.mark.parametrize("link", ["daily/today.md", "daily", "a/b"])
def test_an_answer_is_not_written_through_a_link_that_a_command_left(bench, server, link):
    server.install([says("the model's words")])
    outside = bench.work.parent / "outside"
    (outside / "c").mkdir(parents=True)
    (outside / "today.md").write_text("a person's")
    (bench.work / link).parent.mkdir(parents=True, exist_ok=True)
    (bench.work / link).symlink_to(outside / "today.md" if link.endswith(".md") else outside)
    bench.add(target=str(bench.work / {"a/b": "a/b/c/today.md"}.get(link, "daily/today.md")))
    [run] = bench.after()
    assert "a link or a file is in the way" in run.note
    assert (outside / "today.md").read_text() == "a person's"
    assert sorted(path.name for path in outside.rglob("*")) == ["c", "today.md"]


def test_an_answer_that_can_not_be_written_is_noted_and_a_persons_link_is_followed(bench, server):
    server.install([says("one"), says("two")])
    (bench.work / "file").write_text("")
    bench.add(target=str(bench.work / "file" / "below"))
    real, link = bench.work.parent / "real.md", bench.work.parent / "link.md"
    real.write_text("old")
    link.symlink_to("real.md")
    bench.add(name="linked", target=str(link))
    bench.clock.advance(10 * MINUTE_S)
    notes = {run.note for run in bench.drain()}
    assert any("can't be written" in note for note in notes)
    assert link.is_symlink()
    assert real.read_text() in ("one\n", "two\n")


@pytest.mark.slow
def test_edits_that_no_one_merged_are_named_in_the_result(home, tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_APPROVAL_MODE", "auto")
    (work := tmp_path / "work").mkdir()
    make = "git init -q && git -c user.name=n -c user.email=n@localhost commit -q --allow-empty -m a"
    subprocess.run(make, shell=True, cwd=work, check=True)
    task = helper(steps([shell("echo new > new.txt")]), worktree=True, background=True)
    with PracticeServer(responder=mind) as server:
        bench = Bench(home, work, server)
        with closing(bench.database):
            bench.add(prompt=steps([task]))
            [run] = bench.after()
    assert run.result == "answered" and run.text.startswith("Over.")
    for text in (run.note, run.text):
        assert "'s edits are not merged, but in " in text and f"--resume {run.session_id} -q" in text
