"""The real program in a home of its own against a practice server, and what must hold after any run.

`Program` runs `whet` as a process (see nursery.py). `assert_requests_are_sound` is what every story ends
with: no request was refused, each fits the vendor's own SDK types, and each is a byte prefix of the next one
of its conversation.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tests.providers import shapes
from whet.practice.ask import Call
from whet.practice.endpoints import Recorded
from whet.practice.script import Reply
from whet.practice.server import PracticeServer

ROOT = Path(__file__).parents[2]
ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "/v1/chat/completions": shapes.CHAT,
    "/v1/messages": shapes.ANTHROPIC,
    "/v1/responses": shapes.RESPONSES,
}


@dataclass(frozen=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def row(self) -> dict[str, Any]:
        """The one object of --json; standard output holds nothing else."""
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), (
            f"not one object: {self.out!r} {self.err}"
        )
        return json.loads(self.out)

    def assert_error(self, *words: str, code: int = 1, hint: bool = True) -> None:
        """One `error: ...` line that holds `words`, a hint line, and no stack."""
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert self.code == code, self
        assert len(errors) == 1 and "Traceback" not in self.err, self.err
        assert not hint or any(line.startswith("hint: ") for line in lines), f"no hint: {self.err}"
        assert len(lines) <= 3, f"more than an error and its hint: {self.err}"
        for word in words:
            assert word.lower() in self.err.lower(), f"{word!r} is not in: {self.err}"


class Nursery:
    """The process that runs are forked from; started at the first run, one for all tests of a process."""

    _only: Nursery | None = None

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stories.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        self._count = 0
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._buffer = b""
        atexit.register(self.close)

    @classmethod
    def get(cls) -> Nursery:
        """Give the one that runs."""
        if cls._only is None:
            cls._only = Nursery()
        return cls._only

    def start(self, order: dict[str, Any]) -> tuple[int, int]:
        """Start a run and give its number and process id."""
        self._count += 1
        number = self._count
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order | {"id": number}).encode() + b"\n")
        self._process.stdin.flush()
        self._read_until(lambda: number in self._pids, 30.0)
        return number, self._pids[number]

    def wait(self, number: int, timeout_s: float) -> int:
        """Wait for a run's end and give its exit code, the negative number of a signal that killed it."""
        self._read_until(lambda: number in self._codes, timeout_s)
        return self._codes[number]

    def close(self) -> None:
        """End it; what still runs is left alone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def _read_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while not condition():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
                raise TimeoutError(f"a run did not end within {timeout_s:g} s")
            data = os.read(fd, 65_536)
            assert data, "the nursery died"
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                row = json.loads(line)
                if "pid" in row:
                    self._pids[row["id"]] = row["pid"]
                else:
                    self._codes[row["id"]] = row["code"]


class Running:
    """A started run; its output goes to files in `folder`."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._number, self.pid = Nursery.get().start(order)

    @property
    def out(self) -> str:
        """What it wrote to standard output until now."""
        return Path(self._order["stdout"]).read_text()

    def done(self, timeout_s: float = 60.0) -> Done:
        """Wait for its end; one that does not end is killed."""
        try:
            code = Nursery.get().wait(self._number, timeout_s)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        return Done(code, self.out, Path(self._order["stderr"]).read_text())


