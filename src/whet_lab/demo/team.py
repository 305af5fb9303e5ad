"""The demo's chapter `team`: three workers share a PostgreSQL database.

One is killed in the middle of a turn, one is stopped and continues too late. Every claim is read from the
database and the workers' output.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from whet.contract.errors import Unavailable
from whet.contract.texts import from_json
from whet.store.database import needs_driver
from whet_lab.demo.run import DemoRun
from whet_lab.practice.database import TrialServer
from whet_lab.practice.script import ScriptedReply, ScriptFile, terminal_reply

_LEASE_S = 3.0
_LIMIT_S = 90.0
_POLL_S = 0.05
_SETTINGS = f"""\
store:
  url: {{url}}
  lease_s: {_LEASE_S}
sandbox:
  mode: "off"
"""
_WORKERS = 3


class _Answer(msgspec.Struct):
    text: str
    end_reason: str
    attempts: int
    worker: str
    session_id: str


def run_chapter(run: DemoRun) -> None:
    """Run the chapter."""
    with needs_driver():
        import psycopg  # noqa: PLC0415 - an extra, which only this chapter uses

        del psycopg
    with closing(TrialServer()) as server:
        workers = _start_workers(run, server)
        killed = _signal_worker(run, workers, signal.SIGKILL)
        stopped = _signal_worker(run, workers, signal.SIGSTOP)
        run.whet("team", "status")
    run.measured |= {
        "lease_s": _LEASE_S,
        "killed_to_answer_s": killed,
        "stopped_to_answer_s": stopped,
        "wall_s": run.wall_s,
    }


def _start_workers(run: DemoRun, server: TrialServer) -> list[subprocess.Popen[str]]:
    stage, world = run.stage, run.world
    stage.title("whet demo, chapter team")
    stage.say(
        "The model is the practice model: a scripted stand-in, not a language model. Everything else is "
        "real: a PostgreSQL server in a temporary folder, three workers, the signals that they are sent."
    )
    code, _ = run.whet("team", "init", server.url)
    run.check("team_init", code == 0)
    with world.home.config.open("a", encoding="utf-8") as file:
        file.write(_SETTINGS.format(url=server.url))
    stage.command(f"whet worker --turns 2   # {_WORKERS} times")
    workers = [world.whet(["worker", "--turns", "2"]) for _ in range(_WORKERS)]
    for worker in workers:
        _wait_for_line(worker, "working on")
    return workers


def _signal_worker(run: DemoRun, workers: list[subprocess.Popen[str]], number: signal.Signals) -> float:
    """Ask for a turn, signal its worker in the middle of the call, and wait for the answer.

    Returns the seconds from the signal to the answer.
    """
    stage, world = run.stage, run.world
    is_kill = number == signal.SIGKILL
    state = "killed" if is_kill else "stopped"
    mark = world.project / f"{state}.txt"
    _set_script(run, mark)
    stage.command(f"whet team ask 'note that the worker is {state}'")
    asking = world.whet(["team", "ask", f"note that the worker is {state}", "--timeout", "60", "--json"])
    _wait_until(mark.exists, "the command to run")
    pid = _read_worker_pid(mark)
    os.kill(pid, number)
    began_s = time.monotonic()
    stage.say(
        f"Worker {pid} has begun to run a command, and is {state} now ({number.name}). Its lease runs for "
        f"{_LEASE_S:g} s; then another may take the session."
    )
    output, complaint = asking.communicate(timeout=_LIMIT_S)
    took_s = round(time.monotonic() - began_s, 2)
    answer = from_json(output, _Answer) if output.startswith("{") else None
    run.check(f"{state}_answered", answer is not None and answer.end_reason == "answered", complaint)
    if answer is not None:
        stage.block(answer.text)
        other = answer.worker.split(" ")[1]
        run.check(f"{state}_by_another", answer.attempts == 2 and other != str(pid), f"{answer.attempts}")
    run.check(f"{state}_ran_once", mark.read_text("utf-8") == f"{pid}\n", mark.read_text("utf-8"))
    if is_kill:
        run.conclude(
            f"Another worker answered {took_s} s after the kill. The command was not run again: the "
            "model is told that its outcome is unknown."
        )
        return took_s
    os.kill(pid, signal.SIGCONT)
    stopped = next(worker for worker in workers if worker.pid == pid)
    line = _wait_for_line(stopped, f"Turn in session {answer.session_id if answer else ''}")
    stage.say(f"The stopped worker continues and tries to store its command's result. It prints:\n\n{line}")
    run.check("fence_refuses", "another worker has taken over this session" in line, line)
    run.conclude(f"Another worker answered after {took_s} s; what the stopped one wrote later was refused.")
    return took_s


def _set_script(run: DemoRun, mark: Path) -> None:
    # The shell's parent is the worker: the file records which worker ran the command, and how often.
    command = f"echo $PPID >> {mark.name}; sleep 8"
    script = ScriptFile([terminal_reply(command), ScriptedReply("the answer of another worker")])
    with closing(http.client.HTTPConnection(urlsplit(run.world.base_url).netloc, timeout=10)) as connection:
        connection.request("POST", "/practice/script", msgspec.json.encode(script))
        if connection.getresponse().status != 200:
            raise Unavailable("the practice server refused the script")


def _read_worker_pid(mark: Path) -> int:
    _wait_until(lambda: mark.read_text("utf-8").strip(), "the worker's process id")
    return int(mark.read_text("utf-8"))


def _wait_until(condition: Callable[[], object], description: str) -> None:
    until_s = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > until_s:
            raise Unavailable(f"waited {_LIMIT_S:g} s for {description}")
        time.sleep(_POLL_S)


def _wait_for_line(process: subprocess.Popen[str], beginning: str) -> str:
    """Return the next line of a worker's output that begins with `beginning`. Raises Unavailable."""
    assert process.stdout is not None  # `DemoWorld.whet` opens a pipe
    too_late = threading.Timer(_LIMIT_S, process.kill)
    too_late.start()
    try:
        for line in process.stdout:
            if line.startswith(beginning):
                return line.strip()
    finally:
        too_late.cancel()
    raise Unavailable(f"a worker ended, or printed no line that begins with {beginning!r}")
