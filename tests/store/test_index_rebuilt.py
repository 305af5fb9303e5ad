"""A store from before the search index changed opens at once, is searched, and indexed behind."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from tests.store.support import child
from tests.store.test_ranking import put
from whet.store import index, rows, search
from whet.store.database import StateDatabase
from whet.store.migrations import STEPS


def old_store(path, step: str) -> None:
    """What the schema before `step` left, with its index filled."""
    before = list(STEPS).index(step)
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE migrations (name TEXT PRIMARY KEY, applied TEXT NOT NULL)")
    for name in list(STEPS)[:before]:
        connection.execute(STEPS[name])
        connection.execute("INSERT INTO migrations VALUES (?, '')", (name,))
    connection.pragma("user_version", before)
    connection.execute("BEGIN")
    for key in range(1, 61):
        connection.execute(
            "INSERT INTO sessions (key, id, conversation_id, parent_session_id, kind, source, provider,"
            " model, title, workspace, private, started, last_active, system_text, tools_text, indexed_seq,"
            " messages, profile)"
            " VALUES (?1, ?2, '', '', 'chat', '', '', '', '', '', 0, '', '', 0, 0, 501, 500, ?3)",
            (key, f"s{key}", "alice" if key == 7 else ""),
        )
        connection.execute(
            "INSERT INTO turns (session, number, id, started, ended) VALUES (?, 1, 't', 'x', 'x')", (key,)
        )
        for seq in range(1, 501):
            text = f"we went camping near place{key}x{seq}"
            id_ = key << 22 | seq
            connection.execute("INSERT INTO messages VALUES (?, 1, 0, ?, ?, NULL)", (id_, seq, text))
            connection.execute("INSERT INTO messages_fts (rowid, body) VALUES (?, ?)", (id_, text))
    connection.execute("COMMIT")
    connection.close()


@pytest.fixture(scope="module", params=["m014_search", "m028_newest_first"])
def written(tmp_path_factory, request):
    path = tmp_path_factory.mktemp("old") / "state.db"
    old_store(path, request.param)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, written):
    (tmp_path / "state.db").write_bytes(written)
    return tmp_path / "state.db"


@pytest.mark.slow
def test_newest_and_asked_for_sessions_are_found_at_once_and_all_in_the_end(path, clock):
    db = StateDatabase.open(path, clock)
    assert db.read_now(index.count_backlog) == 60
    put(db, "new", "a brand new word")
    assert search.find_now(db, "brand")[0].session_id == "new"
    assert search.find_now(db, "place60x500")[0].session_id == "s60"
    assert search.find_now(db, "place3x1", session_id="s3")[0].session_id == "s3"
    assert search.find_now(db, "place7x9", profile="alice")[0].session_id == "s7"
    while db.write_now(index.index_batch):
        pass
    assert db.read_now(index.count_backlog) == 0
    assert search.find_now(db, "place1x1")[0].session_id == "s1"
    assert search.find_now(db, "camped", 3)
    counts = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM messages_fts WHERE rowid % 2 = 0)"
    assert db.read_now(lambda c: c.execute(counts).fetchone()) == (30_001, 30_001)
    db.close()


@pytest.mark.slow
def test_a_killed_rebuild_goes_on_where_it_was(path, clock):
    code = """
import sys
from pathlib import Path
from whet.clock import SystemClock
from whet.store import index
from whet.store.database import StateDatabase
db = StateDatabase.open(Path(sys.argv[1]), SystemClock())
while db.write_now(index.index_batch):
    print("batch", flush=True)
"""
    for batches in (3, 5):
        process = child(code, str(path))
        for _ in range(batches):
            assert process.stdout is not None and process.stdout.readline() == "batch\n"
        process.kill()
        process.communicate()
    db = StateDatabase.open(path, clock)
    left = db.read_now(index.count_backlog)
    assert 0 < left < 60
    while db.write_now(index.index_batch):
        pass
    counts = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM messages_fts WHERE rowid % 2 = 0)"
    assert db.read_now(lambda c: c.execute(counts).fetchone()) == (30_000, 30_000)
    assert [hit.session_id for hit in search.find_now(db, "place42x17")] == ["s42"]
    db.write_now(lambda c: c.execute("INSERT INTO messages_fts (messages_fts) VALUES ('integrity-check')"))
    db.close()


def indexed(db: StateDatabase) -> dict[str, int]:
    """How many messages of each session are in the index."""
    sql = (
        f"SELECT s.id, count(*) FROM messages_fts f JOIN sessions s"
        f" ON s.key = -f.rowid >> {rows.SEQ_BITS + 1}"
        " WHERE f.rowid % 2 = 0 GROUP BY s.id"
    )
    return dict(db.read_now(lambda c: c.execute(sql).fetchall()))


def test_three_hundred_messages_are_indexed_at_once_the_newest_sessions_first(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    put(db, "old", *(f"word{number}" for number in range(500)))
    for number in range(70):
        put(db, f"s{number}", "a", "b")
    put(db, "new", *(f"word{number}" for number in range(100)))
    assert db.read_now(index.has_new) and db.read_now(index.has_backlog)
    assert db.write_now(index.index_new)
    numbers = indexed(db)
    assert (numbers["new"], numbers["old"], len(numbers)) == (100, 60, 72)
    assert db.write_now(index.index_new) and indexed(db)["old"] == 360
    assert db.read_now(index.has_new)
    assert not db.write_now(index.index_new) and indexed(db)["old"] == 500
    assert not db.read_now(index.has_new) and not db.read_now(index.has_backlog)
    assert [hit.seq for hit in search.find_now(db, "word499")] == [500]
    db.close()


def test_long_messages_fill_a_batch_by_their_characters(tmp_path, clock):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    put(db, "s", "a " * 149_999, "b", "c " * 150_000, "d", "e")
    assert [db.write_now(index.index_new) and indexed(db)["s"] for _ in range(3)] == [3, False, False]
    assert indexed(db)["s"] == 5 and db.read_now(index.count_backlog) == 0
    db.close()


@pytest.mark.parametrize(
    "look", [search.find_now, lambda *asked, **of: asyncio.run(search.find(*asked, **of))]
)
def test_what_a_search_did_not_ask_for_is_indexed_behind_it(tmp_path, clock, look):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    put(db, "s1", "walrus")
    put(db, "s2", "walrus")
    db.write_now(lambda c: c.execute("UPDATE sessions SET dirty = 2"))
    assert [hit.session_id for hit in look(db, "walrus", session_id="s1")] == ["s1"]
    db.close()
    db = StateDatabase.open(tmp_path / "state.db", clock)
    assert indexed(db) == {"s1": 1, "s2": 1}
    db.close()


@pytest.mark.parametrize(
    ("named", "first"), [({}, "s3"), ({"session_id": "s1"}, "s1"), ({"profile": "ann"}, "s2")]
)
def test_what_is_asked_for_is_indexed_before_the_rest(tmp_path, clock, named, first):
    db = StateDatabase.open(tmp_path / "state.db", clock)
    for number in (1, 2, 3):
        put(db, f"s{number}", *["x"] * 301, profile="ann" if number == 2 else "")
    db.write_now(lambda c: c.execute("UPDATE sessions SET dirty = 2"))
    assert not db.read_now(index.has_new) and db.read_now(index.has_backlog)
    assert db.read_now(index.count_backlog) == 3 and not db.write_now(index.index_new)
    work = index.backlog_write(named.get("session_id"), named.get("profile"))
    assert db.write_now(work) and indexed(db) == {first: 300}
    assert db.write_now(work) == (not named) and indexed(db)[first] == 301
    db.close()
