"""MCP servers of others, added with `whet mcp add` and called by a one-shot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.measure import clean_environment
from benchmarks.newest.install import Cache, version_of
from benchmarks.newest.row import Cells, Trial
from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

_TIMEOUT_S = 240
_PATIENCE = ("--start-timeout", "120", "--json")


class Server(msgspec.Struct, frozen=True):
    """A server: its package and program, and one call whose result must contain `expected`.

    `{work}` is a folder with a file `note.md` and a git repository.
    """

    package: str
    program: str
    tool: str
    arguments: Mapping[str, object]
    expected: str
    args: tuple[str, ...] = ()
    is_npm: bool = True
    env: str = ""
    """A variable that names where it keeps its data, as NAME=VALUE."""


SERVERS = (
    Server(
        "@modelcontextprotocol/server-filesystem", "mcp-server-filesystem", "read_text_file",
        {"path": "{work}/note.md"}, "the kettle is blue", ("{work}",),
    ),
    Server(
        "@modelcontextprotocol/server-memory", "mcp-server-memory", "create_entities",
        {"entities": [{"name": "kettle", "entityType": "thing", "observations": ["is blue"]}]}, "is blue",
        env="MEMORY_FILE_PATH={work}/memory.jsonl",
    ),
    Server(
        "@modelcontextprotocol/server-everything", "mcp-server-everything", "echo", {"message": "kettle"},
        "kettle",
    ),
    Server(
        "@modelcontextprotocol/server-sequential-thinking", "mcp-server-sequential-thinking",
        "sequentialthinking",
        {"thought": "fill it", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False},
        "thoughtNumber",
    ),
    Server(
        "@wonderwhy-er/desktop-commander", "desktop-commander", "read_file", {"path": "{work}/note.md"},
        "the kettle is blue", ("{work}",),
    ),
    Server("@eslint/mcp", "mcp", "lint-files", {"filePaths": ["{work}/note.js"]}, "note.js", ("{work}",)),
    Server(
        "@modelcontextprotocol/server-pdf", "mcp-server-pdf", "list_pdfs", {}, "", ("--stdio",),
    ),
    Server(
        "mcp-server-time", "mcp-server-time", "convert_time",
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "21:00",
        is_npm=False,
    ),
    Server(
        "mcp-server-git", "mcp-server-git", "git_log", {"repo_path": "{work}"}, "first kettle",
        ("--repository", "{work}"), is_npm=False,
    ),
    Server(
        "mcp-server-calculator", "mcp-server-calculator", "calculate", {"expression": "6*7"}, "42",
        is_npm=False,
    ),
    Server(
        "markitdown-mcp", "markitdown-mcp", "convert_to_markdown", {"uri": "file://{work}/note.html"},
        "# Kettle", is_npm=False,
    ),
    Server(
        "mcp-server-motherduck", "mcp-server-motherduck", "execute_query", {"sql": "SELECT 6 * 7 AS n"},
        "42", ("--db-path", ":memory:", "--read-write"), is_npm=False,
    ),
)  # fmt: skip


def _try_server(server: Server, cache: Cache, folder: Path) -> tuple[str, Cells]:
    name = server.package.strip("@").replace("/", "-")
    if server.is_npm:
        environment = cache.npm(name, [server.package])
        command = [str(cache.node() / "node"), str(_script_of(environment, server))]
    else:
        environment = cache.python(name, [server.package])
        command = [str(environment.parent / server.program)]
    work = _make_work(folder / "work")
    args = [word.format(work=work) for word in server.args]
    arguments = json.loads(json.dumps(server.arguments).replace("{work}", str(work)))
    with PracticeServer(responder=_responder(server.tool, arguments)) as model:
        whet = partial(_run_whet, folder)
        env = ("--env", server.env.format(work=work)) if server.env else ()
        added = whet("mcp", "add", "other", "--write", str(work), *env, *_PATIENCE, "--", *command, *args)
        cells = {"add": "yes" if added.returncode == 0 else f"no: {_problem(added)}"}
        whet("mcp", "trust", "other")
        asked = whet(
            "chat", "-q", "use it", "--json", "--provider", "practice", "--model", "practice",
            "--base-url", model.base_url,
        )  # fmt: skip
    return version_of(environment, server.package), cells | {"call": _judge(asked, server)}


def _judge(asked: subprocess.CompletedProcess[str], server: Server) -> str:
    try:
        answer = json.loads(asked.stdout)
    except ValueError:
        return f"no: {_last_line(asked)}"
    text, calls = answer.get("text", ""), answer.get("tool_calls", [])
    is_right = server.expected in text and bool(calls) and all(call["ok"] for call in calls)
    return "yes" if is_right else f"no: {text[-200:]}"


def _responder(tool: str, arguments: dict[str, object]) -> Callable[[PracticeRequest], ScriptedReply]:
    """Return a model that calls the server's tool once, then answers with its result."""

    def respond(ask: PracticeRequest) -> ScriptedReply:
        if ask.messages[-1].role == "tool":
            return ScriptedReply("Result: " + " ".join(call.result for call in ask.completed_calls))
        name = next((name for name in ask.offers if name.startswith("mcp__") and tool in name), "")
        if not name and "mcp_call" in ask.offers:  # a server with many tools
            named = json.dumps({"name": f"mcp__other__{tool}", "arguments": arguments})
            return ScriptedReply(tool_calls=(PracticeCall("mcp_call", named),))
        if not name:
            return ScriptedReply(f"There is no tool {tool} among {', '.join(ask.offers)}.")
        return ScriptedReply(tool_calls=(PracticeCall(name, json.dumps(arguments)),))

    return respond


def _run_whet(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whet", *words],
        env=clean_environment(WHET_HOME=str(folder / "home")),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _make_work(work: Path) -> Path:
    """Make the folder that the servers work in."""
    work.mkdir()
    (work / "note.md").write_text("the kettle is blue\n")
    (work / "note.html").write_text("<h1>Kettle</h1><p>It is blue.</p>")
    (work / "note.js").write_text("export const kettle = 1;\n")
    (work / "eslint.config.mjs").write_text("export default [];\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(work)]
    for words in (["init", "-q"], ["add", "note.md"], ["commit", "-q", "-m", "first kettle"]):
        subprocess.run([*git, *words], check=True)
    return work


def _script_of(folder: Path, server: Server) -> Path:
    """Return the file of the npm package that its program runs."""
    package = folder / "node_modules" / server.package
    programs = json.loads((package / "package.json").read_text())["bin"]
    return package / (programs if isinstance(programs, str) else next(iter(programs.values())))


def _problem(added: subprocess.CompletedProcess[str]) -> str:
    try:
        return str(json.loads(added.stdout)["test"]["problem"])[:200]
    except (ValueError, KeyError, TypeError):
        return _last_line(added)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1][:200] if lines else f"exit code {done.returncode}"


TRIALS = [Trial("MCP server", server.package, partial(_try_server, server)) for server in SERVERS]
