"""The agent's workplace: the program `ops`, and a record of the model's knowledge at each command.

`./ops` is a real program, run by the agent's own shell tool through its gate and store. It gets the
world's verdict from this process through two named pipes, so that no file contains the truth. The facts in
the model's context are recorded when the command arrives; this is the meaning of "point of use" here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Self

import msgspec

from whet_lab.evals.world import FactWorld, SessionPlan, Topic, WorldVerdict
from whet_lab.practice.gated_facts import FactCommand, FactStatement, find_claims, parse_command

Standing = Literal["right", "wrong", "absent"]

_USAGE = "refused: write ./ops TOOL TARGET NUMBER KEY=VALUE ..., as in: ./ops sync mail 4711 flag=--fast"
_PROGRAM = """\
#!/bin/sh
printf '%s\\n' "$*" > "$0.asked"
{ read -r code; while IFS= read -r line; do printf '%s\\n' "$line"; done; } < "$0.told"
exit "$code"
"""
_GUIDE = """\
# The workplace

Jobs are done with `./ops TOOL TARGET NUMBER KEY=VALUE ...`. Each tool and each target needs its own settings;
a refusal may say which. Some tools want another one to be run on the same target and number before them.
"""


class CommandAttempt(msgspec.Struct, frozen=True):
    """One command, and for each fact it needs whether the model had the right value, a wrong one, or none."""

    command: FactCommand
    verdict: WorldVerdict
    objection: str
    standing: dict[Topic, Standing]

    @property
    def is_right(self) -> bool:
        """Whether the workplace accepted the command and the person is satisfied."""
        return self.verdict.is_ok and not self.objection


@dataclass(slots=True)
class Workplace:
    """The workplace of one world. `read_context`, set for each session, returns the model's whole context."""

    world: FactWorld
    read_context: Callable[[], str] = lambda: ""
    attempts: list[CommandAttempt] = field(default_factory=list[CommandAttempt])
    _steps: list[FactCommand] = field(default_factory=list[FactCommand])
    _plan: SessionPlan | None = None

    def begin(self, plan: SessionPlan, read_context: Callable[[], str]) -> None:
        """Begin a session."""
        self._plan, self.read_context, self.attempts, self._steps = plan, read_context, [], []

    def answer(self, text: str) -> tuple[int, str]:
        """Judge a command line. Returns the exit code and the output."""
        plan, command = self._plan, parse_command(text)
        assert plan is not None  # every command comes in a session, and each session begins here
        if command is None:
            return 2, _USAGE
        if command.is_step:
            self._steps.append(command)
            return 0, self.world.judge(command, plan).text
        if steps := [step.tool for step in self._steps if step.is_on_item_of(command)]:
            command = msgspec.structs.replace(command, step=steps[-1])
        verdict = self.world.judge(command, plan)
        known_claims = find_claims(self.read_context())
        standing: dict[Topic, Standing] = {
            claim.topic: self._find_standing(claim, known_claims, plan)
            for claim in command.implied_statements()
        }
        objection = self.world.objection(command, plan) if verdict.is_ok else ""
        self.attempts.append(CommandAttempt(command, verdict, objection, standing))
        return (0 if verdict.is_ok else 1), verdict.text

    def _find_standing(
        self, claim: FactStatement, known_claims: list[FactStatement], plan: SessionPlan
    ) -> Standing:
        if claim.topic[1] != "format" and claim.topic not in self.world.facts:
            return "absent"
        values = [known_claim.value for known_claim in known_claims if known_claim.topic == claim.topic]
        if not values:
            return "absent"
        return "right" if values[-1] == self.world.truth(claim.topic, plan.number, plan.person) else "wrong"


class CommandServer:
    """Serves the commands: the program in a folder, and the thread that answers it.

    A context manager. Raises OSError if the folder can't hold named pipes.
    """

    def __init__(self, folder: Path, answer: Callable[[str], tuple[int, str]]) -> None:
        self._asked, self._told = folder / "ops.asked", folder / "ops.told"
        self._answer = answer
        self._closing = False
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "AGENTS.md").write_text(_GUIDE, "utf-8")
        program = folder / "ops"
        program.write_text(_PROGRAM, "utf-8")
        program.chmod(0o755)
        for pipe in (self._asked, self._told):
            os.mkfifo(pipe)
        self._thread = threading.Thread(target=self._serve, name="world-ops", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with self._asked.open("w", encoding="utf-8") as pipe:
            pipe.write("\n")
        self._thread.join()

    def _serve(self) -> None:
        while True:
            with self._asked.open(encoding="utf-8", errors="replace") as pipe:
                line = pipe.readline().rstrip("\n")
            if self._closing:
                return
            code, text = self._answer(line)
            with self._told.open("w", encoding="utf-8") as pipe:
                pipe.write(f"{code}\n{text}\n")


class Pages:
    """Serves `texts` by path (with the slash) on its own port. A context manager."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = texts.get(self.path, "").encode()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="pages", daemon=True
        )

    def address(self, path: str) -> str:
        """Return the address of a page."""
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
