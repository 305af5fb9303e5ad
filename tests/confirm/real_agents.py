"""Real agent programs, unmodified, whose shell command waits for a person: a table by one command.

    python -m tests.confirm.real_agents [--programs FOLDER]

Each program is installed by its own means (npm); a scripted model stands in for the vendor's. Most are held
by the hook that `whet confirm adopt` writes, one by the gateway before its MCP server. A program is held if
its call does not run when it is denied, the model reads the reason, and it runs when it is approved.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.confirm.running import Running
from tests.confirm.scripted_model import ScriptedModel
from tests.confirm.test_clients import Person
from whet_confirm.adopt.agents import AGENTS

TIME_LIMIT_S = 240


class AgentProgram(msgspec.Struct, frozen=True):
    """How an agent's program is run once without a terminal. In `line`, `environ` and `files` `<model>`
    stands for the model's address; `files` are below the home folder. `tool` is that of an MCP server behind
    the gateway; otherwise the program runs a shell command."""

    program: str
    line: str
    environ: dict[str, str] = {}
    files: dict[str, object] = {}
    tool: str = ""


def _provider(package: str) -> dict[str, object]:
    options = {"baseURL": "<model>/v1", "apiKey": "x"}
    practice = {
        "npm": package,
        "api": "<model>/v1",
        "options": options,
        "models": {"practice": {"name": "practice"}},
    }
    own_rules = {"external_directory": "allow"}  # of opencode itself, which would ask its user
    return {"model": "practice/practice", "provider": {"practice": practice}, "permission": own_rules}


def _auth(kind: str) -> dict[str, object]:
    return {"security": {"auth": {"selectedType": kind}}}


_CODEX_PROVIDER = shlex.quote('model_providers.p={name="p",base_url="<model>/v1",wire_api="responses"}')
_PI_MODELS = {
    "baseUrl": "<model>/v1",
    "api": "openai-completions",
    "apiKey": "x",
    "models": [{"id": "practice", "name": "practice", "contextWindow": 100_000, "maxTokens": 4_000}],
}

_SERVER = str(Path(__file__).with_name("gateway_server.py"))
_CONTINUE = {
    "name": "practice", "version": "1.0.0", "schema": "v1",
    "models": [{
        "name": "practice", "provider": "openai", "model": "practice", "apiBase": "<model>/v1", "apiKey": "x",
        "roles": ["chat"], "capabilities": ["tool_use"],
    }],
    "mcpServers": [{
        "name": "notes", "command": sys.executable,
        "args": ["-m", "whet", "confirm", "gateway", "--", sys.executable, _SERVER, "<work>/ran"],
        "env": {"WHET_CONFIRM_URL": "<service>", "CONFIRMATION_TOKEN": "<token>", "WHET_HOME": "<home>/whet"},
    }],
}  # fmt: skip

PROGRAMS = {
    "claude-code": AgentProgram(
        "claude", "claude -p go", {"ANTHROPIC_BASE_URL": "<model>", "ANTHROPIC_API_KEY": "x"}
    ),
    "codex": AgentProgram(
        "codex",
        "codex exec --skip-git-repo-check --dangerously-bypass-hook-trust -c sandbox_mode=danger-full-access"
        f" -c model=practice -c model_provider=p -c {_CODEX_PROVIDER} go",
    ),
    "gemini": AgentProgram(
        "gemini",
        "gemini -y -m gemini-2.5-flash -p go",
        {"GOOGLE_GEMINI_BASE_URL": "<model>", "GEMINI_API_KEY": "x", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        {".gemini/settings.json": _auth("gemini-api-key")},
    ),
    "qwen-code": AgentProgram(
        "qwen", "qwen -y -p go",
        {"OPENAI_BASE_URL": "<model>/v1", "OPENAI_API_KEY": "x", "OPENAI_MODEL": "practice"},
        {".qwen/settings.json": _auth("openai")},
    ),
    "copilot": AgentProgram(
        "copilot",
        "copilot --allow-all-tools -p go",
        {
            "COPILOT_OFFLINE": "true", "COPILOT_MODEL": "practice", "COPILOT_PROVIDER_API_KEY": "x",
            "COPILOT_PROVIDER_BASE_URL": "<model>/v1",
        },
    ),
    "opencode": AgentProgram(
        "opencode", "opencode run go",
        files={".config/opencode/opencode.json": _provider("@ai-sdk/openai-compatible")},
    ),
    "pi": AgentProgram(
        "pi", "pi --provider practice --model practice -p go",
        files={".pi/agent/models.json": {"providers": {"practice": _PI_MODELS}}},
    ),
    "continue": AgentProgram(
        "cn", "cn -p go --auto --config .continue/config.yaml", files={".continue/config.yaml": _CONTINUE},
        tool="delete_file",
    ),
}  # fmt: skip


def _fill(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


def _write_files(program: AgentProgram, values: dict[str, str]) -> None:
    for name, content in program.files.items():
        file = Path(values["home"]) / name
        old = json.loads(file.read_text()) if file.exists() else {}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(old | json.loads(_fill(json.dumps(content), values))))


def run_once(agent: str, values: dict[str, str], environ: dict[str, str]) -> str:
    """Run the real program once; the scripted model makes it call its tool. Return its output."""
    program = PROGRAMS[agent]
    _write_files(program, values)
    done = subprocess.run(
        [_fill(word, values) for word in shlex.split(program.line)],
        cwd=values["home"] if program.tool else values["work"],
        env=environ | {name: _fill(value, values) for name, value in program.environ.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    return done.stdout


def find_fault(server: Running, agent: str, home: Path, path: str = "") -> str:
    """Return why a real program is not held, or an empty string."""
    url, program = server.url, PROGRAMS[agent]
    base = {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "XDG_"))}
    base |= {"HOME": str(home), "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    home.mkdir(exist_ok=True)
    _write_files(program, {"home": str(home)})  # the settings that the hook is added to
    if not program.tool:
        adopt_by_command(agent, home, url)
    for verdict in ("deny", "approve"):
        work = home / f"work-{verdict}"
        work.mkdir()
        token = server.token("submit", f"{agent}-{verdict}")
        command = str(work / "note") if program.tool else f"touch {work}/ran"
        with Person(server, verdict, reason="use staging"), ScriptedModel(command, program.tool) as model:
            values = {
                "model": model.url,
                "service": url,
                "token": token,
                "work": str(work),
                "home": str(home),
            }
            text = run_once(agent, values, base | {"CONFIRMATION_TOKEN": token})
        if (work / "ran").exists() is not (verdict == "approve"):
            return f"{verdict}: the call {'ran' if verdict == 'deny' else 'did not run'}; {text[-300:]}"
        if verdict == "deny" and "denied by alice: use staging" not in "".join(model.results):
            return f"the model did not read the reason; {model.results} {text[-300:]}"
    return ""


def adopt_by_command(agent: str, home: Path, url: str) -> None:
    environ = os.environ | {"HOME": str(home), "WHET_HOME": str(home / "whet"), "WHET_CONFIRM_URL": url}
    command = [sys.executable, "-m", "whet", "confirm", "adopt", agent]
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Print a line for each agent; exit with 1 if one that is installed is not held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default="", help="their folder, such as node_modules/.bin")
    parser.add_argument("agents", nargs="*", default=list(PROGRAMS))
    asked = parser.parse_args()
    logging.disable()  # this service has no channels, and says so
    path = str(Path(asked.programs).absolute()) if asked.programs else ""
    held, faults = 0, 0
    with tempfile.TemporaryDirectory() as name, Running(Path(name) / "service", rate=1000) as server:
        for agent in asked.agents:
            program = shutil.which(PROGRAMS[agent].program, path=f"{path}:{os.environ['PATH']}")
            if program is None:
                print(f"{agent:20}  not installed", flush=True)
                continue
            done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
            version = (done.stdout.strip() or "?").splitlines()[0]
            fault = find_fault(server, agent, Path(name) / agent, path)
            held, faults = held + (not fault), faults + bool(fault)
            title = AGENTS[agent].title if agent in AGENTS else f"{agent} (gateway)"
            print(f"{title:20}  {version[:30]:30}  {fault or 'held'}", flush=True)
    print(f"{held} real programs are held without their help, {faults} are not")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
