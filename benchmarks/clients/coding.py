"""Coding agents of others with this API as their model: each answers, runs a tool of its own, and goes on.

Installed from npm below `.bench`, unmodified, with a home of their own that names the base URL and the token.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from benchmarks.clients import npm
from benchmarks.measure import clean_environment
from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

FEATURES = ("answer", "its own tool", "next turn in the same session")
SHELLS = {"exec_command": "cmd", "Bash": "command", "bash": "command", "run_shell_command": "command"}
"""The agents' tools that run a command, and what they call the command."""
COMMAND = "echo from-the-agent-$((6*7))"
GREETINGS = ("hello there", "hello again")
HELLO = "Hello from the stand-in."
SAID = "from-the-agent-42"
_TIMEOUT_S = 180


class CodingAgent(NamedTuple):
    """How to start one: its npm package, arguments for a first and a next turn, its protocol."""

    package: str
    first: Sequence[str]
    following: Sequence[str]
    wire: str


PROMPT = "run your shell, please"
AGENTS = (
    CodingAgent(
        "@openai/codex",
        ("codex", "exec", "--skip-git-repo-check", "-s", "danger-full-access"),
        ("codex", "exec", "resume", "--last", "--skip-git-repo-check"),
        "Responses",
    ),
    CodingAgent(
        "@anthropic-ai/claude-code",
        ("claude", "--model", "whet", "--allowedTools", "Bash(echo:*)", "-p"),
        ("claude", "--model", "whet", "--continue", "-p"),
        "Messages",
    ),
    CodingAgent("opencode-ai", ("opencode", "run"), ("opencode", "run", "-c"), "Chat Completions"),
    CodingAgent(
        "@mariozechner/pi-coding-agent",
        ("pi", "--provider", "whet", "--model", "whet", "-p"),
        ("pi", "--provider", "whet", "--model", "whet", "-c", "-p"),
        "Chat Completions",
    ),
    CodingAgent("@qwen-code/qwen-code", ("qwen", "-y", "-p"), ("qwen", "-y", "-c", "-p"), "Chat Completions"),
)


def table(url: str, token: str) -> dict[str, dict[str, str]]:
    """Run every agent; empty where there is no npm."""
    bins = _installed()
    return {} if bins is None else {_name(bins, one): try_agent(bins, one, url, token) for one in AGENTS}


