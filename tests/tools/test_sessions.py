"""session_search: what a session finds in other ones, and what it reads around a hit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.support import talk
from tests.support import FixedClock
from tests.tools.running import call, context, find_tool
from whet.contract.errors import BadInput
from whet.serve import tokens
from whet.store import api
from whet.store.database import StateDatabase
from whet.tools.toolsets.session import SessionTools


async def test_a_past_session_is_found_and_read(tmp_path: Path, clock: FixedClock) -> None:
    database = StateDatabase.open(tmp_path / "state.db", clock)
    search = find_tool(SessionTools(database), "session_search")
    for name, words in (("s1", "hello"), ("s2", "the staging host is heron"), ("s3", "heron again")):
        await talk(database, clock, name, words)
    ctx = context(tmp_path, session_id="s1")
    text = (await call(search, ctx, query="staging heron")).text
    assert text.startswith("s2 seq 1 2026-11-21T09:00 user: the «staging» host is heron")
    assert "s2" not in (await call(search, ctx, query="heron", session_id="s3")).text
    assert len((await call(search, ctx, query="heron", limit=0)).text.splitlines()) == 1
    assert "the staging host" in (await call(search, ctx, session_id="s2", seq=1)).text
    await talk(database, clock, "s4", *(f"word {n}" for n in range(9)))
    around = (await call(search, ctx, session_id="s4", seq=8)).text.splitlines()
    assert [line.partition("]")[0] for line in around] == [f"[{n}" for n in range(4, 15)]
    assert (await call(search, ctx, query="zeppelin")).text.startswith("Nothing found for 'zeppelin'.")
    assert (await call(search, ctx, query=" ")).error_kind == "bad_input"
    database.close()


async def test_a_session_of_an_api_token_finds_the_sessions_of_that_token_alone(
    tmp_path: Path, clock: FixedClock
) -> None:
    database = StateDatabase.open(tmp_path / "state.db", clock)
    search = find_tool(SessionTools(database), "session_search")
    begun_by = {"mine": "", "phone1": "phone", "phone2": "phone", "desk": "desk", "gone": "gone"}
    for name, token in begun_by.items():
        await talk(database, clock, name, f"the heron of {name}")
        if token:
            database.write_now(lambda db, name=name, token=token: api.set_owner(db, name, token))
    database.write_now(lambda db: tokens.make(db, "phone", "chat", clock))
    database.write_now(lambda db: tokens.make(db, "desk", "owner", clock))
    seen: dict[str, list[str]] = {}
    for name in begun_by:
        ctx = context(tmp_path, session_id=name)
        hits = (await call(search, ctx, query="heron", limit=30)).text.splitlines()
        seen[name] = sorted(line.partition(" ")[0] for line in hits if " seq " in line)
    everything = sorted(begun_by)
    assert seen == {
        "mine": everything,
        "phone1": ["phone1", "phone2"],
        "phone2": ["phone1", "phone2"],
        "desk": everything,
        "gone": ["gone"],
    }
    ctx = context(tmp_path, session_id="phone1")
    assert (await call(search, ctx, session_id="phone2", seq=1)).text
    with pytest.raises(BadInput, match="no session mine"):
        await call(search, ctx, session_id="mine", seq=1)
    database.close()
