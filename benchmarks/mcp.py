"""MCP: what the way to servers costs to load, and a call over stdio, beside the official SDK's client."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import clean_environment, median
from benchmarks.table import Row

_CALLS = 1_000
_LOAD = """
import time
import whet.app.build
def resident_kb():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
before, began = resident_kb(), time.process_time()
{what}
print(time.process_time() - began, (resident_kb() - before) / 1024)
"""
_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {"content": [{"type": "text", "text": "pong"}]}
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "s", "version": "1"}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "ping", "inputSchema": {"type": "object"}}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
_OWN = """
import asyncio, os, sys, time
from pathlib import Path
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings, McpSettings
from whet.contract.tools import ToolContext
from whet.mcp.remote import RemoteParts
from whet.mcp.servers import Servers
from whet.tools.guardian import Guardian

async def nobody(question, choices):
    return None

async def main():
    server = McpServerSettings(command=sys.executable, args=("-S", "-c", SERVER))
    reach = RemoteParts(Home(Path(os.environ["WHET_HOME"])), {}, SystemClock(), Guardian())
    servers = Servers(McpSettings(servers={"s": server}), reach)
    await servers.learn()
    tool = servers.tools()[0]
    context = ToolContext("s", "t", "c", Path("."), print, nobody)
    began = time.process_time()
    for _ in range(CALLS):
        await tool.run(context, {})
    print((time.process_time() - began) / CALLS)
    await servers.aclose()

asyncio.run(main())
"""
_SDK = """
import asyncio, sys, time
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    run = StdioServerParameters(command=sys.executable, args=["-S", "-c", SERVER])
    async with stdio_client(run) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.list_tools()
        began = time.process_time()
        for _ in range(CALLS):
            await session.call_tool("ping", {})
        print((time.process_time() - began) / CALLS)

asyncio.run(main())
"""


def run(runs: int, full: bool) -> list[Row]:
    """Loading and calling, ours and the SDK's in turn."""
    del full
    return [_loading(runs), _calling(runs)]


def _loading(runs: int) -> Row:
    ours, theirs = "import whet.mcp.servers", "import mcp.client.stdio, mcp.client.session"
    samples = [(_numbers(_LOAD.format(what=ours)), _numbers(_LOAD.format(what=theirs))) for _ in range(runs)]
    cpu, sdk_cpu = median([own[0] for own, _ in samples]), median([sdk[0] for _, sdk in samples])
    size, sdk_size = median([own[1] for own, _ in samples]), median([sdk[1] for _, sdk in samples])
    return Row(
        "mcp-load",
        "MCP client over stdio, loaded into a running Whet: CPU and memory",
        "≤ 40 ms, 3 MB",
        f"{1000 * cpu:.0f} ms, {size:.1f} MB",
        f"official SDK {1000 * sdk_cpu:.0f} ms, {sdk_size:.0f} MB",
        cpu <= 0.04 and size <= 3,
        "python -m benchmarks mcp",
    )


def _calling(runs: int) -> Row:
    samples = [(_numbers(_with_server(_OWN))[0], _numbers(_with_server(_SDK))[0]) for _ in range(runs)]
    ours, theirs = median([own for own, _ in samples]), median([sdk for _, sdk in samples])
    return Row(
        "mcp-call",
        f"a tool's call over stdio, client's CPU ({_CALLS:,} calls)",
        "≤ 0.5 ms",
        f"{1000 * ours:.2f} ms",
        f"official SDK {1000 * theirs:.2f} ms ({theirs / ours:.1f}x)",
        ours <= 0.0005,
        "python -m benchmarks mcp",
    )


def _with_server(program: str) -> str:
    return f"SERVER, CALLS = {json.dumps(_SERVER)}, {_CALLS}\n{program}"


def _numbers(program: str) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=clean_environment(WHET_HOME=f"{folder}/home"),
            cwd=Path(folder),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    return [float(word) for word in done.stdout.split()]
