"""What `whet serve` adds to a model call: the same question asked of the model and of Whet before it.

Two arms in one run, in turn: a client on a kept connection asks the practice server, and the API, which asks
the same practice server. Overhead is the CPU of the API's process plus what the client spends more; the
practice server's own is left out, it stands for a model. Each request is durable in the API's arm.
"""

from __future__ import annotations

import http.client
import json
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.measure import median, own_cpu_s
from benchmarks.overhead import practice_server
from benchmarks.serving import cpu_s, serving
from benchmarks.streaming import FLOOR_MS, floor_ms
from benchmarks.table import Row

COMMAND = "python -m benchmarks api"
_WARM_UP = 20
_KINDS = ("fresh session", "same session", "streamed")
_KEPT_GOAL_MS = 3.0


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
        return cpu_s(self._pid) if self._pid else 0.0


def run(runs: int, full: bool) -> list[Row]:
    """CPU per request of each kind: through the API, less the same client asking the model itself."""
    requests = 600 if full else 200
    floor = floor_ms(max(3, runs))
    with (
        practice_server() as base_url,
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), base_url) as server,
    ):
        direct = Arm(base_url, "practice", "practice")
        ours = Arm(server.url, "whet", server.token, server.pid)
        each = {
            kind: [
                ours.spend(kind, requests) - direct.spend(kind, requests) for _ in range(max(1, min(runs, 5)))
            ]
            for kind in _KINDS
        }
    cost = {kind: median(values) for kind, values in each.items()}
    kept = cost["same session"] / floor
    return [
        Row(
            "api",
            "API: overhead of a request over asking the model itself",
            f"same session ≤ {_KEPT_GOAL_MS:g} CPU ms where http.client takes {FLOOR_MS} for a burst call:"
            f" ≤ {_KEPT_GOAL_MS / FLOOR_MS:.1f} x",
            ", ".join(
                f"{kind} {cost[kind]:.1f} ms ({min(each[kind]):.1f} to {max(each[kind]):.1f})"
                for kind in _KINDS
            )
            + f"; the same session {kept:.1f} x http.client ({floor:.2f} ms)",
            "none: the other arm is the same client without Whet",
            kept <= _KEPT_GOAL_MS / FLOOR_MS,
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
