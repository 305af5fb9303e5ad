"""A store from before the search index changed opens at once, is searched, and indexed behind."""

from __future__ import annotations

import apsw
import pytest

from tests.store.support import child
from tests.store.test_ranking import put
from whet.store import index, search
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
    assert db.read_now(index.count_unindexed) == 60
    put(db, "new", "a brand new word")
    assert search.find_now(db, "brand")[0].session_id == "new"
    assert search.find_now(db, "place60x500")[0].session_id == "s60"
    assert search.find_now(db, "place3x1", session_id="s3")[0].session_id == "s3"
    assert search.find_now(db, "place7x9", profile="alice")[0].session_id == "s7"
    while db.write_now(index.index_batch):
        pass
    assert db.read_now(index.count_unindexed) == 0
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
    left = db.read_now(index.count_unindexed)
    assert 0 < left < 60
    while db.write_now(index.index_batch):
        pass
    counts = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM messages_fts WHERE rowid % 2 = 0)"
    assert db.read_now(lambda c: c.execute(counts).fetchone()) == (30_000, 30_000)
    assert [hit.session_id for hit in search.find_now(db, "place42x17")] == ["s42"]
    db.write_now(lambda c: c.execute("INSERT INTO messages_fts (messages_fts) VALUES ('integrity-check')"))
    db.close()
