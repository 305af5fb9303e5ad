"""What `whet serve` adds to a model call: the same question asked of the model and of Whet before it.

Two arms in one run, in turn: a client on a kept connection asks the practice server, and the API, which asks
the same practice server. Overhead is the CPU of the API's process plus what the client spends more; the
practice server's own is left out, it stands for a model. Each request is durable in the API's arm.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.measure import ROOT, clean_environment, median, own_cpu_s
from benchmarks.overhead import practice_server
from benchmarks.table import Row

COMMAND = "python -m benchmarks api"
_WARM_UP = 20
_KINDS = ("fresh session", "same session", "streamed")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Arm:
    """A client of one server."""

    def __init__(self, base_url: str, model: str, token: str, pid: int = 0) -> None:
        address = urlsplit(base_url).netloc
        self._connection = http.client.HTTPConnection(address, timeout=30)
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._model = model
        self._pid = pid

    def spend(self, kind: str, requests: int) -> float:
        """Ask so many times and give the CPU milliseconds that a request took, client and server."""
        session = self._ask(kind, "")
        for _ in range(_WARM_UP):
            self._ask(kind, session)
        session = self._ask(kind, "")
        client_s, server_s = own_cpu_s(), self._server_s()
        for _ in range(requests):
            self._ask(kind, session)
        spent = own_cpu_s() - client_s + self._server_s() - server_s
        return spent * 1000 / requests

    def _ask(self, kind: str, session: str) -> str:
        body: dict[str, Any] = {"model": self._model, "messages": [{"role": "user", "content": "hello"}]}
        if kind == "streamed":
            body["stream"] = True
        headers = self._headers
        if kind == "same session" and session:
            headers = {**headers, "x-whet-session": session}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {said[:300]!r}")
        return answer.getheader("x-whet-session") or ""

    def _server_s(self) -> float:
        if not self._pid:
            return 0.0
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S


def run(runs: int, full: bool) -> list[Row]:
    """CPU per request of each kind: through the API, less the same client asking the model itself."""
    requests = 600 if full else 200
    with practice_server() as base_url, tempfile.TemporaryDirectory() as folder:
        process, url, token = start_api(Path(folder), base_url)
        try:
            direct = Arm(base_url, "practice", "practice")
            ours = Arm(url, "whet", token, process.pid)
            each = {
                kind: [
                    ours.spend(kind, requests) - direct.spend(kind, requests)
                    for _ in range(max(1, min(runs, 5)))
                ]
                for kind in _KINDS
            }
        finally:
            process.terminate()
            process.wait(30)
    cost = {kind: median(values) for kind, values in each.items()}
    worst = max(cost, key=lambda kind: cost[kind])
    return [
        Row(
            "api",
            "API: overhead of a request over asking the model itself",
            "≤ 10 CPU ms",
            ", ".join(
                f"{kind} {cost[kind]:.1f} ms ({min(each[kind]):.1f} to {max(each[kind]):.1f})"
                for kind in _KINDS
            ),
            "none: the other arm is the same client without Whet",
            cost[worst] <= 10,
            COMMAND,
            bars=cost,
            unit="CPU ms",
            details=[
                f"{requests} requests of each kind on one kept connection; client and API counted, the"
                " practice server not. A request looks its token up, stores message, turn and answer with"
                " fsync, and runs the whole loop; a fresh session is made and stored too."
            ],
        )
    ]


def start_api(folder: Path, model_url: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start `whet serve` in a home below `folder`; gives it, its OpenAI base URL and an owner's token."""
    work = folder / "work"
    work.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "serve", "--port", "0", "--provider", "practice",
         "--base-url", model_url, "--model", "practice", "--workspace", str(work)],
        env=clean_environment(WHET_HOME=str(folder / "home"), WHET_REVIEW_WRITES="off"),
        stdout=subprocess.PIPE, cwd=ROOT, text=True,
    )  # fmt: skip
    assert process.stdout
    url = ""
    for line in process.stdout:
        if line.startswith("OpenAI base URL"):
            url = line.split()[3]
        if line.startswith("made a first token"):
            break
    else:
        raise RuntimeError("whet serve ended")
    return process, url, (folder / "home" / "serve" / "owner.token").read_text().strip()