@dataclass
class Program:
    """`whet` with a home, a work folder and a model server."""

    root: Path
    server: PracticeServer | None = None
    model: str = "practice"
    wire: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    work: Path = Path()
    _runs: int = 0

    def __post_init__(self) -> None:
        self.work = self.root / "work"
        self.work.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        """WHET_HOME of its runs."""
        return self.root / "home"

    def start(
        self, *arguments: str, given: bytes | None = None, environ: Mapping[str, str] | None = None
    ) -> Running:
        """Start `whet` with exactly these arguments."""
        settings = {"WHET_HOME": str(self.home), "WHET_MODEL_MAX_RETRIES": "0"}
        self._runs += 1
        place = self.root / "runs" / str(self._runs)
        place.mkdir(parents=True)
        if given is not None:
            (place / "in").write_bytes(given)
        order = {
            "arguments": arguments,
            "folder": str(self.work),
            "environ": {**os.environ, **settings, **self.environ, **(environ or {})},
            "stdin": "/dev/null" if given is None else str(place / "in"),
            "stdout": str(place / "out"),
            "stderr": str(place / "err"),
            **self.limits,
        }
        return Running(order)

    def run(self, *arguments: str, given: bytes | None = None, **environ: str) -> Done:
        """Run `whet` with exactly these arguments."""
        return self.start(*arguments, given=given, environ=environ).done()

    def ask(self, question: str, *arguments: str, given: bytes | None = None, **environ: str) -> Done:
        """Run a one-shot with --json and everything allowed that is not denied."""
        return self.start_asking(question, *arguments, given=given, environ=environ).done()

    def start_asking(
        self,
        question: str,
        *arguments: str,
        given: bytes | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Running:
        """Start such a one-shot."""
        approvals = () if any(a in ("--approvals", "--yes") for a in arguments) else ("--yes",)
        output = () if any(a in ("--json", "--stream-json", "--text") for a in arguments) else ("--json",)
        rest = [a for a in arguments if a != "--text"]
        return self.start(
            "chat", "-q", question, *output, *approvals, *self.flags, *rest, given=given, environ=environ
        )

    @property
    def flags(self) -> list[str]:
        """What makes the server answer."""
        if self.server is None:
            return []
        names = ["--provider", "practice", "--base-url", self.server.base_url, "--model", self.model]
        return [*names, "--format", self.wire] if self.wire else names

    def sessions(self) -> list[dict[str, Any]]:
        """What `sessions list --json` shows."""
        found = json.loads(self.run("sessions", "list", "--json").out)
        return found["sessions"] if isinstance(found, dict) else found


def assert_requests_are_sound(server: PracticeServer, *, refused: bool = False) -> None:
    """No request was refused, all fit the SDKs' types, and each extends the one before it."""
    conversations: dict[str, list[bytes]] = {}
    for request in server.requests:
        assert refused or not request.refused, request.refused
        shapes.check(ADAPTERS[request.path], request.parsed)
        conversations.setdefault(_opening(request), []).append(request.body)
    for bodies in conversations.values():
        for earlier, later in pairwise(bodies):
            assert later.startswith(earlier.rstrip(b"]}")), "a request is no byte prefix of the next"


def _opening(request: Recorded) -> str:
    """Name a conversation by what it begins with."""
    body = request.parsed
    rows = body.get("messages") or body["input"]
    first = next(row for row in rows if row.get("role") == "user")
    system = [row for row in rows if row.get("role") == "system"]
    return json.dumps([request.path, body["model"], body.get("system"), system, body.get("tools"), first])


def said(request: Recorded) -> list[tuple[str, str]]:
    """Give (role, text) of each Chat Completions message after the system prompt."""
    return [
        (row["role"], _text(row.get("content")))
        for row in request.parsed["messages"]
        if row["role"] != "system"
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def assert_calls_answered_once(request: Recorded) -> None:
    """Every call of a Chat Completions request has one result, and every result a call."""
    rows = request.parsed["messages"]
    asked = [call["id"] for row in rows for call in row.get("tool_calls") or ()]
    answered = [row["tool_call_id"] for row in rows if row["role"] == "tool"]
    assert asked == answered, f"asked {asked}, answered {answered}"


def use(tool: str, call_id: str = "", **arguments: object) -> Call:
    """A call of a tool."""
    return Call(tool, json.dumps(arguments), call_id)


def does(*calls: Call, text: str = "") -> Reply:
    """A reply that asks for tools."""
    return Reply(text, tool_calls=calls)


def together(runs: Sequence[Running]) -> list[Done]:
    """Wait for several runs that were started at once."""
    return [run.done() for run in runs]