def try_agent(bins: Path, agent: CodingAgent, url: str, token: str) -> dict[str, str]:
    """Return for each feature "yes", or "no: " and what the agent printed."""
    print(f"  {agent.package}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=bins.parents[1]) as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        work.mkdir()
        run = partial(run_agent, bins, make_environment(home, url, token), work)
        told = run(agent.first, GREETINGS[0])
        ran = run(agent.first, PROMPT)
        before = _turns(url, token)
        went_on = run(agent.following, GREETINGS[1])
        after = _turns(url, token)
    cells = {
        FEATURES[0]: "yes" if HELLO in told else f"no: {told[-300:]}",
        FEATURES[1]: "yes" if SAID in ran else f"no: {ran[-300:]}",
        FEATURES[2]: "yes"
        if HELLO in went_on and is_continued(before, after)
        else f"no: {went_on[-300:]} {before} -> {after}",
    }
    if cells[FEATURES[2]] != "yes" and HELLO in went_on and resends_changed(bins, agent):
        cells[FEATURES[2]] = "— resumed, it sends its first message changed, to a plain server as well"
    for feature, cell in cells.items():
        if cell != "yes":
            print(f"    {feature}: {cell}", file=sys.stderr, flush=True)
    return cells


def is_continued(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Return whether one session that was there has more turns. An agent may ask more than the person did:
    qwen-code 0.15 has each conversation searched for facts, in that conversation or in one of its own."""
    return sum(after.get(session_id, 0) > turns for session_id, turns in before.items()) == 1


def run_agent(
    bins: Path, environment: Mapping[str, str], work: Path, words: Sequence[str], prompt: str
) -> str:
    """Run an agent's program with a prompt in a folder and return what it printed."""
    done = subprocess.run(
        [str(bins / words[0]), *words[1:], prompt],
        env=dict(environment),
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.stdout + done.stderr[-2000:]


def _turns(url: str, token: str) -> dict[str, int]:
    """Count the turns of each session."""
    asked = {"authorization": f"Bearer {token}"}
    rows = httpx2.get(f"{url}/api/sessions?limit=200", headers=asked, trust_env=False).json()["sessions"]
    return {row["id"]: row["turns"] for row in rows}


def resends_changed(bins: Path, agent: CodingAgent) -> bool:
    """Whether an agent that continues a conversation sends its first message changed, to a plain server, too.

    Whet is not involved: an API that knows a conversation by its messages can't know such a one again.
    """
    with PracticeServer(responder=_say_hello) as model, tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        work.mkdir()
        environment = make_environment(home, model.base_url.removesuffix("/v1"), "token", "practice-echo")
        for words, prompt in ((agent.first, GREETINGS[0]), (agent.following, GREETINGS[1])):
            run_agent(bins, environment, work, words, prompt)
        bodies: list[dict[str, Any]] = [json.loads(request.body) for request in model.requests]
    before, after = (_first_message(bodies, greeting) for greeting in GREETINGS)
    return bool(before) and before != after and GREETINGS[0] in after


def _first_message(bodies: Sequence[Mapping[str, Any]], greeting: str) -> str:
    """Return the message after the system prompt, as JSON, of the first request that holds a greeting."""
    texts = (json.dumps(body["messages"][1:2]) for body in bodies if greeting in json.dumps(body["messages"]))
    return next(texts, "")


def _say_hello(_ask: PracticeRequest) -> ScriptedReply:
    return ScriptedReply(HELLO)


def make_environment(home: Path, url: str, token: str, model: str = "whet") -> dict[str, str]:
    """Make a home in which each of them finds the server. `model` is for those that take it from there."""
    whet = {"name": "whet", "base_url": f"{url}/v1", "env_key": "WHET_TOKEN", "wire_api": "responses"}
    toml = "\n".join(f'{key} = "{value}"' for key, value in whet.items())
    files = {
        ".codex/config.toml": f'model = "whet"\nmodel_provider = "whet"\n[model_providers.whet]\n{toml}\n',
        ".qwen/settings.json": json.dumps(
            {
                "security": {"auth": {"selectedType": "openai"}},
                "model": {"name": model},
                # In a terminal of its own a quick command's output is lost now and then.
                "tools": {"shell": {"enableInteractiveShell": False}},
            }
        ),
        ".config/opencode/opencode.json": json.dumps(_opencode(url, token)),
        ".config/kilo/kilo.json": json.dumps(_opencode(url, token)),
        ".pi/agent/models.json": json.dumps(
            {
                "providers": {
                    "whet": {
                        "baseUrl": f"{url}/v1",
                        "api": "openai-completions",
                        "apiKey": "WHET_TOKEN",
                        "models": [{"id": "whet"}],
                    }
                }
            }
        ),
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return clean_environment(
        HOME=str(home),
        WHET_TOKEN=token,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_API_KEY=token,
        OPENAI_BASE_URL=f"{url}/v1",
        OPENAI_API_KEY=token,
        OPENAI_MODEL=model,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        NO_PROXY="127.0.0.1",
    )


def _opencode(url: str, token: str) -> Mapping[str, object]:
    return {
        "autoupdate": False,
        "model": "whet/whet",
        "provider": {
            "whet": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{url}/v1", "apiKey": token},
                "models": {"whet": {"name": "whet", "tool_call": True}},
            }
        },
    }


def _installed() -> Path | None:
    """Give the folder of their programs; None where there is no npm."""
    folder = npm.installed("coding-agents", [one.package for one in AGENTS])
    return folder and folder / "node_modules" / ".bin"


def _name(bins: Path, agent: CodingAgent) -> str:
    version = json.loads((bins.parent / agent.package / "package.json").read_text())["version"]
    return f"{agent.package} {version}, {agent.wire}"
