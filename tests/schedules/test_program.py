"""`whet cron` and `whet worker` as processes: typed, listed, killed in mid-run, run at once."""

from __future__ import annotations

import json
import os
import random
import signal
from typing import Any

import apsw
import pytest

from tests.review.test_program import until
from tests.stories.program import Done, Program, does, together, use
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer


@pytest.fixture
def program(tmp_path, server):
    made = Program(tmp_path, server)
    model = {"provider": "practice", "base_url": server.base_url, "model": "practice"}
    made.home.mkdir()
    (made.home / "config.yaml").write_text(json.dumps({"model": model, "approval": {"mode": "auto"}}))
    return made


def parsed(done: Done) -> Any:
    """The object on standard output."""
    return json.loads(done.out)


def add(program: Program, *arguments: str) -> dict[str, Any]:
    done = program.run("cron", "add", *arguments, "--tz", "UTC", "--json")
    assert (done.code, done.err) == (0, ""), done
    return parsed(done)["schedule"]


def due_now(program: Program) -> None:
    """Have every time come now, as if it had been waited for."""
    database = apsw.Connection(str(program.home / "state.db"))
    now = "2026-01-01T00:00:00.000Z"
    database.execute("UPDATE jobs SET run_after = ?, created = ? WHERE state = 'waiting'", (now, now))
    database.close()


@pytest.mark.slow
def test_a_schedule_is_added_listed_run_paused_and_removed(program, server):
    empty = program.run("cron", "list")
    assert "no schedules yet" in empty.out
    assert parsed(program.run("cron", "list", "--json")) == {"schedules": []}
    fields = add(program, "0 9 * * 1-5", "--prompt", "Sum up what changed", "--to", "daily/{date}.md")
    assert fields["name"] == "sum-up-what-changed"
    assert fields["target"] == str(program.work / "daily" / "{date}.md")
    server.install([ScriptedReply("Nothing changed.")])
    ran = program.run("cron", "run", "sum-up-what-changed")
    assert (ran.code, ran.out) == (0, "Nothing changed.\n")
    assert [path.read_text() for path in (program.work / "daily").iterdir()] == ["Nothing changed.\n"]
    [row] = parsed(program.run("cron", "list", "--json"))["schedules"]
    assert row["next"] == fields["next"]
    assert (row["last"]["result"], row["last"]["by_hand"]) == ("answered", True)
    assert "answered" in program.run("cron", "list").out
    assert program.run("cron", "pause", fields["name"]).code == 0
    assert "paused" in program.run("cron", "list").out
    assert program.run("cron", "resume", fields["name"]).code == 0
    shown = parsed(program.run("cron", "show", fields["id"], "--json"))
    assert (shown["next"] != "", len(shown["runs"])) == (True, 1)
    assert program.run("cron", "rm", fields["name"]).code == 0
    assert parsed(program.run("cron", "list", "--json")) == {"schedules": []}
    [session] = program.sessions()
    assert (session["title"], session["source"]) == (fields["name"], "cron")


@pytest.mark.slow
def test_a_run_whose_calls_were_denied_says_so_on_every_page(program, server):
    (program.home / "config.yaml").write_text(
        (program.home / "config.yaml").read_text().replace('"auto"', '"ask"')
    )
    add(program, "@yearly", "--prompt", "write it", "--name", "note")
    call = use("write_file", path="note.txt", content="x")
    server.install([does(call), ScriptedReply("Done.")])
    ran = program.run("cron", "run", "note")
    line = "1 call was denied: write_file"
    assert (ran.code, ran.out) == (0, f"Done.\n\n{line}\n")
    assert line in ran.err
    assert "answered, see show" in program.run("cron", "list").out
    assert line in program.run("cron", "show", "note").out
    [row] = parsed(program.run("cron", "list", "--json"))["schedules"]
    assert row["last"]["note"] == line


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["0 9 * *", "--prompt", "x"], "not a cron expression"),
        (["--at", "yesterday", "--prompt", "x"], "not a time"),
        (["@daily", "--prompt", " "], "no prompt"),
        (["@daily", "--prompt", "x", "--tz", "Mars/Olympus"], "no time zone"),
        (["@daily", "--prompt", "x", "--toolsets", "magic"], "no toolset"),
        (["@daily", "--prompt", "x", "--session", "nobody"], "no session"),
        (["@daily", "--prompt", "x", "--workspace", "nowhere"], "not a folder"),
        (["@daily", "--prompt", "x", "--to", "."], "is a folder"),
        (["@daily", "--prompt", "x", "--to", "telegram:5"], "no conversation"),
    ],
)
def test_what_can_not_be_scheduled_is_an_error_with_a_hint(program, arguments, word):
    program.run("cron", "add", *arguments).assert_error(word)


