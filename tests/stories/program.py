"""The real program in a home of its own against a practice server, and what must hold after any run.

`Program` runs `whet` as a process (see tests/forked.py). `assert_requests_are_sound` is what every story ends
with: no request was refused, each fits the vendor's own SDK types, and each is a byte prefix of the next one
of its conversation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.forked import Done, Running
from tests.providers import shapes
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.endpoints import RecordedRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ROOT = Path(__file__).parents[2]
REQUEST_TYPES = {"/v1/chat/completions": shapes.CHAT, "/v1/messages": shapes.ANTHROPIC}
REQUEST_TYPES["/v1/responses"] = shapes.RESPONSES


@dataclass
class Program:
    """`whet` with a home, a work folder and a model server."""

    root: Path
    server: Any = None  # a PracticeServer, if the test has one
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
        return self.root / "home"

    def start(
        self, *arguments: str, given: bytes | None = None, environ: Mapping[str, str] | None = None
    ) -> Running:
        """Start `whet` with exactly these arguments."""
        settings = {"WHET_HOME": str(self.home), "WHET_MODEL_MAX_RETRIES": "0"}
        self._runs += 1
        path = self.root / "runs" / str(self._runs)
        path.mkdir(parents=True)
        if given is not None:
            (path / "in").write_bytes(given)
        order = {
            "arguments": arguments,
            "folder": str(self.work),
            "environ": {**os.environ, **settings, **self.environ, **(environ or {})},
            "stdin": "/dev/null" if given is None else str(path / "in"),
            "stdout": str(path / "out"),
            "stderr": str(path / "err"),
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
        data = json.loads(self.run("sessions", "list", "--json").out)
        return data["sessions"] if isinstance(data, dict) else data


def assert_requests_are_sound(server: PracticeServer, *, refused: bool = False) -> None:
    """No request was refused, all fit the SDKs' types, and each extends the one before it."""
    conversations: dict[str, list[bytes]] = {}
    for request in server.requests:
        assert refused or not request.refused, request.refused
        shapes.check(REQUEST_TYPES[request.path], request.json_body)
        conversations.setdefault(_opening(request), []).append(request.body)
    for bodies in conversations.values():
        for earlier, later in pairwise(bodies):
            assert later.startswith(earlier.rstrip(b"]}")), "a request is not a byte prefix of the next"


def _opening(request: RecordedRequest) -> str:
    """Name a conversation by what it begins with."""
    body = request.json_body
    rows = body.get("messages") or body["input"]
    first = next(row for row in rows if row.get("role") == "user")
    system = [row for row in rows if row.get("role") == "system"]
    return json.dumps([request.path, body["model"], body.get("system"), system, body.get("tools"), first])


def said(request: RecordedRequest) -> list[tuple[str, str]]:
    """Give (role, text) of each Chat Completions message after the system prompt."""
    rows = [row for row in request.json_body["messages"] if row["role"] != "system"]
    return [(row["role"], _text(row.get("content"))) for row in rows]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def assert_calls_answered_once(request: RecordedRequest) -> None:
    rows = request.json_body["messages"]
    asked = [call["id"] for row in rows for call in row.get("tool_calls") or ()]
    answered = [row["tool_call_id"] for row in rows if row["role"] == "tool"]
    assert asked == answered, f"asked {asked}, answered {answered}"


def use(tool: str, call_id: str = "", **arguments: object) -> PracticeCall:
    return PracticeCall(tool, json.dumps(arguments), call_id)


def does(*calls: PracticeCall, text: str = "") -> ScriptedReply:
    """A reply that asks for tools."""
    return ScriptedReply(text, tool_calls=calls)


def together(runs: Sequence[Running]) -> list[Done]:
    """Wait for several runs that were started at once."""
    return [run.done() for run in runs]
