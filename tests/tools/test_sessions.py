"""session_search: what a session finds in other ones, and what it reads around a hit."""

from __future__ import annotations

from pathlib import Path

from tests.store.support import talk
from tests.support import FixedClock
from tests.tools.running import call, context, find_tool
from whet.store.database import StateDatabase
from whet.tools.toolsets.session import SessionTools


async def test_a_past_session_is_found_and_read(tmp_path: Path, clock: FixedClock) -> None:
    database = StateDatabase.open(tmp_path / "state.db", clock)
    search = find_tool(SessionTools(database), "session_search")
    for name, words in (("s1", "hello"), ("s2", "the staging host is heron"), ("s3", "heron again")):
        await talk(database, clock, name, words)
    ctx = context(tmp_path, session_id="s1")
    found = (await call(search, ctx, query="staging heron")).text
    assert found.startswith("s2 seq 1 2026-11-21T09:00 user: the «staging» host is heron")
    assert "s2" not in (await call(search, ctx, query="heron", session_id="s3")).text
    assert len((await call(search, ctx, query="heron", limit=0)).text.splitlines()) == 1
    assert "the staging host" in (await call(search, ctx, session_id="s2", seq=1)).text
    await talk(database, clock, "s4", *(f"word {n}" for n in range(9)))
    around = (await call(search, ctx, session_id="s4", seq=8)).text.splitlines()
    assert [line.partition("]")[0] for line in around] == [f"[{n}" for n in range(4, 15)]
    assert (await call(search, ctx, query="zeppelin")).text.startswith("Nothing found for 'zeppelin'.")
    assert (await call(search, ctx, query=" ")).error_kind == "bad_input"
    database.close()
