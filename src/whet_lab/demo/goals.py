"""The demo's chapter `goals`: a model that lies is caught, a kill -9 is survived, a cap is kept.

The model's replies are scripted; the goals, the verifiers, the kill and the wallet are real, each in a
process of its own. Every claim is checked on the goals in the store.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from whet.contract.texts import from_json
from whet_lab.demo.run import DemoRun
from whet_lab.demo.world import signal_pid
from whet_lab.practice.script import ScriptedReply, terminal_reply, write_file_reply
from whet_lab.practice.server import PracticeServer

_CHECK = (
    "from total import total\nassert total([2, 3]) == 5, 'the total is wrong'\nprint('the total is right')\n"
)
_WRONG, _RIGHT = "def total(rows):\n    return max(rows)\n", "def total(rows):\n    return sum(rows)\n"
_COUNT = 'test "$(grep -c . rounds.txt)" -ge 3\n'
_KILL_AFTER_S = 30.0


class _Goal(msgspec.Struct, frozen=True):
    state: str
    round: int
    asked: int
    said: str
    note: str


class _Report(msgspec.Struct, frozen=True):
    goal: _Goal
    steps: int


def run_chapter(run: DemoRun) -> None:
    """Run the chapter."""
    run.stage.title("whet demo, chapter goals")
    run.stage.say(
        "The model's replies are written beforehand, so that it lies when it should. Everything else is real:"
        " the goals, the checks, the kill, the caps. All of it lies in a temporary folder."
    )
    _show_lie(run)
    _show_kill(run)
    _show_cap(run)
    run.measured["wall_s"] = run.wall_s


def _show_lie(run: DemoRun) -> None:
    stage, project = run.stage, run.world.project
    stage.title("1  A model that says it is done")
    (project / "check.py").write_text(_CHECK, "utf-8")
    (project / "total.py").write_text(_WRONG, "utf-8")
    replies = script_lie_and_fix(("check.py", _CHECK), ("total.py", _RIGHT))
    with PracticeServer(script=replies) as server:
        _write_settings(run, server)
        report = _run_goal(run, ["start", "mend the total", "--verify", "python3 check.py"])
        sent = [json.dumps(request.json_body["messages"][-1]) for request in server.requests]
    stage.say("What the model was told after each of its ends:")
    notices = {
        "words_alone_refused": "the total is wrong",
        "edited_check_refused": "The verifier's files were changed and nobody accepted that: check.py",
    }
    for name, words in notices.items():
        run.check(name, any(words in text for text in sent), "it was not told")
        stage.block(words)
    run.check("achieved_once_true", report.goal.state == "achieved", report.goal.state)
    run.check("in_three_rounds", report.goal.round == 3, f"{report.goal.round}")
    run.conclude(
        "Said to be done three times, believed once: when the check passed as it was at the beginning."
    )


def _show_kill(run: DemoRun) -> None:
    stage, project = run.stage, run.world.project
    stage.title("2  kill -9")
    (project / "count.sh").write_text(_COUNT, "utf-8")
    with PracticeServer(script=script_counting(4)) as server:
        _write_settings(run, server)
        arguments = ["goal", "start", "count to three", "--verify", "sh count.sh", "--json"]
        stage.command("whet " + " ".join(arguments))
        process = run.world.whet(arguments)
        has_begun = _wait_for_file(project / "rounds.txt", process)
        signal_pid(process.pid, signal.SIGKILL)
        process.wait()
        run.check(
            "killed_on_the_way", has_begun and process.returncode == -signal.SIGKILL, f"{process.returncode}"
        )
        stage.block("killed while it worked")
        goal = _run_goal(run, ["resume"]).goal
    run.check("went_on_to_its_end", goal.state == "achieved", f"{goal.state}: {goal.note}")
    run.check("no_round_twice", goal.round == goal.asked, f"{goal.asked} of {goal.round}")
    run.conclude(f"It went on where it was: {goal.round} rounds, each asked for once.")


def _show_cap(run: DemoRun) -> None:
    stage = run.stage
    stage.title("3  A cap")
    with PracticeServer(script=[ScriptedReply("Not yet.")] * 9) as server:
        _write_settings(run, server, "wallet:\n  session_tokens: 30000\n")
        stage.command("whet config set wallet.session_tokens 30000")
        goal = _run_goal(run, ["start", "go on for ever", "--verify", "echo $RANDOM; false"]).goal
        calls = server.count
    run.check("ended_by_the_cap", goal.state == "budget", f"{goal.state}: {goal.note}")
    run.check("cap_named", "cap" in goal.note, goal.note)
    stage.block(goal.note)
    run.conclude(f"After {calls} calls the next one had no room under the cap, and was not made.")


def _write_settings(run: DemoRun, server: PracticeServer, more: str = "") -> None:
    """Configure the demo's home to use this server."""
    model = f"model:\n  provider: practice\n  model: practice\n  base_url: {server.base_url}\n"
    run.world.home.config.write_text(f"{model}{allow_goal_calls()}{more}", "utf-8")


def _run_goal(run: DemoRun, arguments: list[str]) -> _Report:
    """Run `whet goal` to its end and return its report."""
    run.stage.command(
        "whet goal " + " ".join(f'"{argument}"' if " " in argument else argument for argument in arguments)
    )
    process = run.world.whet(["goal", *arguments, "--json"])
    output, complaint = process.communicate(timeout=120)
    try:
        return from_json(output, _Report)
    except msgspec.DecodeError:
        lost = _Goal("lost", 0, -1, "", " ".join(complaint.split())[-200:])
        return _Report(lost, 0)


def _wait_for_file(path: Path, process: subprocess.Popen[str]) -> bool:
    """Wait until the goal's work has begun. Returns False if the process ended first or the wait is over."""
    end_s = time.monotonic() + _KILL_AFTER_S
    while process.poll() is None and time.monotonic() < end_s:
        if path.exists():
            return True
        time.sleep(0.02)
    return False


def script_lie_and_fix(check: tuple[str, str], program: tuple[str, str]) -> list[ScriptedReply]:
    """Script a model that claims success, weakens the check, then restores it and fixes the program.

    Each argument is a path and the text that it should hold.
    """
    return [
        ScriptedReply("Done. I have mended it and all checks pass."),
        write_file_reply(check[0], "print('the total is right')\n"),
        ScriptedReply("Now the check passes."),
        write_file_reply(*check),
        write_file_reply(*program),
        ScriptedReply("The total is summed up now."),
    ]


def script_counting(rounds: int) -> list[ScriptedReply]:
    """Script a model that writes a line in each round."""
    return [terminal_reply("echo round >> rounds.txt"), ScriptedReply("Counted.")] * rounds


def allow_goal_calls() -> str:
    """Return the settings that allow the goal's calls while no one is there to approve them."""
    return "approval:\n  mode: auto\n  allow: [terminal, write_file]\n"
