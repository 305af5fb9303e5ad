"""What a person deleted is in no byte of the database's files, whoever else has it open."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import Result

from tests.cli.running import invoke
from tests.cli.stored import Said, store
from tests.support import FixedClock
from whet.cli.sessions import rewrite
from whet.clock import SystemClock
from whet.contract.channels import ChatPlace
from whet.contract.errors import StoreBusy, WhetError
from whet.store import chats, claims, schedules, session_deletion
from whet.store import sessions as store_sessions
from whet.store.database import StateDatabase
from whet.store.jobs import NewJob, enqueue
from whet.store.search import find_now

# Nothing else in the index begins with these letters: FTS5 leaves out what a word shares with the one before.
WORDS = ("qzquestion", "xzanswer", "vzargument", "jzresult", "kztitle")
SECRET = Said("Where is qzquestion?", "xzanswer it is", "cat vzargument", "jzresult\nfish")
AGAIN = Said("and qzquestion again", "yes, xzanswer")
LUNCH = Said("Where is the lunch list?", "It is in menu.txt.", "cat menu.txt", "soup\nbread")


def run(home: Path, *arguments: str) -> Result:
    return invoke("sessions", *arguments)


def disk(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def left(home: Path, words: tuple[str, ...] = WORDS) -> list[str]:
    data = disk(home)
    return [word for word in words if word.encode() in data]


@pytest.fixture
def session(home: Path, clock: FixedClock) -> str:
    store(home, clock, "Lunch", *[LUNCH] * 20)
    text = store(home, clock, "kztitle", SECRET, AGAIN)  # few: FTS5 merges at once where a tenth is deleted
    store(home, clock, "Dinner", *[LUNCH] * 20)
    return text


@pytest.fixture
def database(home: Path, clock: FixedClock, session: str) -> Any:
    """Another process of the home: the log is not taken in when the command ends."""
    opened = StateDatabase.open(home / "state.db", clock)
    assert find_now(opened, "qzquestion")
    yield opened
    opened.close()


@pytest.mark.slow
def test_no_word_is_left_though_others_have_the_file_open(
    home: Path, database: StateDatabase, session: str
) -> None:
    index = sqlite3.connect(home / "state.db")
    pages = b"".join(row[0] for row in index.execute("SELECT block FROM messages_fts_data"))
    index.close()
    assert b"qzquestion" in pages and b"xzanswer" in pages, "the index has them"
    assert left(home) == list(WORDS)
    assert run(home, "delete", session, "--yes").exception is None
    assert (home / "state.db-wal").exists()
    assert left(home) == []
    assert len(find_now(database, "lunch", 100)) == 40
    assert database.read_now(lambda db: db.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
    database.write_now(
        lambda db: db.execute("INSERT INTO messages_fts (messages_fts) VALUES ('integrity-check')")
    )


@pytest.mark.slow
def test_the_traces_that_it_left_elsewhere_go_too(
    home: Path, database: StateDatabase, session: str, clock: FixedClock
) -> None:
    def work(db: apsw.Connection) -> None:
        chat = chats.get_or_create_chat(db, ChatPlace("telegram", "1", "", "1"))
        chats.set_session(db, chat.id, session)
        chats.add_update(db, chat.place, "7", '{"text": "wztold"}', 1)
        db.execute("UPDATE gateway_inbox SET state = 'done'")
        chats.add_update(db, chat.place, "8", '{"text": "pzwaits"}', 2)
        chats.queue_messages(db, chat.id, ['{"text": "wzsent"}'], 3)
        chats.end_sending(db, 1, "sent")
        focus = {"session_id": session, "focus": "wzfocus"}
        enqueue(db, NewJob("review", json.dumps(focus), subject=session), clock)
        job = "INSERT INTO schedule_runs (job, schedule, due, by_hand, started, session_id, result, text)"
        db.execute(f"{job} VALUES ('j', 's', '', 0, '', ?, 'answered', 'wzrun')", (session,))

    database.write_now(work)
    traces = ("wztold", "wzsent", "wzfocus", "wzrun")
    assert left(home, traces) == list(traces)
    assert run(home, "delete", session, "--yes").exception is None
    assert left(home, (*traces, "pzwaits")) == ["pzwaits"], "only what still waits is kept"
    assert database.read_now(lambda db: schedules.list_runs(db, "s"))[0].result == "answered"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("",), "Deleted 1 session and 1 session that it began.\n"),
        (("", "", "child"), "Deleted 2 sessions.\n"),
    ],
)
def test_a_session_named_twice_or_with_its_child_goes_once(
    home: Path, database: StateDatabase, session: str, names: tuple[str, ...], line: str
) -> None:
    child = store_sessions.NewSession(id="child", parent_session_id=session, kind="child")
    database.write_now(lambda db: store_sessions.create(db, child, "2026-11-21T09:00:00.000Z"))
    done = run(home, "delete", *(name or session for name in names), "--yes")
    assert (done.exception, done.output) == (None, line)
    assert left(home) == []


@pytest.mark.slow
def test_where_one_can_not_go_none_goes(home: Path, database: StateDatabase, session: str) -> None:
    busy = store_sessions.NewSession(id="busy")

    def work(db: apsw.Connection) -> None:
        store_sessions.create(db, busy, "2026-11-21T09:00:00.000Z")
        claims.begin_claim(db, store_sessions.key_of(db, "busy"), "busy", holder, SystemClock().now())()

    holder = claims.Holder("a turn that runs")
    database.write_now(work)
    refused = run(home, "delete", session, "busy", "--yes")
    assert isinstance(refused.exception, StoreBusy)
    assert database.read_now(lambda db: store_sessions.get(db, session)).title == "kztitle"


@pytest.mark.slow
def test_a_file_that_others_keep_in_use_is_written_again_later(
    home: Path, session: str, clock: FixedClock
) -> None:
    database = StateDatabase.open(home / "state.db", clock, patience_s=0.05)
    find_now(database, "qzquestion")
    database.write_now(lambda db: session_deletion.delete_session(db, session))
    reader = apsw.Connection(str(home / "state.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    with pytest.raises(WhetError, match="1 deleted, but words") as refused:
        rewrite(database, 1)
    assert "--remains" in refused.value.hint
    assert left(home)
    reader.close()
    database.close()
    assert run(home, "delete", "--remains").exception is None
    assert left(home) == []
    assert run(home, "delete").exit_code == run(home, "delete", session, "--remains").exit_code == 2
