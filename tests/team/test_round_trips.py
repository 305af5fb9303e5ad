"""How often a transaction waits for the server, counted by a proxy in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import apsw
import pytest
from benchmarks.team_turns import SlowLine, count_statements

from tests.store.support import USAGE, answer, asking, finish, new_log, user
from whet.agent.session import shell_folder
from whet.clock import SystemClock
from whet.sqlite.lane import ScopedWrite
from whet.store.sessions import freeze_prefix, read_prefix
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript

INSERT = "INSERT INTO moved (origin, part, name, at) VALUES (?, '', ?, '')"
COUNT = "SELECT count(*) FROM moved WHERE origin = ?"


class Far:
    """A team's database, and how often its client waited for it."""

    def __init__(self, url: str) -> None:
        port = urlsplit(url).port
        assert port is not None
        self.line = SlowLine(port)
        self.database = TeamDatabase.open_url(url.replace(f":{port}/", f":{self.line.port}/"), lease_s=600.0)
        self._before = 0

    def waits(self) -> int:
        """Return how often the client has waited since the last call."""
        before, self._before = self._before, self.line.round_trips
        return self._before - before


@pytest.fixture
def far(url: str) -> Iterator[Far]:
    there = Far(url)
    with closing(there.database):
        yield there


def test_a_transaction_waits_once_and_once_more_for_each_result(far: Far) -> None:
    def write(connection: apsw.Connection, origin: str, names: str = "abc") -> None:
        for name in names:
            connection.execute(INSERT, (origin, name))

    def read_between(connection: apsw.Connection, origin: str) -> list[int]:
        before = connection.execute(COUNT, (origin,))
        write(connection, origin, "def")
        after = connection.execute(COUNT, (origin,))
        rows = [*before.fetchall(), *after.fetchall()]
        connection.execute("DELETE FROM moved WHERE origin = ?", (origin,))
        return [row[0] for row in rows]

    waits: list[tuple[int, object]] = []
    for origin in "xyz":
        for work in (write, read_between):
            result = far.database.write_now(
                ScopedWrite("moves", lambda db, work=work, origin=origin: work(db, origin))
            )
            waits.append((far.waits(), result))
    assert waits[-2:] == [(1, None), (2, [3, 6])]


def test_a_read_of_several_statements_waits_once(far: Far) -> None:
    def look(connection: apsw.Connection) -> tuple[int, int]:
        cursors = connection.execute(COUNT, ("x",)), connection.execute(COUNT, ("y",))
        first, second = (cursor.fetchall()[0][0] for cursor in cursors)
        return first, second

    far.database.read_now(look)
    far.waits()
    assert far.database.read_now(look) == (0, 0) and far.waits() == 1


async def test_a_session_is_opened_and_gets_its_prefix_in_one_wait_each(far: Far) -> None:
    log = await new_log(far.database, SystemClock())
    session_id, texts = log.session.id, ("a prompt", "[]")
    waits: list[int] = []
    for _ in range(2):  # connections are opened and statements translated
        far.waits()
        await Transcript.open(far.database, session_id, SystemClock())
        waits.append(far.waits())
        await far.database.append(ScopedWrite(session_id, lambda db: freeze_prefix(db, session_id, *texts)))
        waits.append(far.waits())
    assert far.database.read_now(lambda db: read_prefix(db, session_id)) == texts
    assert waits[2:] == [1, 1]


async def test_a_turn_with_one_call_waits_ten_times(far: Far) -> None:
    folders: list[tuple[str, int]] = []

    async def turn(log: Transcript) -> list[int]:
        waits = [far.waits()]
        record = await log.begin_turn(user("do it"))
        waits.append(far.waits())
        await log.append_reply(record, asking("a"), USAGE, "m")
        (call,) = log.open_calls(record)
        folders.append((shell_folder(log), far.waits()))
        await finish(log, record, call)
        await log.append_reply(record, answer("done"), USAGE, "m")
        waits.append(far.waits())
        await log.end_turn(record, "answered", "")
        waits.append(far.waits())
        return waits[1:]

    log = await new_log(far.database, SystemClock())
    await turn(log)
    begin, steps, end = await turn(log)
    assert begin == 1 and steps <= 2 and end == 1
    assert folders[0] == ("", 1), "the wait of the reply's commit alone"
    for _ in range(2):
        far.waits()
        await log.writer.refresh()
        assert (shell_folder(log), log.live.accepted, log.live.rewound_turns) == ("", [], [])
    assert far.waits() == 1, "what a turn begins with is one message"


@pytest.mark.slow
def test_a_turn_with_one_call_costs_40_statements_and_12_round_trips_at_most() -> None:
    """Events are written every 50 ms: on a busy machine a turn may take longer, so three tries."""
    tries = (count_statements() for _ in range(3))
    assert any(all(cost.statements <= 40 and cost.round_trips <= 12 for cost in costs) for costs in tries)
