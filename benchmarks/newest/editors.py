"""ACP clients of others that start `whet acp`: a terminal's, JupyterLab's, and the SDK's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks import clients
from benchmarks.measure import clean_environment
from benchmarks.newest.install import Cache, version_of
from benchmarks.newest.row import Cells, Trial
from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

HERE = Path(__file__).parent
_TIMEOUT_S = 120


def _respond(ask: PracticeRequest) -> ScriptedReply:
    """Write a file on demand, and answer anything else with a greeting."""
    if ask.messages[-1].role == "tool":
        return ScriptedReply("The file is written.")
    if "write" in ask.last_user:
        arguments = json.dumps({"path": "kettle.txt", "content": "blue\n"})
        return ScriptedReply(tool_calls=(PracticeCall("write_file", arguments),))
    return clients.reply(ask)


def _home(folder: Path, model: PracticeServer) -> dict[str, str]:
    """Make a home whose model is the practice server; return the variables that name it."""
    home = folder / "home"
    home.mkdir()
    settings = f"model: {{provider: practice, model: practice, base_url: '{model.base_url}'}}\n"
    (home / "config.yaml").write_text(settings)
    return clean_environment(WHET_HOME=str(home), HOME=str(folder))


def _command() -> str:
    return f"{sys.executable} -m whet acp"


def _judge(work: Path, greeted: str, wrote: str) -> Cells:
    written = work / "kettle.txt"
    is_written = written.exists() and written.read_text() == "blue\n"
    return {
        "answer": "yes" if "Hello from the stand-in." in greeted else f"no: {greeted[-300:]}",
        "an allowed edit": "yes" if is_written and "is written" in wrote else f"no: {wrote[-300:]}",
    }


def _try_acpx(cache: Cache, folder: Path) -> tuple[str, Cells]:
    modules = cache.npm("acpx", ["acpx"])
    work = folder / "work"
    work.mkdir()
    with PracticeServer(responder=_respond) as model:
        environment = _home(folder, model)
        environment["PATH"] = f"{cache.node()}{os.pathsep}{environment['PATH']}"
        program = [str(modules / "node_modules" / ".bin" / "acpx"), "--agent", _command(), "--approve-all"]

        def run(prompt: str) -> str:
            return _output([*program, "exec", prompt], environment, work)

        return version_of(modules, "acpx"), _judge(work, run("hello there"), run("write the file"))


def _try_script(package: str, script: str, cache: Cache, folder: Path) -> tuple[str, Cells]:
    python = cache.python(package, [package])
    work = folder / "work"
    work.mkdir()
    with PracticeServer(responder=_respond) as model:
        environment = _home(folder, model)
        environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"

        def run(prompt: str) -> str:
            return _output([str(python), str(HERE / script), _command(), prompt], environment, work)

        return version_of(python, package), _judge(work, run("hello there"), run("write the file"))


def _output(command: list[str], environment: dict[str, str], work: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr[-2000:]


TRIALS = [
    Trial("editor's client", "acpx", _try_acpx),
    Trial(
        "editor's client",
        "agent-client-protocol",
        partial(_try_script, "agent-client-protocol", "acp_client.py"),
    ),
    Trial(
        "editor's client",
        "jupyter-ai-acp-client",
        partial(_try_script, "jupyter-ai-acp-client", "acp_notebook.py"),
    ),
]
