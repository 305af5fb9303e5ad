"""A home of before the remarks keeps its ledger, and tells nothing old as news."""

from __future__ import annotations

from pathlib import Path

import apsw

from whet.clock import SystemClock
from whet.contract.origin import Origin
from whet.store import ledger, lesson_counts
from whet.store.database import StateDatabase
from whet.store.ledger import NewRow
from whet.store.migrations import STEPS


def old_home(path: Path) -> None:
    """Make a database as the version before this step left it, with one lesson in force."""
    connection = apsw.Connection(str(path))
    at = list(STEPS).index("m015_pointed")
    connection.execute("CREATE TABLE migrations (name TEXT PRIMARY KEY, applied TEXT NOT NULL)")
    connection.execute("BEGIN")
    for name in list(STEPS)[:at]:
        connection.execute(STEPS[name])
        connection.execute("INSERT INTO migrations VALUES (?, '')", (name,))
    connection.execute("COMMIT")
    connection.execute(
        "INSERT INTO ledger (profile, at, kind, item, action, state, before, after, changes, base_hash, hash,"
        " evidence, trust, reason, write_origin, session_id, turn_id, tool_call_id, parent_session_id,"
        " execution_context, platform, tool_name, task_id) VALUES ('', '2026-01-01T00:00:00.000Z', 'memory',"
        " 'memory', 'add', 'active', '', 'Tests run with nox.', '[]', '', 'h', '[]', 'user', '', 'review',"
        " 's', '', 'c', 'p', '', '', '', 't')"
    )
    connection.pragma("user_version", at)
    connection.close()


def test_an_old_ledger_keeps_its_meaning(tmp_path: Path) -> None:
    old_home(tmp_path / "state.db")
    database = StateDatabase.open(tmp_path / "state.db", SystemClock())
    (row,) = database.read_now(lambda db: ledger.select(db))
    assert (row.state, row.after, row.remark) == ("active", "Tests run with nox.", "")
    assert database.write_now(lesson_counts.take_unread).line == ""
    new = NewRow(
        "memory", "memory", "add", "active", Origin("review", tool_call_id="d"), after="x", remark="y"
    )
    database.write_now(lambda db: ledger.insert_row(db, new, "2026-01-02T00:00:00.000Z"))
    lost = NewRow("memory", "memory", "add", "refused", Origin("review", tool_call_id="e"), reason="because")
    database.write_now(lambda db: ledger.insert_row(db, lost, "2026-01-02T00:00:00.000Z"))
    unread = database.write_now(lesson_counts.take_unread)
    assert unread.line == "since you left: learned 1, refused 1 (whet review inbox)"
    assert [ledger_row.reason for ledger_row in database.read_now(lesson_counts.list_refusals)] == ["because"]
    assert database.write_now(lesson_counts.take_unread).line == "", "it is told once"
    database.close()
