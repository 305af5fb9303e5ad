"""External memories and plugins' skills in real sessions; a learned fact in the next session's prompt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.app.opened import ask, opened
from tests.plugins.rig import write
from whet.app.build import App
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest, WriteOutcome
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


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "memory-mirror.jsonl").read_text("utf-8").splitlines()]


async def remember(app: App, text: str, origin: Origin | None = None) -> WriteOutcome:
    origin = origin or Origin("user", platform="api", tool_name="memory")
    return await app.learning.owner_service.submit(MemoryRequest("add", content=text), origin)


async def test_a_mirror_is_told_of_changes_and_turns(home: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, home / "plugins")
    settings = {**PRACTICE, "plugins.enabled": ["memory-mirror", "shared-notes", "release-notes"]}
    async with opened(settings, tmp_path) as app:
        session = await app.new_session()
        await remember(app, "The build needs node 22")
        await ask(session, "How do I fix the build?")
        notes = [message.note for message in session.log.messages if message.role == "user"]
        assert "node 22" in notes[0]  # what shared-notes knew, as data beside the message
        assert "release-notes" in await app.learning.owner_service.skills.describe("release")
    written, turn, end = lines(home)
    assert (written["event"], written["target"], written["content"]) == (
        "add",
        "memory",
        "The build needs node 22",
    )
    metadata = {"write_origin": "user", "platform": "api", "tool_name": "memory", "ledger_id": "1"}
    assert written["metadata"] == metadata
    assert turn["event"] == "turn" and end == {"event": "shutdown", "turns": 1}


async def test_a_mirror_reads_who_wrote_in_the_words_of_hermes(home: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, home / "plugins")
    async with opened({**PRACTICE, "plugins.enabled": ["memory-mirror"]}, tmp_path) as app:
        session = await app.new_session()
        await ask(session, "The build needs node 22")
        await ask(session, "Deploys go out from the harbour branch on Tuesdays")
        foreground = Origin("foreground", session_id=session.id, tool_name="memory")
        text = "The build needs node 22"
        outcome = await app.learning.owner_service.submit(
            MemoryRequest("add", content=text, evidence=(text,)), foreground
        )
        assert outcome.state == "active", outcome
        review = Origin("review", parent_session_id=session.id, task_id="job-1")
        quote = "Deploys go out from the harbour branch on Tuesdays"
        request = MemoryRequest("add", content=quote, evidence=(quote,))
        await app.learning.owner_service.submit(request, review)
        settled = await app.database.write(lambda db: app.learning.owner_service.settle(db, "job-1"))
        await app.learning.owner_service.apply(settled)
    origins = [
        (row["metadata"]["write_origin"], row["metadata"]["execution_context"])
        for row in lines(home)
        if row["event"] == "add"
    ]
    assert origins == [("assistant_tool", "foreground"), ("background_review", "background_review")]


async def test_a_broken_memory_is_named_and_nothing_else_breaks(home: Path, tmp_path: Path) -> None:
    write(home, "bad", FAILS)
    async with opened({**PRACTICE, "plugins.enabled": ["bad"]}, tmp_path) as app:
        session = await app.new_session()
        await remember(app, "The build needs node 22")
        assert (await ask(session, "Hello")).reason == "answered"
        plugins = app.services.plugins
        assert plugins is not None
        assert any("its memory bad failed" in problem.line for problem in plugins.loaded.problems)


async def test_what_is_remembered_stands_in_new_sessions_and_no_running_one(
    home: Path, tmp_path: Path
) -> None:
    async with opened(PRACTICE, tmp_path) as app:
        running = await app.new_session()
        await remember(app, "The build needs node 22")
        ids = running.id, (await app.new_session()).id
        old, new = [
            (await app.database.read(lambda db, id_=id_: sessions.read_prefix(db, id_)))[0] for id_ in ids
        ]
    assert "node 22" not in old and "- The build needs node 22" in new and "review-a-diff" in new


async def test_a_private_session_teaches_nothing(home: Path, tmp_path: Path) -> None:
    async with opened({**PRACTICE, "store.private": True}, tmp_path) as app:
        session = await app.new_session()
        await ask(session, "Remember that staging is qa.acme.lan")
        origin = Origin("foreground", session_id=session.id, tool_call_id="c")
        outcome = await remember(app, "Staging is qa.acme.lan.", origin)
    assert not outcome.ok and "private" in outcome.text
