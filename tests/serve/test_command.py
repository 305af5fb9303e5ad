"""`whet serve` as people run it: the first token, tokens by name, the end at SIGTERM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support import within
from whet.cli.group import run
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.serve import tokens
from whet.store.database import StateDatabase
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

WAIT_S = 30.0


class Process:
    """One `whet serve`."""

    def __init__(self, home: Path, workspace: Path, model: PracticeServer, *options: str) -> None:
        command = [sys.executable, "-m", "whet", "serve", "--port", "0", "--workspace", str(workspace)]
        command += ["--provider", "practice", "--model", "practice", "--base-url", model.base_url, *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "WHET_HOME": str(home)},
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        try:
            while not self.lines or not self.lines[-1].startswith("working in"):
                self.lines.append(within(self.process.stdout.readline, f"the server; it said {self.lines}"))
                if not self.lines[-1]:
                    raise RuntimeError("".join(self.lines))
        except (TimeoutError, RuntimeError):
            self.process.kill()
            raise
        self.url = self.lines[0].split()[3].removesuffix("/v1")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.lines += within(self.process.stdout.readlines, "the end of its words")
        self.process.stdout.close()
        return code


@pytest.fixture
def model() -> Iterator[PracticeServer]:
    with PracticeServer(script=[ScriptedReply("Done at last.", fault=Fault(stall_after=-1))]) as server:
        yield server


def whet(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command of the same home, in this process."""
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_it_makes_a_token_once_and_answers_what_runs_before_it_ends(
    tmp_path: Path, home: Path, model: PracticeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    running = Process(home, workspace, model)
    path = home / "serve" / "owner.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    owner = {"authorization": f"Bearer {path.read_text().strip()}"}
    secret = whet(capsys, "serve", "token", "create", "laptop").strip()
    listed = json.loads(whet(capsys, "serve", "token", "list", "--json"))["tokens"]
    assert [(row["name"], row["role"]) for row in listed] == [("owner", "owner"), ("laptop", "chat")]
    assert secret not in (home / "state.db").read_bytes().decode("latin-1")
    laptop = {"authorization": f"Bearer {secret}"}
    got: list[httpx2.Response] = []
    with httpx2.Client(base_url=running.url, timeout=WAIT_S) as http:
        assert http.get("/v1/models", headers=laptop).status_code == 200
        whet(capsys, "serve", "token", "revoke", "laptop")
        assert http.get("/v1/models", headers=laptop).status_code == 401

        def ask() -> None:
            body = {"model": "whet", "messages": [{"role": "user", "content": "work"}]}
            got.append(
                httpx2.post(f"{running.url}/v1/chat/completions", json=body, headers=owner, timeout=WAIT_S)
            )

        asking = threading.Thread(target=ask)
        asking.start()
        model.wait_for_stall()
        running.process.send_signal(signal.SIGTERM)
        # It has stopped listening when a new connection is refused; then the turn may end.
        while True:
            try:
                httpx2.get(f"{running.url}/health")
            except httpx2.TransportError:
                break
        model.release()
        asking.join(WAIT_S)
    assert running.process.wait(WAIT_S) == 0
    running.stop()
    assert got[0].json()["choices"][0]["message"]["content"] == "Done at last."
    shown = json.loads(whet(capsys, "sessions", "list", "--json"))["sessions"]
    assert [(row["title"], row["turns"]) for row in shown] == [("work", 1)]
    with contextlib.closing(StateDatabase.open(home / "state.db", SystemClock())) as database:
        assert tokens.make_first(database, Home(home), SystemClock()) is None  # there was one


@pytest.mark.slow
def test_nothing_is_lost_when_it_is_killed_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "work"
    workspace.mkdir()
    call = PracticeCall("terminal", json.dumps({"command": "echo once >> log.txt"}), "c1")
    script = [
        ScriptedReply(tool_calls=(call,)),
        ScriptedReply("lost", fault=Fault(stall_after=-1)),
        ScriptedReply("Both seen."),
    ]
    with PracticeServer(script=script) as model:
        first = Process(home, workspace, model, "--approvals", "auto")
        owner = {"authorization": f"Bearer {(home / 'serve' / 'owner.token').read_text().strip()}"}

        def body(text: str) -> dict[str, object]:
            return {"model": "whet", "user": "thread", "messages": [{"role": "user", "content": text}]}

        def ask() -> None:
            with contextlib.suppress(httpx2.TransportError):
                httpx2.post(
                    f"{first.url}/v1/chat/completions", json=body("one"), headers=owner, timeout=WAIT_S
                )

        asking = threading.Thread(target=ask)
        asking.start()
        model.wait_for_stall()
        first.process.kill()
        asking.join(WAIT_S)
        first.stop()
        again = Process(home, workspace, model, "--approvals", "auto")
        answer = httpx2.post(
            f"{again.url}/v1/chat/completions", json=body("two"), headers=owner, timeout=WAIT_S
        ).json()
        again.stop()
        assert answer["choices"][0]["message"]["content"] == "Both seen."
        roles = [message["role"] for message in model.requests[-1].json_body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert (workspace / "log.txt").read_text() == "once\n"


@pytest.mark.slow
def test_a_taken_port_is_told_in_a_line(tmp_path: Path, model: PracticeServer) -> None:
    port = model.base_url.rpartition(":")[2].removesuffix("/v1")
    done = subprocess.run(
        [sys.executable, "-m", "whet", "serve", "--port", port, "--provider", "practice"],
        env={**os.environ, "WHET_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: port {port} on 127.0.0.1 is taken\nhint: "), done.stderr