@pytest.mark.slow
def test_names_that_are_unknown_or_taken_are_errors(program):
    add(program, "@daily", "--prompt", "x", "--name", "nightly")
    program.run("cron", "add", "@daily", "--prompt", "y", "--name", "Nightly").assert_error("already")
    program.run("cron", "rm", "nobody").assert_error("no schedule")
    assert program.run("cron", "add", "--prompt", "x").code == 2
    assert add(program, "@daily", "--prompt", "a b")["name"] == "a-b"
    assert add(program, "@daily", "--prompt", "a b")["name"] == "a-b-2"


@pytest.mark.slow
@pytest.mark.parametrize("option", [("--json",), ("--patience", "5")])
def test_options_that_end_a_worker_need_drain(program, option):
    done = program.run("worker", *option)
    assert done.code == 2 and f"{option[0]} needs --drain" in done.err


def kill_in_mid_run(program: Program, server: PracticeServer) -> None:
    """Start a worker, let it run a command, and kill it while the model answers."""
    add(program, "@yearly", "--prompt", "log it", "--name", "log")
    due_now(program)
    call = use("terminal", command="echo ran >> log.txt")
    server.install([does(call), ScriptedReply("half", fault=Fault(stall_after=0))])
    running = program.start("worker", "--drain")
    server.wait_for_stall()
    os.kill(running.pid, signal.SIGKILL)
    running.done()
    assert (program.work / "log.txt").read_text() == "ran\n"


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_goes_on_with_the_next_one_and_does_nothing_twice(program, server):
    kill_in_mid_run(program, server)
    server.release()
    server.install([ScriptedReply("Logged.")])
    done = program.run("worker", "--drain", "--json")
    assert done.code == 0, done
    [ran] = parsed(done)["runs"]
    assert (ran["run"]["result"], ran["run"]["text"]) == ("answered", "Logged.")
    assert (program.work / "log.txt").read_text() == "ran\n"
    assert len(parsed(program.run("cron", "show", "log", "--json"))["runs"]) == 1
    roles = [row["role"] for row in server.requests[-1].json_body["messages"]]
    assert roles[1:] == ["user", "assistant", "tool"]
    assert parsed(program.run("worker", "--drain", "--json")) == {"reviews": [], "runs": []}


@pytest.mark.slow
def test_workers_that_start_at_once_share_what_is_due(program, server):
    for number in range(4):
        add(program, "@yearly", "--prompt", f"task {number}", "--name", f"task-{number}")
    due_now(program)
    server.install([ScriptedReply("done")] * 8)
    done = together([program.start("worker", "--drain", "--json") for _ in range(3)])
    ran = [run["name"] for result in done for run in parsed(result)["runs"]]
    assert sorted(ran) == [f"task-{number}" for number in range(4)]
    assert server.count == 4


@pytest.mark.slow
def test_a_worker_that_serves_takes_what_comes_and_stops_at_sigterm(program, server):
    add(program, "--at", "+1s", "--prompt", "now", "--name", "soon")
    server.install([ScriptedReply("here")])
    running = program.start("worker")
    server.wait_for_request(1)
    until(lambda: "Schedule soon answered" in running.out)
    os.kill(running.pid, signal.SIGTERM)
    assert running.done().code == 0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_worker_killed_at_random_moments_runs_each_firing_once(program, server):
    """Kills spread over a run's life: each firing ends in one result, and its command ran at most once."""
    pick = random.Random(7)
    call = use("terminal", command="echo ran >> log.txt")
    replies = [ScriptedReply("done", when='"role":"tool"'), does(call)]
    add(program, "@yearly", "--prompt", "log it", "--name", "log")
    for number in range(12):
        due_now(program)
        (program.work / "log.txt").unlink(missing_ok=True)
        server.install([reply for reply in replies for _ in range(20)])
        running = program.start("worker", "--drain")
        until_s = pick.uniform(0.05, 0.9)
        try:
            running.done(until_s)
        except TimeoutError:
            running.done()
        assert program.run("worker", "--drain").code == 0
        runs = parsed(program.run("cron", "show", "log", "--json", "--limit", "100"))["runs"]
        assert len(runs) == number + 1
        assert runs[0]["result"] == "answered", runs[0]
        log = program.work / "log.txt"
        assert not log.exists() or log.read_text() == "ran\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        ("* * * * *", "--prompt", "x", "--to", "~nobody-here/x.md"),
        ("--at", "9999-12-31T23:59", "--tz", "America/New_York", "--prompt", "x"),
        ("* * * * *", "--prompt", "\udcff"),
        ("* * * * *", "--prompt", "x", "--timeout", "nan"),
    ],
)
def test_what_can_not_be_a_schedule_is_refused_in_words(program, wrong):
    done = program.run("cron", "add", *wrong)
    assert done.code in (1, 2)
    assert "unexpected" not in done.err and "database" not in done.err, done.err
    assert parsed(program.run("cron", "list", "--json")) == {"schedules": []}
