"""The workplace that the agent is put into: the tool `ops`, the pages, and what was seen at each command.

The tool is a real tool of the program, run through its gate and its store; what it answers is the world's
verdict. It notes what stood before the model when a command came, which is what "point of use" means here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Literal, Self

import msgspec

from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.evals.world import About, Plan, Verdict, World
from whet.practice.gated_facts import Command, Statement, claims, read_command
from whet.tools.signature import tool

Standing = Literal["right", "wrong", "absent"]

_USAGE = (
    "refused: write TOOL TARGET NUMBER KEY=VALUE ..., for instance: sync mail 4711 flag=--fast host=cedar"
)


class Tried(msgspec.Struct, frozen=True):
    """One command that came, and what the model had before it of each fact that the command needs."""

    command: Command
    verdict: Verdict
    objection: str
    standing: dict[About, Standing]

    @property
    def is_right(self) -> bool:
        """Whether the workplace took it and the person would be content."""
        return self.verdict.text.startswith("ok:") and not self.objection


@dataclass(slots=True)
class Station:
    """The place of one world. `look` gives all that stands before the model; set for each session."""

    world: World
    look: Callable[[], str] = str
    tried: list[Tried] = field(default_factory=list[Tried])
    _plan: Plan | None = None

    def begin(self, plan: Plan, look: Callable[[], str]) -> None:
        """Begin a session."""
        self._plan, self.look, self.tried = plan, look, []

    def tools(self) -> list[Tool]:
        """Give the workplace's tool."""

        @tool(toolset="world", effects={"read"}, timeout_s=30.0)
        async def ops(
            ctx: ToolContext, command: Annotated[str, "TOOL TARGET NUMBER KEY=VALUE ..."]
        ) -> ToolOutput:
            """Run a command of this workplace. Each tool and target needs its own settings; a refusal may
            say which."""
            return self._run(command)

        return [ops]

    def _run(self, text: str) -> ToolOutput:
        plan, command = self._plan, read_command(text)
        assert plan is not None  # tools run in sessions, and each one begins here
        if command is None:
            return ToolOutput(_USAGE, error_kind="failed")
        verdict = self.world.judge(command, plan)
        known = claims(self.look())
        standing: dict[About, Standing] = {
            claim.about: self._standing(claim, known, plan) for claim in command.statements()
        }
        objection = self.world.objection(command, plan) if verdict.text.startswith("ok:") else ""
        self.tried.append(Tried(command, verdict, objection, standing))
        return ToolOutput(verdict.text, error_kind="" if verdict.text.startswith("ok:") else "failed")

    def _standing(self, claim: Statement, known: list[Statement], plan: Plan) -> Standing:
        if claim.about[1] != "format" and claim.about not in self.world.facts:
            return "absent"
        said = [one.value for one in known if one.about == claim.about]
        if not said:
            return "absent"
        return "right" if said[-1] == self.world.truth(claim.about, plan.number, plan.person) else "wrong"


class Pages:
    """A web server on loopback with the pages that sessions read. A context manager."""

    def __init__(self, world: World) -> None:
        texts = {f"/{plan.number}": world.page(plan) for plan in world.plans if plan.planted}

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = texts.get(self.path, "").encode()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="world-pages", daemon=True
        )

    def address(self, plan: Plan) -> str:
        """Give the address of a session's page."""
        return f"http://127.0.0.1:{self._server.server_port}/{plan.number}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
