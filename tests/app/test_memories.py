"""External memories and plugins' skills in real sessions; a learned fact in the next session's prompt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.plugins.rig import write
from whet.app.facade import Agent
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest
from whet.store import sessions

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
PRACTICE = {"model.provider": "practice", "model.model": "practice-echo"}
FAILS = """
    class Bad:
        name = "bad"
        def prefetch(self, query): raise ValueError("no index")
        def on_memory_write(self, **facts): raise ValueError("no disk")
    def register(ctx):
        ctx.register_memory_provider(Bad())
"""


def lines(home: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (home / "memory-mirror.jsonl").read_text("utf-8").splitlines()]


def remember(agent: Agent, text: str) -> None:
    desk = agent._agent._parts[0].learning.desk
    origin = Origin("user", platform="api", tool_name="memory")
    agent._wait(desk.hand_in(MemoryRequest("add", content=text), origin))


def test_a_mirror_is_told_of_changes_and_turns(home: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, home / "plugins")
    settings = {**PRACTICE, "plugins.enabled": ["memory-mirror", "shared-notes", "release-notes"]}
    with Agent(settings=settings, workspace=tmp_path) as agent:
        remember(agent, "The build needs node 22")
        agent.run("How do I fix the build?")
        notes = [message.note for message in agent._agent._session.log.messages if message.role == "user"]
        assert "node 22" in notes[0]  # what shared-notes knew, as data beside the message
        assert "release-notes" in agent._wait(agent._agent._parts[0].learning.desk.skills.describe("release"))
    written, turn, end = lines(home)
    assert (written["event"], written["target"], written["content"]) == (
        "add",
        "memory",
        "The build needs node 22",
    )
    metadata = {"write_origin": "user", "platform": "api", "tool_name": "memory", "ledger_id": "1"}
    assert written["metadata"] == metadata
    assert turn["event"] == "turn" and end == {"event": "shutdown", "turns": 1}


def test_a_broken_memory_is_named_and_nothing_else_breaks(home: Path, tmp_path: Path) -> None:
    write(home, "bad", FAILS)
    with Agent(settings={**PRACTICE, "plugins.enabled": ["bad"]}, workspace=tmp_path) as agent:
        remember(agent, "The build needs node 22")
        assert agent.run("Hello").reason == "answered"
        plugins = agent._agent._parts[0].services.plugins
        assert plugins is not None
        assert any("its memory bad failed" in problem.line for problem in plugins.loaded.problems)


def test_what_is_remembered_stands_in_new_sessions_and_no_running_one(home: Path, tmp_path: Path) -> None:
    with Agent(settings=PRACTICE, workspace=tmp_path) as agent:
        remember(agent, "The build needs node 22")
        app = agent._agent._parts[0]

        async def prompts() -> tuple[str, str]:
            second = await app.new_session()
            read = app.database.read
            old = await read(lambda db: sessions.read_prefix(db, agent._agent._session.id))
            return old[0], (await read(lambda db: sessions.read_prefix(db, second.id)))[0]

        old, new = agent._wait(prompts())
    assert "node 22" not in old and "- The build needs node 22" in new and "review-a-diff" in new


def test_a_private_session_teaches_nothing(home: Path, tmp_path: Path) -> None:
    with Agent(settings={**PRACTICE, "store.private": True}, workspace=tmp_path) as agent:
        agent.run("Remember that staging is qa.acme.lan")
        origin = Origin("foreground", session_id=agent._agent._session.id, tool_call_id="c")
        request = MemoryRequest("add", content="Staging is qa.acme.lan.")
        outcome = agent._wait(agent._agent._parts[0].learning.desk.hand_in(request, origin))
    assert not outcome.ok and "private" in outcome.text
