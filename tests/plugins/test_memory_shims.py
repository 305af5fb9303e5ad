"""Modules that the memory providers of Hermes Agent's set-up import, and past sessions for plugins."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.plugins.rig import loading, reasons, write
from tests.support import FixedClock
from whet.contract.messages import Message
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

PROVIDER = """
    import json, sqlite3
    from agent.file_safety import get_read_block_error, raise_if_read_blocked
    from agent.memory_manager import sanitize_context
    from agent.memory_provider import MemoryProvider
    from agent.message_content import flatten_message_text
    from agent.skill_commands import extract_user_instruction_from_skill_message
    from hermes_cli.profiles import get_active_profile_name
    from hermes_state import SessionDB, apply_wal_with_fallback
    from plugins.plugin_utils import SingletonSlot
    from plugins.memory.query_rewrite import rewrite_memory_query
    from tools.lazy_deps import ensure
    from utils import atomic_json_write, env_var_enabled

    def register(ctx):
        from plugins.memory.giving.client import NAME
        connection = sqlite3.connect(ctx.home / "own.db")
        mode = apply_wal_with_fallback(connection)
        connection.close()
        slot = SingletonSlot()
        with SessionDB() as past:
            told = {
                "name": NAME, "mode": mode, "profile": get_active_profile_name(),
                "clean": sanitize_context("a<memory-context>secret</memory-context>b"),
                "text": flatten_message_text([{"type": "text", "text": "x"}, "y"]),
                "blocked": [bool(get_read_block_error(p)) for p in ("/x/.env", "/auth.json", "/x/a.md")],
                "same": slot.get(dict) is slot.get(dict) is slot.peek(),
                "query": rewrite_memory_query("q"), "ensure": ensure("memory.x", prompt=False),
                "sessions": [row["id"] for row in past.list_sessions_rich()],
                "messages": [row["content"] for row in past.get_messages("s1")],
                "private": [past.get_session("s2"), past.get_messages("s2")],
                "found": [row["session_id"] for row in past.search_messages("oranges")],
                "counts": [past.message_count("s1"), past.get_session_title("s1")],
                "writes": hasattr(past, "append_message"),
            }
        atomic_json_write(ctx.home / "told.json", told)
"""


async def fill(home: Path) -> None:
    """Store one session, and a private one, that talk about oranges."""
    home.mkdir(parents=True, exist_ok=True)
    clock = FixedClock()
    database = StateDatabase.open(home / "state.db", clock)
    for name, is_private in (("s1", False), ("s2", True)):
        new = NewSession(id=name, title="Fruit", private=is_private)
        log = await Transcript.create(database, new, clock)
        turn = await log.begin_turn(Message("user", "I like oranges"))
        await log.end_turn(turn, "answered", "")
    database.close()


def test_what_memory_providers_import_is_there_and_past_sessions_can_be_read(home: Path) -> None:
    asyncio.run(fill(home))
    write(home, "giving", PROVIDER, files={"client.py": "NAME = 'own module'"})
    with loading(home, "giving") as loaded:
        assert loaded.problems == [], reasons(loaded)
    data = json.loads((home / "told.json").read_text())
    assert data == {
        "name": "own module",
        "mode": "wal",
        "profile": "default",
        "clean": "ab",
        "text": "x\ny",
        "blocked": [True, True, False],
        "same": True,
        "query": "",
        "ensure": None,
        "sessions": ["s1"],
        "messages": ["I like oranges"],
        "private": [None, []],
        "found": ["s1"],
        "counts": [1, "Fruit"],
        "writes": False,
    }


HERMES = os.environ.get("WHET_TEST_HERMES", "")
PROVIDERS = "byterover hindsight holographic honcho mem0 openviking retaindb supermemory"


@pytest.mark.skipif(not HERMES, reason="WHET_TEST_HERMES names no unpacked wheel of hermes-agent")
@pytest.mark.parametrize("name", PROVIDERS.split())
def test_each_provider_of_the_set_up_loads(home: Path, name: str) -> None:
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / name).symlink_to(Path(HERMES) / "plugins" / "memory" / name)
    with loading(home, name) as loaded:
        assert loaded.problems == [], reasons(loaded)
        assert loaded.tools
