"""Transactions that an engine left open are committed, on its own connections only."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

from whet.context.settling import commit_open_transactions


class Part:
    """A part of the engine, which knows it."""

    def __init__(self, engine: Engine, connection: sqlite3.Connection, part: Part | None = None) -> None:
        self.engine = engine
        self.connection = connection
        self.part = part


class Engine:
    """An engine with a connection that it holds twice, one in a part, and one in an object of others."""

    def __init__(self, file: Path) -> None:
        def opened(name: str) -> sqlite3.Connection:
            connection = sqlite3.connect(file.with_name(name))
            connection.execute("CREATE TABLE t (a)")
            connection.execute("INSERT INTO t VALUES (1)")
            return connection

        self.first = self.same = opened("first")
        deepest = Part(self, opened("deepest"))
        deep = Part(self, opened("deep"), deepest)
        self.part = Part(self, opened("part"), deep)
        self.deeper = lambda: [deep.connection, deepest.connection]
        self.shared = SimpleNamespace(connection=opened("shared"))

    @property
    def connections(self) -> list[sqlite3.Connection]:
        return [self.first, self.part.connection, *self.deeper(), self.shared.connection]


def test_what_it_began_is_committed_once_and_nothing_of_others(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "db")
    assert [connection.in_transaction for connection in engine.connections] == [True] * 5
    assert commit_open_transactions(engine) == 3, "and three levels deep at most"
    assert [connection.in_transaction for connection in engine.connections] == [False] * 3 + [True] * 2
    assert commit_open_transactions(engine) == 0
    for one in engine.connections:
        one.close()
