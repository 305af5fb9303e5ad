"""Ctrl-C, SIGTERM and SIGKILL at any moment of a turn, and two processes on one session."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.stories.program import (
    Program,
    Running,
    assert_calls_answered_once,
    assert_requests_are_sound,
    does,
    said,
    use,
)
from tests.support import within
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

STEPS = 6


def script(left: int = STEPS) -> list[ScriptedReply]:
    """One line into a file per step, with a result that the model could not know before."""
    command = "echo step {0} >> trace; echo did step {0}"
    calls = [use("terminal", command=command.format(n)) for n in range(left)]
    steps = [does(call, text=f"Step {n}.") for n, call in enumerate(calls)]
    return [*steps, ScriptedReply("all done", pieces=5)]


def stop_at(program: Program, running: Running, number: int, moment: float) -> None:
    """Send a signal a random while after the process has asked the model for the n-th time."""
    step = int(moment * (STEPS + 1))
    program.server.wait_for_request(step + 1, timeout=30)
    time.sleep((moment * (STEPS + 1) - step) * 0.05)
    with suppress(ProcessLookupError):  # it may have ended in that while
        os.kill(running.pid, number)


def assert_goes_on(program: Program, root: Path) -> None:
    """The session is whole: what was asked is there, every call has one result, no effect came twice."""
    server = program.server
    # The stopped process's last request may still be on its way to the server and take one.
    server.install([ScriptedReply("I am back")] * 2)
    done = program.ask("go on", "--continue")
    assert (done.code, done.row["text"], done.err) == (0, "I am back", ""), done
    rows = said(server.requests[-1])
    assert rows[0][1].startswith("work through the steps")
    assert_calls_answered_once(server.requests[-1])
    assert_requests_are_sound(server)
    trace = (program.work / "trace").read_text().splitlines() if (program.work / "trace").exists() else []
    assert trace == [f"step {n}" for n in range(len(trace))], "an effect came twice or was left out"
    texts = [text for role, text in rows if role == "tool"]
    unknown = [text for text in texts if "unknown" in text or "not started" in text or "Not run" in text]
    # A stopped call's result holds what it had printed.
    whole = [text for text in texts if text not in unknown]
    numbers = [n for n in range(STEPS) if any(f"did step {n}" in text for text in whole)]
    assert len(numbers) + len(unknown) == len(texts)
    assert len(trace) - len(numbers) in (0, 1), "a finished effect whose result was lost is at most the last"


def one_round(root: Path, number: int, moment: float) -> int:
    """Stop a run at a moment of its turn with a signal, and go on; gives the stopped one's exit code."""
    with PracticeServer(script=script()) as server:
        program = Program(root, server)
        running = program.start_asking("work through the steps")
        stop_at(program, running, number, moment)
        done = running.done()
        if number != signal.SIGKILL:
            assert done.err == "" or "cancelled" in done.err, done
            assert done.row["end_reason"] in ("cancelled", "answered")
        assert_goes_on(program, root)
        # The signal may come when the answer is out and the interpreter is on its way down.
        late = number != signal.SIGKILL and done.row["end_reason"] == "answered"
        return 0 if late else done.code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_stopped_at_random_moments_nothing_is_lost_or_done_twice(tmp_path, number, code):
    rng = random.Random(number)
    codes = [one_round(tmp_path / str(n), number, rng.random()) for n in range(4)]
    assert set(codes) <= {0, code} and code in codes, codes


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(100))
def test_a_hundred_random_kills(tmp_path, round_):
    rng = random.Random()
    number = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM))
    one_round(tmp_path, number, rng.random())


def test_ctrl_c_before_the_first_request_is_an_interrupt_and_no_stack(tmp_path):
    with PracticeServer(script=[ScriptedReply("", fault=Fault(stall_after=-1))] * 9) as server:
        for pause_s in (0.0, 0.01, 0.03, 0.06):
            program = Program(tmp_path / str(pause_s), server)
            running = program.start_asking("hello")
            time.sleep(pause_s)
            os.kill(running.pid, signal.SIGINT)
            done = running.done()
            assert done.code == 130, done
            assert done.err in ("", "cancelled\n"), done


_SWALLOWS = """
import os, signal, sys
from whet.cli import launch, main

load = launch.load_settings

def swallowing(*given):
    try:
        os.kill(os.getpid(), {number})
    except BaseException:
        pass
    return load(*given)

launch.load_settings = swallowing
sys.argv = ["whet", "chat", "-q", "hello"]
main.main()
"""


