"""stephenschoettler/hermes-lcm, unmodified, where WHET_TEST_HERMES_LCM names a folder with a copy of it.

Rows equal messages from 0.10 on. Version 0.7 starts at the list's beginning in `on_session_start` and stores
a reopened session again, in Hermes Agent as here.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.rig import calls
from tests.app.opened import ask
from tests.plugins.rig import loading
from tests.support import within
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.events import Event, Notice
from whet.contract.protocols import NobodyPresent
from whet.plugins.load import PluginHost
from whet.store.rows import SEQ_BITS
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

COPY = os.environ.get("WHET_TEST_HERMES_LCM", "")
pytestmark = pytest.mark.skipif(not COPY, reason="WHET_TEST_HERMES_LCM names no copy")
VERSION = re.findall(r"version: (\d+)\.(\d+)", (Path(COPY) / "plugin.yaml").read_text()) if COPY else []
FINDS_ITS_PLACE = any((int(major), int(minor)) >= (0, 10) for major, minor in VERSION)
TOOLS = ["lcm_grep", "lcm_describe", "lcm_expand", "lcm_expand_query", "lcm_status", "lcm_doctor"]
HOST = """
from pathlib import Path
from whet.plugins.hermes import Names
Names(Path({home!r}), None, []).open()
"""


@pytest.fixture
def installed(home: Path) -> Path:
    """A home with the plugin where its README says."""
    shutil.copytree(COPY, home / "plugins" / "hermes-lcm", ignore=shutil.ignore_patterns(".git"))
    (home / ".env").write_text("LCM_ENABLE_SLASH_COMMAND=1\nLCM_LEAF_CHUNK_TOKENS=1000\n")
    return home


def test_it_loads_and_each_agent_has_an_instance_of_its_own(installed: Path) -> None:
    with loading(installed, "hermes-lcm", host=PluginHost(ask_model=lambda request: "A summary.")) as loaded:
        assert not loaded.problems and set(TOOLS) <= set(loaded.plugins[0].registrations["tools"])
        engine = loaded.engines["lcm"].make_instance()
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
        assert "session_id: s1" in asyncio.run(loaded.find_command("lcm", engine).run("status"))  # type: ignore[union-attr] (it is there)
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
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


CONFIG = """\
model: {{provider: practice, model: practice-echo, base_url: "{url}", window_tokens: 9000}}
context: {{engine: lcm}}
plugins: {{enabled: [hermes-lcm]}}
tools: {{toolsets: [file, delegation]}}
approval: {{mode: auto}}
"""


def rows_of(home: Path) -> dict[str, tuple[int, int]]:
    """Give for each session its messages in our store and its rows in the plugin's."""
    with (
        closing(sqlite3.connect(home / "lcm.db")) as theirs,
        closing(sqlite3.connect(home / "state.db")) as ours,
    ):
        rows = dict(theirs.execute("SELECT session_id, count(*) FROM messages GROUP BY 1"))
        count = f"SELECT id, (SELECT count(*) FROM messages WHERE id >> {SEQ_BITS} = key) FROM sessions"
        return {name: (messages, rows.get(name, 0)) for name, messages in ours.execute(count)}


def chat(home: Path, lines: Sequence[str], *options: str) -> str:
    """Type lines into a real `whet chat` at a plain terminal and give what it printed."""
    ours, its = pty.openpty()
    modes: list[Any] = termios.tcgetattr(its)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(its, termios.TCSANOW, modes)
    environment = {**os.environ, "WHET_HOME": str(home), "TERM": "dumb"}
    command = [sys.executable, "-m", "whet", "chat", *options]
    process = subprocess.Popen(
        command, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=home
    )
    os.close(its)
    typing = threading.Thread(
        target=lambda: [os.write(ours, f"{line}\n".encode()) for line in lines], daemon=True
    )
    typing.start()
    assert process.stdout is not None
    with process.stdout as out:
        said = within(out.read, "the chat's end", 120).decode(errors="replace")
    assert process.wait(30) == 0, said[-2000:]
    os.close(ours)
    return said


