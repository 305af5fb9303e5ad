"""Real `whet serve` and `whet worker` processes on one team's database."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx2
import msgspec

from tests.support import output_of
from whet_lab.practice.server import PracticeServer

LEASE_S = 2.0
_URL = re.compile(r"(http://[\d.:]+)/v1")


def environment(url: str, home: Path, server: PracticeServer, model: str) -> dict[str, str]:
    return {
        **os.environ,
        "WHET_HOME": str(home),
        "WHET_STORE_URL": url,
        "WHET_STORE_LEASE_S": str(LEASE_S),
        "WHET_MODEL_PROVIDER": "practice",
        "WHET_MODEL_BASE_URL": server.base_url,
        "WHET_MODEL_MODEL": model,
        "WHET_APPROVAL_MODE": "auto",
        "WHET_SANDBOX_MODE": "off",
    }


def start(
    arguments: list[str],
    given: dict[str, str],
    folder: Path,
    before: tuple[str, ...] = (),
    output: int | IO[str] = subprocess.PIPE,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-P", "-m", "whet", *arguments],
        env=given,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


@contextmanager
def worker(given: dict[str, str], folder: Path, turns: int = 4) -> Iterator[subprocess.Popen[str]]:
    process = start(["worker", "--turns", str(turns)], given, folder)
    try:
        line = output_of(process).readline()
        assert line.startswith("working on"), line + output_of(process).read()
        yield process
    finally:
        end(process)


class Served:
    """A running `whet serve`, and a client of it with the owner's token."""

    def __init__(self, process: subprocess.Popen[str], url: str, token: str) -> None:
        self.process = process
        self.url = url
        headers = {"authorization": f"Bearer {token}"}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=60)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def session(self) -> str:
        return self.post("/api/sessions")["id"]

    @contextmanager
    def events(self, session_id: str, last_id: str = "") -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        headers = {"last-event-id": last_id} if last_id else {}
        with self.http.stream("GET", f"/api/sessions/{session_id}/events", headers=headers) as answer:
            assert answer.status_code == 200
            yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    id_ = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            id_ = value
        elif name == "data":
            yield id_, msgspec.json.decode(value)


@contextmanager
def served(given: dict[str, str], folder: Path) -> Iterator[Served]:
    process = start(["serve", "--port", "0", "--answer-wait", "60"], given, folder)
    try:
        line = output_of(process).readline()
        match = _URL.search(line)
        assert match is not None, line + output_of(process).read()
        while "working in" not in output_of(process).readline():
            pass
        token = (Path(given["WHET_HOME"]) / "serve" / "owner.token").read_text().strip()
        one = Served(process, match[1], token)
        try:
            yield one
        finally:
            one.http.close()
    finally:
        end(process)