@pytest.mark.fast_rows("2-130")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_c_code_drops_before_the_first_request_ends_the_run(tmp_path, number, code):
    with PracticeServer(script=[ScriptedReply("never asked for")]) as server:
        settings = {"WHET_HOME": str(tmp_path / "home"), "WHET_MODEL_BASE_URL": server.base_url}
        done = subprocess.run(
            [sys.executable, "-c", _SWALLOWS.format(number=int(number))],
            cwd=tmp_path,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=60,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert (done.returncode, done.stderr) == (code, ""), done
        assert not server.requests


_SWALLOWS_IN_A_LOOP = """
import asyncio, os, signal
from whet.cli import main

async def work():
    try:
        os.kill(os.getpid(), {number})
        for _ in range(100):  # a handler runs between two lines of Python
            pass
    except BaseException:
        pass
    try:
        await asyncio.Event().wait()
    finally:
        print("ended", flush=True)

signal.signal(signal.SIGTERM, main._stop)
signal.signal(signal.SIGINT, main._stop)
try:
    main.run_on_loop(work())
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_c_code_drops_in_a_loop_ends_the_work_and_the_run(number, code):
    command = [sys.executable, "-c", _SWALLOWS_IN_A_LOOP.format(number=int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, "ended\n", "")


@pytest.mark.unconfined  # its commands' process numbers are looked up
def test_killed_in_step_8_of_20_all_7_finished_steps_are_in_the_next_request(tmp_path):
    steps = [does(use("terminal", command=f"echo finished step {n}")) for n in range(1, 8)]
    steps.append(does(use("terminal", command="echo $$ > pid; echo up > ready; sleep 60")))
    with PracticeServer(script=steps) as server:
        program = Program(tmp_path, server)
        os.mkfifo(program.work / "ready")
        running = program.start_asking("twenty steps, please")
        assert within((program.work / "ready").read_text, "the command's word on its pipe") == "up\n"
        os.kill(running.pid, signal.SIGKILL)
        assert running.done().code == -9
        os.kill(int((program.work / "pid").read_text()), signal.SIGKILL)
        server.install([ScriptedReply("I see 7 finished steps.")])
        done = program.ask("go on", "--continue")
        assert (done.code, done.row["text"]) == (0, "I see 7 finished steps."), done
        rows = said(server.requests[-1])
        texts = [text for role, text in rows if role == "tool"]
        assert [f"finished step {n}" in text for n, text in enumerate(texts[:7], 1)] == [True] * 7
        assert len(texts) == 8 and "outcome is unknown" in texts[7]
        assert (rows[0][0], rows[-1][0]) == ("user", "user")
        assert rows[0][1].startswith("twenty steps") and rows[-1][1].startswith("go on")
        assert_calls_answered_once(server.requests[-1])
        assert_requests_are_sound(server)


@pytest.mark.slow
def test_a_second_process_on_a_running_session_is_turned_away_and_nothing_mixes(tmp_path):
    script = [ScriptedReply("one"), ScriptedReply("slow", fault=Fault(stall_after=1))]
    with PracticeServer(script=script) as server:
        program = Program(tmp_path, server)
        session = program.ask("first").row["session_id"]
        running = program.start_asking("second", "--session", session)
        server.wait_for_stall()
        program.ask("third", "--session", session).assert_error("session")
        assert server.count == 2
        # Another session of the same home is not in its way.
        server.install([ScriptedReply("aside")])
        assert program.ask("meanwhile").row["text"] == "aside"
        server.release()
        assert running.done().row["text"] == "slow"
        server.install([ScriptedReply("four")])
        assert program.ask("fourth", "--session", session).row["text"] == "four"
        asked = [text.split("\n")[0] for role, text in said(server.requests[-1]) if role == "user"]
        assert asked == ["first", "second", "fourth"]
        assert_requests_are_sound(server)


def test_a_session_whose_process_was_killed_is_free_at_once(tmp_path):
    script = [ScriptedReply("", fault=Fault(stall_after=-1)), ScriptedReply("free")]
    with PracticeServer(script=script) as server:
        program = Program(tmp_path, server)
        running = program.start_asking("first")
        server.wait_for_stall()
        os.kill(running.pid, signal.SIGKILL)
        running.done()
        assert program.ask("second", "--continue").row["text"] == "free"
        asked = [text.split("\n")[0] for role, text in said(server.requests[-1]) if role == "user"]
        assert asked == ["first", "second"]
        assert_requests_are_sound(server)
