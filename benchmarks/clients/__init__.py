"""The API as other people's frameworks use it: unmodified, in an environment of their own, by features.

`drive.py` and `drive.mjs` run inside that and print what came; what is right is decided here. The model
behind is a scripted stand-in that answers by the words of the question, so a wrong answer is ours.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.clients import coding, npm
from benchmarks.measure import ROOT, clean_environment
from benchmarks.peers import python_of
from benchmarks.serving import serving
from benchmarks.table import Row
from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

COMMAND = "python -m benchmarks clients"
PAGE = ROOT / "docs" / "api-clients.md"
HERE = Path(__file__).parent
PYTHON = {
    "openai": ("openai", "Chat Completions"),
    "openai-responses": ("openai", "Responses"),
    "anthropic": ("anthropic", "Messages"),
    "litellm": ("litellm", "Chat Completions"),
    "litellm-anthropic": ("litellm", "Messages"),
    "llm": ("llm", "Chat Completions"),
    "agents": ("openai-agents", "Responses"),
    "agents-chat": ("openai-agents", "Chat Completions"),
    "langchain": ("langchain-openai", "Chat Completions"),
    "langchain-anthropic": ("langchain-anthropic", "Messages"),
    "pydantic-ai": ("pydantic-ai-slim", "Chat Completions"),
    "pydantic-ai-responses": ("pydantic-ai-slim", "Responses"),
    "pydantic-ai-anthropic": ("pydantic-ai-slim", "Messages"),
}
NODE = {
    "openai": ("openai (npm)", "Chat Completions"),
    "openai-responses": ("openai (npm)", "Responses"),
    "anthropic": ("@anthropic-ai/sdk (npm)", "Messages"),
    "ai": ("ai with @ai-sdk/openai-compatible (npm)", "Chat Completions"),
    "ai-responses": ("ai with @ai-sdk/openai (npm)", "Responses"),
    "ai-anthropic": ("ai with @ai-sdk/anthropic (npm)", "Messages"),
}
FEATURES = (
    "plain",
    "stream",
    "tools",
    "parallel",
    "form",
    "stop",
    "image",
    "too_long",
    "usage",
    "turns",
)
_HEADINGS = {"form": "JSON schema", "image": "images", "too_long": "prompt too long", "turns": "many turns"}
_DOT = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360f8cf50010004020180e2d4a83c0000000049454e44ae426082"
    )
).decode()
_TIMEOUT_S = 900


def run(_runs: int, _full: bool) -> list[Row]:
    """Run every feature in every framework and write the page."""
    with (
        PracticeServer(responder=reply) as model,
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), model.base_url) as server,
    ):
        table = _table(model, server.url, server.token)
        agents = coding.table(server.url, server.token)
    newest = PAGE.read_text().partition("\n## Newest versions")
    PAGE.write_text(_page(table, agents) + "".join(newest[1:]))
    table |= agents
    cells = [cell for row in table.values() for cell in row.values()]
    good = sum(cell == "yes" for cell in cells)
    wrong = [
        f"{name}, {on}: {cell}" for name, row in table.items() for on, cell in row.items() if "no:" in cell
    ]
    return [
        Row(
            "clients",
            f"API: {len(table) - len(agents)} clients and frameworks, unmodified, x {len(FEATURES)} features,"
            f" {len(agents)} coding agents x {len(coding.FEATURES)}",
            "all that a client offers",
            f"{good} work, {len(wrong)} fail, {len(cells) - good - len(wrong)} the client does not offer",
            "none measured",
            not wrong,
            COMMAND,
            details=wrong or ["Each is in docs/api-clients.md."],
        )
    ]


def _table(model: PracticeServer, url: str, token: str) -> dict[str, dict[str, str]]:
    environment = driver_environment(url, token)
    python = str(python_of("clients"))
    found: dict[str, dict[str, str]] = {}
    for name, (package, wire) in PYTHON.items():
        version = _version(python, package)
        driver = [python, str(HERE / "drive.py"), name]
        found[f"{package} {version}, {wire}"] = drive(model, driver, environment)
    node = _node_modules()
    if node is not None:
        for name, (package, wire) in NODE.items():
            driver = ["node", str(node / "drive.mjs"), name]
            found[f"{_with_version(node, package)}, {wire}"] = drive(model, driver, environment)
    return found


def driver_environment(url: str, token: str) -> dict[str, str]:
    """Return the variables that a driver reads."""
    return clean_environment(WHET_URL=url, WHET_TOKEN=token, WHET_DOT=_DOT, NO_PROXY="127.0.0.1")


def drive(
    model: PracticeServer,
    driver: list[str],
    environment: Mapping[str, str],
    features: Sequence[str] = FEATURES,
) -> dict[str, str]:
    """Run a driver and return for each feature "yes", "no: " and the reason, or "— " and why it is absent."""
    print(f"  {driver[-1]} ({Path(driver[0]).name})", file=sys.stderr, flush=True)
    model.reset()
    command = [*driver, *features]
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    said = {one["feature"]: one for line in done.stdout.splitlines() if (one := _line(line))}
    saw = any(_DOT.encode() in one.body for one in model.requests)
    cells: dict[str, str] = {}
    for feature in features:
        one = said.get(feature, {"error": done.stderr[-300:]})
        if not model.requests and str(one.get("error")).startswith("TypeError"):
            one = {"none": f"fails by itself before it sends anything ({one['error']})"}
        if "none" in one:
            cells[feature] = f"— {one['none']}"
        elif "error" in one or not _RIGHT[feature](one["said"]) or (feature == "image" and not saw):
            cells[feature] = f"no: {one.get('error') or one.get('said')}"
        else:
            cells[feature] = "yes"
        if cells[feature] != "yes":
            print(f"    {feature}: {cells[feature]}", file=sys.stderr, flush=True)
    return cells


def _line(line: str) -> dict[str, Any]:
    return json.loads(line) if line.startswith('{"feature"') else {}


_RIGHT: dict[str, Callable[[Any], bool]] = {
    "plain": lambda said: said == "Hello from the stand-in.",
    "stream": lambda said: said[0] == "Hello from the stand-in." and said[1] > 1,
    "tools": lambda said: "21 degrees in Rome" in said,
    "parallel": lambda said: "21 degrees in Rome" in said and "21 degrees in Oslo" in said,
    "form": lambda said: said == {"city": "Rome"},
    "stop": lambda said: said.strip() == "one two",
    "image": lambda said: said == "Hello from the stand-in.",
    "too_long": lambda said: "400" in said and any(one in said for one in _REFUSED),
    "usage": lambda said: said[0] > 0 and said[1] > 0,
    "turns": lambda said: said == "You began with: green tea",
}


def reply(ask: PracticeRequest) -> ScriptedReply:
    """Answer by the words of the question."""
    asked, last = ask.last_user, ask.messages[-1]
    if last.role == "tool":
        results = [one.result for one in ask.completed_calls if one.name in ask.offers]
        return ScriptedReply("The tools said: " + "; ".join(results))
    tool = next((name for name in ask.offers if name.endswith("get_weather")), "")
    if tool and "weather" in asked:
        cities = ("Rome", "Oslo") if "two cities" in asked else ("Rome",)
        return ScriptedReply(
            tool_calls=tuple(PracticeCall(tool, json.dumps({"city": one})) for one in cities)
        )
    shell = next((name for name in coding.SHELLS if name in ask.offers), "")
    if any(hello in asked for hello in coding.GREETINGS):
        return ScriptedReply(coding.HELLO)
    if shell and "run your shell" in asked:
        given = {coding.SHELLS[shell]: coding.COMMAND, "description": "Says something"}
        given |= {"is_background": False} if shell == "run_shell_command" else {}
        return ScriptedReply("I run it.", tool_calls=(PracticeCall(shell, json.dumps(given)),))
    form = next((name for name in ask.offers if name in ("Place", "final_result", "json", "place")), "")
    if "a form" in asked:
        if form:
            return ScriptedReply(tool_calls=(PracticeCall(form, '{"city":"Rome"}'),))
        return ScriptedReply('{"city": "Rome"}')
    if "count" in asked:
        return ScriptedReply("one two three four", pieces=4)
    if "far too much" in asked:
        return ScriptedReply(fault=Fault(status=400, message=_TOO_LONG, code="context_length_exceeded"))
    if "began" in asked:
        first = next(one.text for one in ask.messages if one.role == "user")
        return ScriptedReply(f"You began with: {first.split(chr(10))[0]}")
    return ScriptedReply("Hello from the stand-in.", pieces=4)


_BY_HAND = "| Open WebUI 0.12.4, Chat Completions, by hand | all but parallel and usage (not tried) |"
_SESSIONS = (
    "## One conversation, one session",
    "",
    '"Many turns" shows that the client\'s history reaches the model. To be sure that its next turn also',
    "continues the same session, [name the conversation](api.md#chat-completions).",
)
_REFUSED = ("context_length_exceeded", "ContextWindowExceeded", "too long")
_TOO_LONG = "This model's maximum context length is 10 tokens. However, your messages resulted in 99 tokens."


def _page(table: Mapping[str, Mapping[str, str]], agents: Mapping[str, Mapping[str, str]]) -> str:
    titles = [_HEADINGS.get(feature, feature) for feature in FEATURES]
    clients = [
        "# Clients of the API",
        "",
        "These clients, frameworks and coding agents work with the [API](api.md), unmodified. Each needs",
        "only the base URL and a token:",
        "",
        "    export OPENAI_BASE_URL=http://127.0.0.1:6090/v1 OPENAI_API_KEY=$(cat ~/.whet/serve/owner.token)",
        "",
        f"`{COMMAND}` tries them again and writes this page.",
        "",
        f"Features: {', '.join(titles)}.",
        "",
        "| client, protocol | works |",
        "|---|---|",
        *(f"| {name} | {_summary(row)} |" for name, row in table.items()),
        _BY_HAND,
        "",
        "A scripted model answers, and what the client returns is compared. The newest npm packages need",
        "Node 22.",
        "",
    ]
    coders = [
        "## Coding agents",
        "",
        "Each keeps its own tools beside the server's.",
        "",
        "| agent, protocol | " + " | ".join(coding.FEATURES) + " |",
        "|---" * (len(coding.FEATURES) + 1) + "|",
        *(
            f"| {name} | " + " | ".join(row[feature][:3].rstrip(":") for feature in row) + " |"
            for name, row in agents.items()
        ),
        "",
    ]
    return "\n".join([*clients, *coders, *_SESSIONS]).rstrip() + "\n"


def _summary(row: Mapping[str, str]) -> str:
    """Return "all", or the features that do not work with the reason of each."""
    exceptions = [
        f"{_HEADINGS.get(feature, feature)} ({row[feature].removeprefix('— ')})"
        for feature in FEATURES
        if row[feature] != "yes"
    ]
    return "all but " + ", ".join(exceptions) if exceptions else "all"


def _version(python: str, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _with_version(node: Path, package: str) -> str:
    words = [
        f"{word} {json.loads(file.read_text())['version']}"
        if (file := node / "node_modules" / word / "package.json").is_file()
        else word
        for word in package.split()
    ]
    return " ".join(words)


def _node_modules() -> Path | None:
    """Give a folder with the npm packages and our driver beside them; None where there is no npm."""
    packages = "openai @anthropic-ai/sdk ai @ai-sdk/openai-compatible @ai-sdk/openai @ai-sdk/anthropic zod"
    folder = npm.installed("clients-js", packages.split())
    if folder is not None:
        shutil.copy(HERE / "drive.mjs", folder / "drive.mjs")
    return folder