def test_one_row_per_message_in_a_real_run_with_compactions_and_new(installed: Path) -> None:
    """Failures 34, 35, 36, 38a: several compactions, some that made the list larger; /new; then resume."""
    with (installed / ".env").open("a") as file:
        file.write("LCM_FRESH_TAIL_COUNT=8\n")
    story = [f"note {number}: " + f"word{number} and so on " * 60 for number in range(40)]
    later = [f"later {number}: " + f"thing{number} " * 100 for number in range(10)]
    with PracticeServer() as server:
        (installed / "config.yaml").write_text(CONFIG.format(url=server.base_url))
        text = chat(installed, [*story, "/lcm status", "/context", "/new", *later, "/lcm status", "/quit"])
        tools = [set(names_in(request.body)) for request in server.requests]
        stored = rows_of(installed)
        assert Counter(stored.values()) == {(80, 80): 1, (20, 20): 1}, text[-3000:]
        with closing(sqlite3.connect(installed / "state.db")) as ours:
            (count,) = ours.execute("SELECT count(*) FROM compactions WHERE engine = 'lcm'").fetchone()
        assert count >= 4
        for session_id in stored:
            assert f"session_id: {session_id}" in text
        assert "(unbound)" not in text and "hermes-lcm" in text
        assert all(set(TOOLS) <= names for names in tools if names) and sum(map(bool, tools)) >= 50
        chat(installed, ["and again", "/quit"], "--continue")
    if FINDS_ITS_PLACE:
        assert Counter(rows_of(installed).values()) == {(80, 80): 1, (22, 22): 1}


@pytest.mark.skipif(FINDS_ITS_PLACE, reason="newer versions find what they have")
def test_an_old_version_stores_as_many_rows_as_in_hermes_agent(installed: Path) -> None:
    """Hermes Agent 0.13.0 with hermes-lcm 0.7.0: 2, 6 and 12 rows after three `hermes chat -q --continue`."""
    with PracticeServer() as server:
        (installed / "config.yaml").write_text(CONFIG.format(url=server.base_url))
        rows: list[int] = []
        for number in range(3):
            command = [sys.executable, "-m", "whet", "chat", "-q", f"note {number}"]
            environment = {**os.environ, "WHET_HOME": str(installed)}
            subprocess.run([*command, *(["--continue"] if number else [])], check=True, env=environment)
            rows += [stored for _, stored in rows_of(installed).values()]
    assert rows == [2, 6, 12]


@pytest.mark.skipif(not FINDS_ITS_PLACE, reason="older versions store a reopened session again")
def test_rows_equal_messages_over_thirteen_one_shots_two_kills_and_new(installed: Path) -> None:
    with (installed / ".env").open("a") as file:
        file.write("LCM_FRESH_TAIL_COUNT=8\n")
    with PracticeServer() as server:
        (installed / "config.yaml").write_text(CONFIG.format(url=server.base_url))
        environment = {**os.environ, "WHET_HOME": str(installed)}

        def one_shot(text: str, *options: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "whet", "chat", "-q", text, "--json", *options]
            return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=installed)

        first = json.loads(one_shot("begin").communicate(timeout=120)[0])["session_id"]
        story = "word and so on " * 120  # the window is passed on the way, so that it is compacted
        for number in range(13):
            if number in (4, 9):
                server.install([ScriptedReply("late", fault=Fault(stall_after=-1))])
                asked = len(server.requests)
                killed = one_shot(f"killed {number} {story}", "--session", first)
                wait_for(lambda asked=asked: len(server.requests) > asked)
                killed.kill()
                killed.communicate()
                server.install(None)
            data = json.loads(one_shot(f"{number} {story}", "--session", first).communicate(timeout=120)[0])
            assert data["session_id"] == first, data
        with closing(sqlite3.connect(installed / "state.db")) as ours:
            (count,) = ours.execute("SELECT count(*) FROM compactions WHERE engine = 'lcm'").fetchone()
        assert count >= 2
        chat(installed, ["/new", "one", "two", "/quit"], "--session", first)
    stored = rows_of(installed)
    assert all(messages == rows for messages, rows in stored.values()), stored
    assert stored[first][0] >= 28 and len(stored) == 2


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until another process has done something, at most a minute."""
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def names_in(body: bytes) -> list[str]:
    return [tool["function"]["name"] for tool in msgspec.json.decode(body).get("tools") or ()]


def test_it_is_active_in_subagents_with_a_conversation_of_their_own(installed: Path) -> None:
    """Failure 38b: a child's engine is another instance and takes nothing of the parent's over."""
    script = [
        calls(("delegate_task", '{"task": "dig"}')),
        calls(("lcm_grep", '{"query": "dig"}')),
        ScriptedReply("Dug."),
        ScriptedReply("Handed on."),
    ]

    async def main(server: PracticeServer) -> list[str]:
        (installed / "config.yaml").write_text(CONFIG.format(url=server.base_url))
        loaded = load(Home(installed), environ={})
        app = await App.start(Home(installed), loaded.settings, {}, NobodyPresent(), installed)
        events: list[Event] = []
        try:
            session = await app.new_session()
            await ask(session, "hand it on", events)
        finally:
            await app.aclose()
        return [event.text for event in events if isinstance(event, Notice) and "failed" in event.text]

    with PracticeServer(script=script) as server:
        assert asyncio.run(main(server)) == []
        assert all(set(TOOLS) <= set(names_in(request.body)) for request in server.requests)
    assert sorted(rows_of(installed).values()) == [(4, 4), (4, 4)]
