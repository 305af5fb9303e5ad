"""Where a session's next command begins, as its calls left it."""

from __future__ import annotations

import apsw

from whet.store import facts, sessions
from whet.store.database import StateDatabase
from whet.store.facts import ShellFolder
from whet.store.sessions import NewSession

_CALL = (
    "INSERT INTO tool_calls (session, seq, position, turn, step, call_id, name, facts)"
    " VALUES (?, ?, 0, 1, 1, ?, 'terminal', ?)"
)


def test_the_folder_is_that_of_the_last_call_that_moved_whatever_is_known(db: StateDatabase) -> None:
    def key_of(connection: apsw.Connection) -> int:
        sessions.create(connection, NewSession(id="s"), "2026")
        return sessions.key_of(connection, "s")

    key = db.write_now(key_of)

    def left(seq: int, text: str) -> None:
        db.write_now(lambda connection: connection.execute(_CALL, (key, seq, f"c{seq}", text)))

    def folder(known: ShellFolder, through: int) -> ShellFolder:
        return db.read_now(lambda connection: facts.shell_folder(connection, key, known, through))

    nowhere = folder(ShellFolder(), 0)
    assert nowhere == ShellFolder("", 0, 0)
    left(1, '{"command":"cd a","folder":"a"}')
    left(2, '{"command":"make"}')
    at_two = folder(nowhere, 2)
    assert at_two == ShellFolder("a", 0, 2)
    assert folder(at_two, 3).folder == "a"
    left(4, '{"command":"cd ..","folder":""}')
    assert folder(at_two, 4) == ShellFolder("", 0, 4)

    def rewrite(connection: apsw.Connection) -> None:
        connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (key,))
        connection.execute("DELETE FROM tool_calls WHERE session = ?", (key,))

    db.write_now(rewrite)  # calls that were taken back left nothing
    assert folder(at_two, 5) == ShellFolder("", 1, 5)
