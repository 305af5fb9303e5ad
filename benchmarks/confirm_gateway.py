"""What the MCP gateway adds to a call that it does not hold: `python -m benchmarks.confirm_gateway`.

The same stdio server, with 1,000 tools, is called directly and through `whet confirm gateway`, whose rules
allow every call, in turn, so that whatever else the machine does falls on both. Printed are the medians of a
call's time, the gateway's own CPU for a call, and whether the list of tools is the same byte for byte.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from benchmarks.measure import ROOT, clean_environment
from benchmarks.serving import cpu_s

_TOOLS = 1_000
_CALLS = 200
_LIMIT_MS = 1.0
_SERVER = f"""
import json, sys
schema = {{"type": "object", "properties": {{"path": {{"type": "string", "description": "Größe"}}}}}}
tools = [
    {{"name": f"tool_{{n}}", "description": f"Tool {{n}}", "inputSchema": schema}} for n in range({_TOOLS})
]
server = {{"name": "s", "version": "1"}}
results = {{
    "initialize": {{
        "protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}, "serverInfo": server,
    }},
    "tools/list": {{"tools": tools}},
    "tools/call": {{"content": [{{"type": "text", "text": "ok"}}]}},
}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer = {{"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}}
        print(json.dumps(answer, ensure_ascii=False), flush=True)
"""


class _Client:
    """An MCP client that speaks line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0

    def call(self, method: str, **params: object) -> bytes:
        """Send a request and return the line that answers it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def begin(self) -> bytes:
        """Shake hands, and return the list of tools."""
        info = {"name": "c", "version": "1"}
        self.call("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        return self.call("tools/list")

    def time_calls_ms(self) -> list[float]:
        """Return the milliseconds of each of some calls."""
        taken: list[float] = []
        for number in range(_CALLS):
            began = time.perf_counter()
            self.call("tools/call", name=f"tool_{number}", arguments={"path": f"/srv/{number}"})
            taken.append((time.perf_counter() - began) * 1000)
        return taken


@contextlib.contextmanager
def _started(command: list[str], folder: Path) -> Generator[_Client]:
    environ = clean_environment(WHET_HOME=str(folder / "home"))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, cwd=ROOT)
    try:
        yield _Client(process)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def measure(folder: Path, rounds: int) -> dict[str, float | bool]:
    """Call both in turn; return medians over all calls."""
    server, rules = folder / "server.py", folder / "rules.toml"
    server.write_text(_SERVER)
    rules.write_text('default = "allow"\n')
    direct = [sys.executable, str(server)]
    held = [sys.executable, "-m", "whet", "confirm", "gateway", "--rules", str(rules), "--", *direct]
    plain_ms: list[float] = []
    gateway_ms: list[float] = []
    with _started(direct, folder) as plain, _started(held, folder) as gateway:
        is_same = plain.begin() == gateway.begin()
        gateway.time_calls_ms()
        before_s = cpu_s(gateway.process.pid)
        for _ in range(rounds):
            plain_ms += plain.time_calls_ms()
            gateway_ms += gateway.time_calls_ms()
        used_s = cpu_s(gateway.process.pid) - before_s
    return {
        "added_ms": statistics.median(gateway_ms) - statistics.median(plain_ms),
        "cpu_ms": used_s * 1000 / len(gateway_ms),
        "is_same": is_same,
    }


def main() -> None:
    """Print the figures; exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), asked.rounds)
    same = "the same byte for byte" if figures["is_same"] else "CHANGED"
    print(
        f"a call that is not held: +{figures['added_ms']:.2f} ms, {figures['cpu_ms']:.2f} ms CPU"
        f" (goal: <= {_LIMIT_MS:g} ms CPU); the list of {_TOOLS:,} tools is {same}"
    )
    sys.exit(not (figures["cpu_ms"] <= _LIMIT_MS and figures["is_same"]))


if __name__ == "__main__":
    main()
