"""`whet acp` spoken to by hand, without the SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import within
from whet_lab.practice.server import PracticeServer


class Wire:
    """`whet acp` spoken to by hand."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    def send(self, number: int, method: str, **params: Any) -> None:
        row = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.stdin.write(json.dumps(row).encode() + b"\n")
        self.stdin.flush()

    def until(self, **wanted: Any) -> dict[str, Any]:
        """Read messages up to one with these fields."""
        while True:
            message = json.loads(within(self.stdout.readline, f"a message with {wanted}"))
            assert message["jsonrpc"] == "2.0"
            if all(message.get(key) == value for key, value in wanted.items()):
                return message

    def begin(self, folder: Path) -> str:
        """Shake hands and begin a session."""
        self.send(1, "initialize", protocolVersion=1)
        self.until(id=1)
        self.send(2, "session/new", cwd=str(folder), mcpServers=[])
        return self.until(id=2)["result"]["sessionId"]

    def say(self, number: int, session_id: str, text: str) -> None:
        self.send(number, "session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])


@contextmanager
def by_hand(home: Path, server: PracticeServer, folder: Path, *arguments: str) -> Generator[Wire]:
    """Start `whet acp` in a home, and end it."""
    folder.mkdir(exist_ok=True)
    flags = ["--provider", "practice", "--base-url", server.base_url, "--model", "practice"]
    command = [sys.executable, "-m", "whet", "acp", *flags, *arguments]
    environ = {**os.environ, "WHET_HOME": str(home)}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, cwd=folder, env=environ)
    wire = Wire(process)
    try:
        yield wire
    finally:
        wire.stdin.close()
        process.wait(30)
        wire.stdout.close()
