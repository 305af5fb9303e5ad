"""A home that the real hermes-agent made, where WHET_TEST_HERMES_HOME names one; a copy is taken."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import apsw
import pytest

from tests.cli.running import flags, run
from whet.moving.copies import open_copy
from whet_lab.practice.server import PracticeServer

GIVEN = os.environ.get("WHET_TEST_HERMES_HOME", "")
pytestmark = pytest.mark.skipif(not GIVEN, reason="WHET_TEST_HERMES_HOME names no home")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("sandboxes", "logs", "*.lock")
    return Path(shutil.copytree(GIVEN, tmp_path / "theirs", ignore=ignored, symlinks=True))


def said(path: Path) -> list[tuple[str, str]]:
    query = (
        "SELECT session_id, content FROM messages WHERE role IN ('user', 'assistant') AND active = 1"
        " AND content <> '' AND content NOT LIKE char(0) || '%' ORDER BY id"
    )
    with open_copy(path) as connection:
        return connection.execute(query).fetchall()


def test_it_moves_in_whole_is_found_mined_and_gone_on_with(tmp_path: Path, home: Path, theirs: Path) -> None:
    code, out, err = run(["import", "hermes", str(theirs), "--json"], tmp_path)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["sessions"]["new"] > 0 and "notice" not in report
    stored = apsw.Connection(str(home / "state.db"))
    messages, indexed = stored.execute(
        "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM messages_fts WHERE rowid % 2 = 0)"
    ).fetchall()[0]
    stored.close()
    assert messages == indexed == report["held"]["messages"]
    for session_id, content in said(theirs / "state.db"):
        shown = json.loads(run(["sessions", "show", session_id, "--json"], tmp_path)[1])
        assert content in [row["content"] for row in shown["messages"]], (session_id, content)
    question = said(theirs / "state.db")[0][1]
    data = json.loads(run(["sessions", "search", question, "--json"], tmp_path)[1])
    assert data["hits"]
    code, out, err = run(
        ["warm", "build", "theirs", "--with-changes", "--min-messages", "2", "--json"], tmp_path
    )
    assert code == 0 or "no tool failed" in err, err  # a home in which nothing went wrong has no lesson
    again = json.loads(run(["import", "hermes", str(theirs), "--json"], tmp_path)[1])
    assert again["sessions"]["new"] == 0 and again["sessions"]["same"] == report["sessions"]["new"]


def test_the_latest_conversation_goes_on(tmp_path: Path, home: Path, theirs: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    with open_copy(theirs / "state.db") as connection:
        row = connection.execute("SELECT id FROM sessions ORDER BY started_at DESC LIMIT 1").fetchone()
    assert row is not None
    database = apsw.Connection(str(theirs / "state.db"))
    database.execute("UPDATE sessions SET cwd = ?", (str(folder),))  # where it ran is not on this machine
    database.close()
    assert run(["import", "hermes", str(theirs), "--only", "sessions"], tmp_path)[0] == 0
    with PracticeServer() as server:
        asked = ["chat", "--continue", "-q", "and now?", "--json", *flags(server)]
        code, out, err = run(asked, folder)
        assert (code, err) == (0, "")
        body = json.loads(server.requests[-1].body)
    assert json.loads(out)["session_id"] == row[0]
    assert len(body["messages"]) > 3
