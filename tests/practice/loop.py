"""A tiny agent for tests: asks the responder and really runs its commands in a folder, until it answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from whet_lab.practice.ask import Offer, PracticeCall, PracticeRequest, RequestMessage
from whet_lab.practice.responder import answer


def _tool(name: str, *required: str) -> tuple[str, Offer]:
    properties = {key: {"type": "string"} for key in required}
    return name, Offer(name, {"type": "object", "properties": properties, "required": list(required)})


OFFERS = dict(
    [
        _tool("terminal", "command"),
        _tool("read_file", "path"),
        _tool("write_file", "path", "content"),
        _tool("patch", "path", "old_string", "new_string"),
        _tool("search_files", "pattern"),
    ]
)


class Loop:
    """One conversation in a folder. `gate` gives the denial of a command, or an empty text."""

    def __init__(
        self, folder: Path, *, system: str = "", gate: Callable[[str], str] = lambda command: ""
    ) -> None:
        self.folder = folder
        self.system = system
        self.gate = gate
        self.heard: list[RequestMessage] = []
        self.calls: list[PracticeCall] = []

    @property
    def commands(self) -> list[str]:
        return [str(json.loads(call.arguments).get("command", call.name)) for call in self.calls]

    def ask(self, text: str, *, steps: int = 60) -> str:
        """Say `text` and work until the responder answers; after `steps` calls stop in the middle."""
        self.heard.append(RequestMessage("user", text))
        return self.go(steps)

    def go(self, steps: int = 60) -> str:
        for _ in range(steps):
            request = PracticeRequest("chat_completions", "practice", self.system, OFFERS, tuple(self.heard))
            reply = answer(request)
            self.heard.append(RequestMessage("assistant", reply.text, reply.tool_calls))
            if not reply.tool_calls:
                return reply.text
            for call in reply.tool_calls:
                self.calls.append(call)
                self.heard.append(RequestMessage("tool", self.run(call), call_id=call.id))
        return ""

    def run(self, call: PracticeCall) -> str:
        arguments = json.loads(call.arguments)
        if call.name == "terminal":
            return self.gate(arguments["command"]) or self._shell(arguments["command"])
        if call.name == "search_files":
            return self._shell(f"grep -rn {arguments['pattern']} .")
        path = self.folder / arguments["path"]
        if call.name == "read_file":
            lines = path.read_text().splitlines()
            return "\n".join(f"{number:>4}\t{line}" for number, line in enumerate(lines, 1))
        if call.name == "write_file":
            path.write_text(arguments["content"])
            return f"wrote {path}"
        text = path.read_text()
        assert text.count(arguments["old_string"]) == 1
        path.write_text(text.replace(arguments["old_string"], arguments["new_string"]))
        return "patched"

    def _shell(self, command: str) -> str:
        environment = os.environ | {"HOME": str(self.folder.parent)}
        environment.pop("ORDERS_DB", None)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        note = f"\n[exit code {done.returncode}]" if done.returncode else ""
        return f"{done.stdout}{done.stderr}{note}" or "[no output, exit 0]"
