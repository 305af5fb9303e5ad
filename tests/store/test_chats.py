"""The gateway's two boxes: what was done with is kept for two weeks and costs nothing meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest

from whet.store import chats
from whet.store.chats import Place
from whet.store.database import Database

HERE = Place("board", "1", "", "7")


@pytest.mark.parametrize(
    "work",
    [
        lambda db: chats.waiting(db, 1),
        lambda db: chats.open_chats(db, ["board"]),
        lambda db: chats.replace_waiting(db, 1, "m1", "{}"),
        lambda db: chats.finish_begun(db, 1),
        lambda db: chats.drop_waiting(db, 1, 5_000),
        lambda db: chats.due(db, "board"),
        lambda db: chats.next_out(db, "board", 1),
        lambda db: chats.has_out(db, 1),
        lambda db: chats.sort_out(db, "board"),
    ],
    ids="waiting open_chats replace_waiting finish_begun drop_waiting due next_out has_out sort_out".split(),
)
def test_what_was_done_with_is_not_read_again(db: Database, work: Callable[[apsw.Connection], object]) -> None:
    def fill(connection: apsw.Connection) -> int:
        chat = chats.chat_at(connection, HERE)
        for number in range(500):
            row = chats.receive(connection, HERE, f"u{number}", "{}", 0)
            assert row is not None
            chats.mark(connection, row, "done")
        chats.post(connection, chat.id, ["{}"] * 500, 0)
        connection.execute("UPDATE gateway_outbox SET state = 'sent'")
        return chat.id

    assert db.write_now(fill) == 1
    assert _steps(db, work) < 100  # of SQLite's machine: with a look at every row it takes thousands


def _steps(db: Database, work: Callable[[apsw.Connection], object]) -> int:
    taken: list[int] = []

    def counted(connection: apsw.Connection) -> int:
        connection.set_progress_handler(lambda: taken.append(1) is not None, 1)
        try:
            work(connection)
        finally:
            connection.set_progress_handler(None)
        return len(taken)

    return db.write_now(counted)
