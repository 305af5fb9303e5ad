"""Who reads a session's events on from a number misses none: they are numbered as they are committed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from whet.contract.events import Notice
from whet.postgres.connection import PostgresConnection, connect
from whet.store.team import TeamDatabase
from whet.team import events

_WAIT_S = 20.0
_DONE = "INSERT INTO team_turns (id, session, body, state, reason) VALUES ('t', 's', '', 'done', 'crashed')"


@pytest.fixture
def database(url: str) -> Iterator[TeamDatabase]:
    with closing(TeamDatabase.open_url(url)) as opened:
        yield opened


@pytest.fixture
def other(url: str, database: TeamDatabase) -> Iterator[Any]:
    """Another process's connection, in whose transaction something has happened."""
    with closing(connect(url)) as raw:
        raw.execute("BEGIN")
        yield PostgresConnection(raw, {})


def end(connection: Any) -> None:
    events.write_end(connection, ("t", "s"), "cancelled")


def tell_left(connection: Any) -> None:
    connection.raw.execute(_DONE)
    events.write_lost_ends(connection)


@pytest.mark.parametrize("write", [end, tell_left])
async def test_an_event_waits_for_those_of_its_session_that_have_a_number_and_for_no_others(
    database: TeamDatabase, other: Any, write: Callable[[Any], None]
) -> None:
    def bodies() -> list[str]:
        rows = database.read_now(lambda db: db.execute("SELECT session, body FROM team_events ORDER BY id"))
        return [f"{session}: {json.loads(body)['text'] or 'end'}" for session, body in rows]

    def waits() -> bool:
        sql = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return database.read_now(lambda db: db.execute(sql).fetchone()) is not None

    write(other)
    late, soon = events.EventWriter(database, 0.0), events.EventWriter(database, 0.0)
    late.enqueue("s", Notice("a"))
    late.enqueue("r", Notice("b"))
    async with asyncio.timeout(_WAIT_S):
        while not waits():
            await asyncio.sleep(0.005)
        soon.enqueue("q", Notice("c"))
        await soon.drain()
        assert bodies() == ["q: c"]
        other.raw.execute("COMMIT")
        await late.drain()
    assert sorted(bodies()[:2]) == ["q: c", "s: end"] and bodies()[2:] == ["s: a", "r: b"]
