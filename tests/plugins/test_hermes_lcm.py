"""stephenschoettler/hermes-lcm, unmodified, where WHET_TEST_HERMES_LCM names a folder with a copy of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.plugins.rig import loading
from whet.plugins.load import PluginHost

COPY = os.environ.get("WHET_TEST_HERMES_LCM", "")
pytestmark = pytest.mark.skipif(not COPY, reason="WHET_TEST_HERMES_LCM names no copy")
TOOLS = ["lcm_grep", "lcm_describe", "lcm_expand", "lcm_expand_query", "lcm_status", "lcm_doctor"]
HOST = """
from pathlib import Path
from whet.plugins.hermes import Names
Names(Path({home!r}), None).open()
"""


@pytest.fixture
def installed(home: Path) -> Path:
    """A home with the plugin where its README says."""
    shutil.copytree(COPY, home / "plugins" / "hermes-lcm", ignore=shutil.ignore_patterns(".git"))
    (home / ".env").write_text("LCM_ENABLE_SLASH_COMMAND=1\nLCM_LEAF_CHUNK_TOKENS=1000\n")
    return home


def test_it_loads_and_each_agent_has_an_instance_of_its_own(installed: Path) -> None:
    with loading(installed, "hermes-lcm", host=PluginHost(ask_model=lambda request: "A summary.")) as loaded:
        assert not loaded.problems and loaded.plugins[0].has["tools"] == TOOLS
        engine = loaded.engines["lcm"].fresh()
        engine.update_model(model="m", context_length=8_000)
        facts = {"hermes_home": str(installed), "platform": "cli", "model": "m", "context_length": 8_000}
        engine.on_session_start("s1", conversation_id="c1", **facts)
        rows = [
            {"role": ("user", "assistant")[number % 2], "content": f"message {number} " + "words " * 60}
            for number in range(140)
        ]
        live = engine.compress(rows, current_tokens=7_000)
        assert len(live) < len(rows)
        assert json.loads(engine.handle_tool_call("lcm_grep", {"query": "message 3"}, messages=live))
        assert "session_id: s1" in asyncio.run(loaded.command("lcm", engine).run("status"))  # type: ignore[union-attr] (it is there)
        with closing(sqlite3.connect(installed / "lcm.db")) as database:
            assert database.execute("select count(*) from messages").fetchone() == (140,)
        engine.shutdown()  # type: ignore[attr-defined] (the plugin's own)


@pytest.mark.soak
def test_its_own_suite_passes_with_our_modules(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "hermes-lcm"
    shutil.copytree(COPY, folder)
    (tmp_path / "whet_host.py").write_text(HOST.format(home=str(tmp_path / "hermes-home")))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "whet_host", "-p", "no:randomly", "tests"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
