"""The demo's chapter `goals`: a model that lies is caught, a kill -9 is survived, a cap is held.

The model's replies are scripted; the goals, the verifiers, the kill and the wallet are real, each in a
process of its own. What is claimed is checked on the goals as the store has them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from whet.cli.demo_play import DemoRun
from whet.cli.demo_world import signal_pid
from whet.contract.texts import from_json
from whet.practice.script import ScriptedReply, running, writing
from whet.practice.server import PracticeServer

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


def play(play: DemoRun) -> None:
    """Tell the chapter."""
    play.stage.title("whet demo, chapter goals")
    play.stage.say(
        "The model's replies are written beforehand, so that it lies when it should. Everything else is real:"
        " the goals, the checks, the kill, the caps. All of it lies in a temporary folder."
    )
    _lie(play)
    _kill(play)
    _cap(play)
    play.measured["wall_s"] = play.wall_s


def _lie(play: DemoRun) -> None:
    stage, project = play.stage, play.world.project
    stage.title("1  A model that says it is done")
    (project / "check.py").write_text(_CHECK, "utf-8")
    (project / "total.py").write_text(_WRONG, "utf-8")
    replies = lies_then_mends(("check.py", _CHECK), ("total.py", _RIGHT))
    with PracticeServer(script=replies) as server:
        done = _pursued(play, server, ["start", "mend the total", "--verify", "python3 check.py"])
        sent = [json.dumps(request.parsed["messages"][-1]) for request in server.requests]
    stage.say("What the model was told after each of its ends:")
    told = {
        "words_alone_refused": "the total is wrong",
        "edited_check_refused": "The verifier's files were changed and nobody accepted that: check.py",
    }
    for name, words in told.items():
        play.check(name, any(words in text for text in sent), "it was not told")
        stage.block(words)
    play.check("achieved_once_true", done.goal.state == "achieved", done.goal.state)
    play.check("in_three_rounds", done.goal.round == 3, f"{done.goal.round}")
    play.conclude(
        "Said to be done three times, believed once: when the check passed as it was at the beginning."
    )


def _kill(play: DemoRun) -> None:
    stage, project = play.stage, play.world.project
    stage.title("2  kill -9")
    (project / "count.sh").write_text(_COUNT, "utf-8")
    with PracticeServer(script=counts(4)) as server:
        _settle(play, server)
        arguments = ["goal", "start", "count to three", "--verify", "sh count.sh", "--json"]
        stage.command("whet " + " ".join(arguments))
        process = play.world.whet(arguments)
        seen = _until_written(project / "rounds.txt", process)
        signal_pid(process.pid, signal.SIGKILL)
        process.wait()
        play.check(
            "killed_on_the_way", seen and process.returncode == -signal.SIGKILL, f"{process.returncode}"
        )
        stage.block("killed while it worked")
        done = _pursued(play, server, ["resume"])
    play.check("went_on_to_its_end", done.goal.state == "achieved", f"{done.goal.state}: {done.goal.note}")
    play.check(
        "no_round_twice", done.goal.round == done.goal.asked, f"{done.goal.asked} of {done.goal.round}"
    )
    play.conclude(f"It went on where it was: {done.goal.round} rounds, each asked for once.")


def _cap(play: DemoRun) -> None:
    stage = play.stage
    stage.title("3  A cap")
    with PracticeServer(script=[ScriptedReply("Not yet.")] * 9) as server:
        _settle(play, server, "wallet:\n  session_tokens: 30000\n")
        stage.command("whet config set wallet.session_tokens 30000")
        done = _pursued(
            play, server, ["start", "go on for ever", "--verify", "echo $RANDOM; false"], set_up=False
        )
        asked = server.count
    play.check("ended_by_the_cap", done.goal.state == "budget", f"{done.goal.state}: {done.goal.note}")
    play.check("cap_named", "cap" in done.goal.note, done.goal.note)
    stage.block(done.goal.note)
    play.conclude(f"After {asked} calls the next one had no room under the cap, and was not made.")


def _settle(play: DemoRun, server: PracticeServer, more: str = "") -> None:
    """Have the demo's home speak to this server."""
    play.world.home.config.write_text(
        f"model:\n  provider: practice\n  model: practice\n  base_url: {server.base_url}\n{allowed()}{more}",
        "utf-8",
    )


def _pursued(play: DemoRun, server: PracticeServer, arguments: list[str], *, set_up: bool = True) -> _Report:
    """Run `whet goal` to its end and give what it reports."""
    if set_up:
        _settle(play, server)
    play.stage.command("whet goal " + " ".join(f'"{one}"' if " " in one else one for one in arguments))
    process = play.world.whet(["goal", *arguments, "--json"])
    said, complaint = process.communicate(timeout=120)
    try:
        return from_json(said, _Report)
    except msgspec.DecodeError:
        lost = _Goal("lost", 0, -1, "", " ".join(complaint.split())[-200:])
        return _Report(lost, 0)


def _until_written(path: Path, process: subprocess.Popen[str]) -> bool:
    """Wait until the goal has begun to work; False where it ended before."""
    end_s = time.monotonic() + _KILL_AFTER_S
    while process.poll() is None and time.monotonic() < end_s:
        if path.exists():
            return True
        time.sleep(0.02)
    return False


def lies_then_mends(check: tuple[str, str], program: tuple[str, str]) -> list[ScriptedReply]:
    """Claim, weaken the check, put it back and mend the program; each is a path and what it should hold."""
    return [
        ScriptedReply("Done. I have mended it and all checks pass."),
        writing(check[0], "print('the total is right')\n"),
        ScriptedReply("Now the check passes."),
        writing(*check),
        writing(*program),
        ScriptedReply("The total is summed up now."),
    ]


def counts(rounds: int) -> list[ScriptedReply]:
    """Write a line in each round."""
    return [running("echo round >> rounds.txt"), ScriptedReply("Counted.")] * rounds


def allowed() -> str:
    """Give the settings under which it may do so with nobody there."""
    return "approval:\n  mode: auto\n  allow: [terminal, write_file]\n"
