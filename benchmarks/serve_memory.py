"""Memory of `whet serve` while a hundred clients stream answers, each after the other, for minutes.

A conversation's first question comes without a session, so that sessions are made all the time; after five
it begins another one. Memory is the process's own, read every few seconds; what counts is how it grows once
every client has been through a few conversations.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.overhead import practice_server
from benchmarks.recorder import resident_mb
from benchmarks.serving import serving
from benchmarks.table import Row

COMMAND = "python -m benchmarks serve-memory"
_CLIENTS, _IN_A_ROW = 100, 5
_FULL_S, _SHORT_S, _WARM_S = 600.0, 90.0, 60.0
_LOOK_S = 5.0
_GOAL_MB = 10.0


class Crowd:
    """The clients of one server. `answers` counts what they got."""

    def __init__(self, url: str, token: str) -> None:
        address = urlsplit(url)
        self._host, self._port = str(address.hostname), int(address.port or 80)
        self._token = token
        self.answers = 0

    async def stay(self, until_s: float) -> None:
        """Have all of them ask on and on."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_CLIENTS):
                group.create_task(self._one(until_s))

    async def _one(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            said: list[dict[str, str]] = []
            for number in range(_IN_A_ROW):
                said.append({"role": "user", "content": f"question {number}, {id(said)}"})
                said.append({"role": "assistant", "content": await self._ask(said)})
                self.answers += 1

    async def _ask(self, said: list[dict[str, str]]) -> str:
        body = json.dumps({"model": "whet", "stream": True, "messages": said}).encode()
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._host}\r\nconnection: close\r\n"
            head += f"authorization: Bearer {self._token}\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.read(-1)
        finally:
            writer.close()
        if b" 200 " not in answer[:20] or b"[DONE]" not in answer:
            raise RuntimeError(answer[:300])
        texts = (_delta(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {"))
        return "".join(texts)


def run(_runs: int, full: bool) -> list[Row]:
    """Grow for ten minutes with --full, else a minute and a half."""
    length_s = _FULL_S if full else _SHORT_S
    with (
        practice_server() as base_url,
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), base_url) as server,
    ):
        crowd = Crowd(server.url, server.token)
        seen = asyncio.run(_watched(crowd, server.pid, length_s))
    after = [mb for at_s, mb in seen if at_s >= _WARM_S]
    third = max(1, len(after) // 3)
    grown = sum(after[-third:]) / third - sum(after[:third]) / third
    points = ", ".join(f"{mb:.0f}" for _, mb in seen[:: max(1, len(seen) // 12)])
    return [
        Row(
            "serve-memory" if full else "serve-memory-short",
            f"API: memory with {_CLIENTS} streaming clients over {length_s:.0f} s",
            f"≤ {_GOAL_MB:.0f} MB more after the warm-up",
            f"{grown:+.1f} MB over {crowd.answers:,} answers",
            "none measured",
            grown <= _GOAL_MB if full else None,
            COMMAND + (" --full" if full else ""),
            details=[f"Megabytes every {_LOOK_S * max(1, len(seen) // 12):.0f} s: {points}."],
        )
    ]


async def _watched(crowd: Crowd, pid: int, length_s: float) -> list[tuple[float, float]]:
    began_s = time.monotonic()
    staying = asyncio.create_task(crowd.stay(began_s + _WARM_S + length_s))
    seen: list[tuple[float, float]] = []
    while not staying.done():
        await asyncio.wait({staying}, timeout=_LOOK_S)
        seen.append((time.monotonic() - began_s, resident_mb(pid)))
        print(f"  {seen[-1][0]:.0f} s, {seen[-1][1]:.1f} MB, {crowd.answers}", file=sys.stderr, flush=True)
    staying.result()
    return seen


def _delta(data: bytes) -> str:
    choices = json.loads(data).get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("content") or ""
