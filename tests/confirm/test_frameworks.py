"""The examples for frameworks, with the real packages: what is approved runs, what is denied does not.

python -m venv .frameworks
.frameworks/bin/pip install . langgraph openai-agents claude-agent-sdk
FRAMEWORKS_PYTHON=.frameworks/bin/python pytest -m slow tests/confirm/test_frameworks.py
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.confirm.running import Running
from tests.confirm.scripted_model import ScriptedModel
from tests.confirm.test_clients import Person

PYTHON = os.environ.get("FRAMEWORKS_PYTHON", "")
ROOT = Path(__file__).parents[2]
no_python = pytest.mark.skipif(not PYTHON, reason="FRAMEWORKS_PYTHON names no Python with the frameworks")
pytestmark = [pytest.mark.slow, no_python]


def drive(server: Running, name: str, argument: str, **environ: str) -> str:
    names = {
        "WHET_CONFIRM_URL": server.url,
        "CONFIRMATION_TOKEN": server.token("submit", f"agent-{len(argument)}-{argument[-8:]}"),
        "PYTHONPATH": f"{ROOT}/src:{ROOT}/examples/approvals",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    program = Path(__file__).parent / "frameworks" / f"drive_{name}.py"
    done = subprocess.run(
        [PYTHON, program, argument],
        env=os.environ | names | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["langgraph", "openai"])
def test_a_call_waits_for_a_person(server, name):
    with Person(server, "approve"):
        assert drive(server, name, "first") == "deleted /srv/old"
    with Person(server, "deny", reason="use staging"):
        assert "denied by alice: use staging" in drive(server, name, "second")
    rows = server.rows("SELECT details, status, consumed_at IS NOT NULL FROM requests ORDER BY seq")
    assert rows == [('{"path":"/srv/old"}', "approved", 1), ('{"path":"/srv/old"}', "denied", 0)]


def test_the_claude_agent_sdk_runs_what_was_approved(server, tmp_path):
    for verdict in ("deny", "approve"):
        work = tmp_path / verdict
        work.mkdir()
        with Person(server, verdict, reason="use staging"), ScriptedModel(f"touch {work}/ran") as model:
            environ = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "x", "HOME": str(tmp_path)}
            drive(server, "claude", str(work), **environ)
        assert (work / "ran").exists() is (verdict == "approve")
        assert verdict == "approve" or "denied by alice: use staging" in "".join(model.results)
