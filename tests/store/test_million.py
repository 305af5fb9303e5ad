"""A million messages: all of them whole, a planted one found, the file sound."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.store import fill

from whet.clock import SystemClock
from whet.contract.messages import Message
from whet.store.database import StateDatabase
from whet.store.search import find_now
from whet.store.sessions import NewSession, count_chats
from whet.store.transcript import Transcript


@pytest.mark.soak
async def test_a_million_messages_stay_whole_and_searchable(tmp_path: Path) -> None:
    database = StateDatabase.open(tmp_path / "state.db", SystemClock())
    fill(database, 500_000)
    clock = SystemClock()
    log = await Transcript.create(database, NewSession(id=clock.new_id()), clock)
    turn = await log.begin_turn(Message("user", "the zugzwangish needle 独角兽"))
    await log.end_turn(turn, "answered", "")
    planted = log.session.id
    fill(database, 500_000)
    for query in ("zugzwangish", "独角", '"needle 独角兽"'):
        assert [hit.session_id for hit in find_now(database, query, 3)] == [planted]
    assert len(find_now(database, "the", 10)) == 10
    assert database.read_now(count_chats) == 5_001
    assert database.read_now(lambda db: db.execute("select count(*) from messages").fetchone()) == (
        1_000_001,
    )
    assert database.read_now(lambda db: db.pragma("quick_check")) == "ok"
    database.close()
