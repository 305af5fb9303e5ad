"""What a plain installation does: `make installed` runs this with the built wheel, without extras.

Needs the package indexes of this machine, npx and uvx.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys

import httpx2
import pytest
from benchmarks.lessons.world import Run, User, World, create

from tests.imports import ImportGraph
from tests.installed.program import ROOT, Installed

pytestmark = pytest.mark.soak
NOTES = ROOT / "examples" / "mcp" / "notes.py"
SCRIPTS = ("whet.__main__", "whet.sandbox.launcher")  # they begin their work when they are imported
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


def test_every_module_that_needs_no_extra_is_imported(whet: Installed) -> None:
    graph = ImportGraph(ROOT / "src", ROOT / "pyproject.toml")
    names = [name for name in graph.modules if name not in graph.chains and name not in SCRIPTS]
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    python = [str(whet.environment / "bin" / "python"), "-I", "-c", code, *names]
    done = subprocess.run(python, cwd=whet.work, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and len(names) > 800


def test_the_confirmation_service_takes_a_request_that_is_approved(whet: Installed) -> None:
    words = ("confirm", "serve", "--port", "0", "--web-port", "0")
    with whet.serving(*words, ready=r"confirmation service: (\S+)") as started:
        token = (whet.home / ".whet/confirm/submit.token").read_text("utf-8").strip()
        with httpx2.Client(base_url=started[1], headers={"Authorization": f"Bearer {token}"}) as agent:
            body = agent.post("/confirm", json={"action": "deploy", "description": "Deploy"}).json()
            done = whet.run(
                "confirm", "approve", body["id"], "--digest", body["digest"], WHET_CONFIRM_URL=started[1]
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert agent.get(f"/confirm/{body['id']}").json()["status"] == "approved"


def test_the_confirmation_chapter_of_the_demo_runs(whet: Installed) -> None:
    done = whet.run("demo", "--chapter", "confirm")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_api_serves_a_request(whet: Installed) -> None:
    with whet.serving("serve", "--port", "0", "--provider", "practice", ready=r"URL: (\S+)/v1") as started:
        token = (whet.home / ".whet/serve/owner.token").read_text("utf-8").strip()
        body = {"model": "whet", "messages": [{"role": "user", "content": "hello"}]}
        url, head = f"{started[1]}/v1/chat/completions", {"Authorization": f"Bearer {token}"}
        done = httpx2.post(url, json=body, headers=head, timeout=60).json()
        assert done["choices"][0]["message"]["content"], done


def test_the_practice_model_answers(whet: Installed) -> None:
    with whet.serving("practice", "serve", "--port", "0", ready=r"(http://[\d.:]+\d)") as started:
        body = {"model": "practice-echo", "messages": [{"role": "user", "content": "hello"}]}
        done = httpx2.post(f"{started[1]}/v1/chat/completions", json=body).json()
        assert done["choices"][0]["message"]["content"], done


def test_the_gateway_starts(whet: Installed) -> None:
    home = whet.home / ".whet"
    home.mkdir()
    (home / "config.yaml").write_text("model:\n  provider: practice\n", "utf-8")
    (home / ".env").write_text(f"GATEWAY_WEBHOOK_SECRET={SECRET}\n", "utf-8")
    (home / ".env").chmod(0o600)
    channel = '[[channel]]\nkind = "webhook"\nlisten = "127.0.0.1:0"\nurl = "http://127.0.0.1:9/whet"\n'
    (home / "gateway.toml").write_text(channel, "utf-8")
    with whet.serving("gateway", "run", ready="webhook: listening"):
        status = whet.run("gateway", "status")
    assert status.returncode == 0 and "webhook" in status.stdout


def test_a_learned_skill_is_checked(whet: Installed) -> None:
    world = World(whet.home / ".whet")
    steps = [User("Warm batch b17."), Run("terminal", "kiln warm b17", "b17 is at 300")]
    skill = create("warm-batch", "Warm a batch.", "- warm it", "b17 is at 300")
    session_id = asyncio.run(world.session(steps))
    [(outcome, _)] = asyncio.run(world.review(session_id, [skill]))
    world.close()
    assert outcome.ok, outcome.text
    done = whet.run("skills", "check", "warm-batch", "--json")
    assert [step["verdict"] for step in json.loads(done.stdout)["steps"]] == ["shown"], done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-filesystem", "notes"], "npx"),
        (["uvx", "mcp-server-time"], "uvx"),
        ([sys.executable, "notes.py", "notes"], ""),
    ],
    ids=["npx", "uvx", "local"],
)
def test_a_server_is_added_and_starts_again(whet: Installed, words: list[str], program: str) -> None:
    assert not program or shutil.which(program), f"{program} is not installed"
    notes = whet.work / "notes"
    notes.mkdir()
    shutil.copy(NOTES, whet.work / "notes.py")
    command = [str(notes) if word == "notes" else word for word in words]
    added = whet.run("mcp", "add", "one", "--json", "--", *command)
    assert added.returncode == 0, added.stdout + added.stderr
    assert json.loads(added.stdout)["test"]["tools"]
    again = whet.run("mcp", "test", "one", "--json")
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_server_that_is_not_there_is_a_failure(whet: Installed) -> None:
    added = whet.run("mcp", "add", "typo", "--", "/nope/x")
    assert added.returncode == 1 and "can't be started: /nope/x" in " ".join(added.stdout.split())


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["worker", "--turns", "1"], "team"),
        (["team", "ask", "hello"], "team"),
        (["acp"], "acp"),
        (["store", "copy", "--to", "postgresql://127.0.0.1:1/x"], "team"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(whet: Installed, words: list[str], extra: str) -> None:
    done = whet.run(*words)
    assert done.returncode == 1 and f"pip install 'whet-agent[{extra}]'" in done.stderr, done.stderr
