"""What is asked on every message or turn does not read all that is kept: SQLite passes over an index of some
rows where the query does not say the words of the index."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest

from tests.store.support import ONLY_SQLITE
from tests.support import FixedClock
from whet.contract.channels import ChatPlace
from whet.store import api, chat_changes, chats, facts, forks, jobs, outcomes, reviews, sessions
from whet.store.database import StateDatabase

HERE = ChatPlace("board", "1", "", "7")
CLOCK = FixedClock()
KEPT = 500
_CALL = (
    "INSERT INTO tool_calls (session, seq, position, turn, step, call_id, name, facts)"
    " VALUES (1, ?, 0, 1, 1, ?, 't', ?)"
)


WORKS: dict[str, Callable[[apsw.Connection], object]] = {
    "waiting": lambda db: chats.list_waiting(db, 1),
    "is_begun": lambda db: chats.has_begun_turn(db, 1),
    "open_chats": lambda db: chats.list_open_chats(db, ["board"]),
    "replace_waiting": lambda db: chat_changes.replace_waiting_update(db, 1, "m1", "{}"),
    "read_begun": lambda db: chat_changes.read_begun_update(db, 1, "m1"),
    "drop_reaction": lambda db: chat_changes.drop_reaction(db, 1, "m1", "x"),
    "finish_begun": lambda db: chats.finish_taken_updates(db, 1),
    "drop_waiting": lambda db: chats.drop_waiting_updates(db, 1, 5_000),
    "due": lambda db: chats.list_due(db, "board"),
    "next_out": lambda db: chats.next_message(db, "board", 1),
    "has_out": lambda db: chats.has_unsent(db, 1),
    "sort_out": lambda db: chats.list_unfinished_sends(db, "board"),
    "is_due": lambda db: jobs.is_due(db, ["review"], CLOCK),
    "due_in": lambda db: jobs.seconds_until_due(db, ["review"], CLOCK),
    "waiting_job": lambda db: jobs.find_waiting(db, "review", "s1"),
    "open_payloads": reviews.list_open_payloads,
    "spent_since": lambda db: reviews.spent_since(db, "2100"),
    "sessions_of_program": lambda db: sessions.list_sessions(db, 50, token="bob"),
    "sessions_of_folder": lambda db: sessions.list_sessions(db, 50, workspace="/elsewhere"),
    "sessions_of_source": lambda db: sessions.list_sessions(db, 50, source="discord"),
    "archived_sessions": lambda db: sessions.list_sessions(db, 50, archived=True),
    "family": lambda db: forks.list_family(db, "s7"),
    "reviews_of_session": lambda db: reviews.list_reviews(db, 20, session_id="s7"),
    "calls_of_session": lambda db: outcomes.count_session_calls(db, "s7"),
    "newest_review": lambda db: reviews.list_reviews(db, 1),
    "session_of": lambda db: api.find_session(db, "ann", "nobody"),
    "shell_folder": lambda db: facts.select_shell_folder(db, 1, facts.ShellFolder("a", 0, KEPT), KEPT)(),
}


@pytest.mark.fast_rows("due-sqlite", "waiting_job", "calls_of_session", "open_chats")
@ONLY_SQLITE
@pytest.mark.parametrize("name", WORKS)
def test_what_was_done_with_is_not_read(db: StateDatabase, name: str) -> None:
    db.write_now(_fill)
    assert _steps(db, WORKS[name]) < 300  # of SQLite's machine: with a look at every row it takes thousands


def _fill(connection: apsw.Connection) -> None:
    chat = chats.get_or_create_chat(connection, HERE)
    for number in range(KEPT):
        row = chats.add_update(connection, HERE, f"u{number}", "{}", 0)
        assert row is not None
        chats.set_update_state(connection, row, "done")
        sessions.create(connection, sessions.NewSession(id=f"s{number}"), "2026")
        api.set_owner(connection, f"s{number}", "ann")
        job_id = jobs.enqueue(connection, jobs.NewJob("review", "{}", subject=f"s{number}"), CLOCK)
        reviews.add(connection, job_id, f"s{number}")
        values = (number, f"c{number}", '{"command":"make"}')
        connection.execute(_CALL, values)
    connection.execute("UPDATE jobs SET state = 'done'")
    connection.execute("INSERT INTO forks SELECT key, 'gone-' || key, 1 FROM sessions")
    chats.queue_messages(connection, chat.id, ["{}"] * KEPT, 0)
    connection.execute("UPDATE gateway_outbox SET state = 'sent'")


def _steps(db: StateDatabase, work: Callable[[apsw.Connection], object]) -> int:
    taken: list[int] = []

    def counted(connection: apsw.Connection) -> int:
        connection.set_progress_handler(lambda: taken.append(1) is not None, 1)
        try:
            work(connection)
        finally:
            connection.set_progress_handler(None)
        return len(taken)

    return db.write_now(counted)
