"""`whet confirm serve` as a process of its own, for what only a process shows: signals, kill -9, restarts."""

from __future__ import annotations

import http.client
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2

SERVE = [sys.executable, "-m", "whet", "confirm", "serve"]


class Served:
    """A running service in `folder`; its first tokens are its callers."""

    def __init__(self, folder: Path, *options: str, home: str = "home") -> None:
        self.folder = folder
        self.home = folder / home
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self._clients: list[httpx2.Client] = []

    def start(self) -> Served:
        """Start it and wait until it listens."""
        environ = os.environ | {"WHET_HOME": str(self.home)}
        self.process = subprocess.Popen(
            [*SERVE, "--port", "0", "--web-port", "-1", *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
        )
        try:
            self.port = self._read_port()
        except BaseException:
            self.kill()
            raise
        return self

    def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        role: str = "",
        timeout_s: float = 30,
    ) -> tuple[int, dict[str, Any]]:
        """One call on a connection of its own; raises OSError where nobody answers."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)) as connection:
            headers = {"Authorization": f"Bearer {self.token(role)}"} if role else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}

    def client(self, role: str | None) -> httpx2.Client:
        """A client with the first token of `role`, with none for None; closed with the service."""
        headers = {"authorization": f"Bearer {self.token(role)}"} if role else {}
        client = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=20)
        self._clients.append(client)
        return client

    def make_admin(self) -> str:
        """Make a token of role admin, as people do."""
        command = [*SERVE[:-1], "token", "create", "--role", "admin", "--name", "root"]
        environ = os.environ | {"WHET_HOME": str(self.home)}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ, timeout=60)
        return done.stdout.strip()

    def token(self, role: str) -> str:
        return (self.home / "confirm" / f"{role}.token").read_text().strip()

    def wait_for_metric(self, line: str) -> None:
        deadline = time.monotonic() + 20
        while line not in self.call("GET", "/metrics")[1]["text"]:
            assert time.monotonic() < deadline, line

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read_port(self) -> int:
        assert self.process is not None and self.process.stdout is not None
        seen = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + 30
            while (match := re.search(rb"http://127\.0\.0\.1:(\d+)\n", seen)) is None:
                assert time.monotonic() < deadline and ready.select(30), seen
                part = os.read(self.process.stdout.fileno(), 4096)
                assert part, f"it ended: {seen!r}"
                seen += part
        return int(match[1])

    def __enter__(self) -> Served:
        return self.start()

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()
        elif self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
