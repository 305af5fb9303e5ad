"""Plain rows over one connection: what fails is taken back, and the connection goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count

import apsw
import psycopg
import pytest

from tests.team.cluster import Cluster
from whet.contract.errors import StoreBusy
from whet.postgres.connection import PostgresConnection, connect
from whet.store.rows import CALL, MESSAGE

INSERT = "INSERT INTO moved (origin, part, name, at) VALUES (?, ?, ?, ?)"
REMOVE = "DELETE FROM moved WHERE name = ?"


@pytest.fixture
def connection(url: str) -> Iterator[PostgresConnection]:
    with closing(connect(url)) as raw:
        yield PostgresConnection(raw, {})


def send(connection: PostgresConnection, statements: list[tuple[str, tuple[str, ...]]]) -> None:
    connection.begin()
    try:
        for sql, values in statements:
            connection.execute(sql, values)
        connection.end()
    finally:
        connection.roll_back()


def names(connection: PostgresConnection) -> list[str]:
    rows = connection.execute("SELECT name FROM moved ORDER BY name")
    return [row[0] for row in rows.fetchall()]


def test_a_failing_batch_writes_nothing_and_the_next_ones_go_through(connection: PostgresConnection) -> None:
    first = INSERT, ("o", "p", "a", "")
    send(connection, [first])
    for again in range(3):
        with pytest.raises(apsw.ConstraintError):
            send(connection, [(INSERT, ("o", "p", f"x{again}", "")), first, (REMOVE, ("a",))])
        send(connection, [(INSERT, ("o", "p", f"b{again}", "")), (REMOVE, ("none",))])
    assert names(connection) == ["a", "b0", "b1", "b2"]


def test_statements_that_the_server_has_forgotten_are_prepared_again(connection: PostgresConnection) -> None:
    send(connection, [(INSERT, ("o", "p", "a", ""))])
    connection.raw.execute("DEALLOCATE ALL")
    send(connection, [(INSERT, ("o", "p", "b", "")), (REMOVE, ("a",))])
    assert names(connection) == ["b"]


def test_neighbouring_calls_are_one_statement_and_each_has_its_result(connection: PostgresConnection) -> None:
    connection.raw.execute("SET whet.lease_s = '20'")
    connection.begin()
    connection.execute("SELECT whet_commit(?, ?)", ("lane", 1))
    first = connection.execute("SELECT whet_take(?, ?, ?, ?, ?)", (7, "mine", "host", 1, "p"))
    connection.execute(INSERT, ("o", "p", "a", ""))
    second = connection.execute("SELECT whet_take(?, ?, ?, ?, ?)", (7, "another's", "host", 2, "q"))
    connection.execute("SELECT whet_add_message(?, ?, ?, ?, ?, ?)", (8, 1, 0, 0, "x", None))
    assert first.received_row is None
    connection.end()
    assert first.received_row is not None and first.received_row[0] > 0 and second.received_row == (None,)
    assert connection.execute("SELECT content FROM messages").fetchall() == [("x",)]
    listed = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT whet_%'"
    assert connection.execute(listed).fetchall() == [(2,)]


def test_joined_rows_are_all_written_or_none(connection: PostgresConnection) -> None:
    message = (1 << 22) + 1, 1, 0, 0, "x", None
    call = 1, 2, 0, 1, 1, "c", "read_file"

    def write() -> None:
        connection.begin()
        try:
            commit = ("lane", next(numbers))
            connection.write_joined("SELECT whet_commit(?, ?)", commit, [(MESSAGE, message), (CALL, call)])
            connection.end()
        finally:
            connection.roll_back()

    numbers = count(1)
    write()
    connection.execute("DELETE FROM messages")
    with pytest.raises(StoreBusy, match="continued this session"):
        write()
    counts = "SELECT (SELECT count(*) FROM messages), (SELECT number FROM team_commits)"
    assert connection.execute(counts).fetchall() == [(0, 1)]


@pytest.mark.slow
def test_a_batch_larger_than_every_buffer_goes_over_whole(connection: PostgresConnection) -> None:
    rows = [(INSERT, ("o", "p", f"{at:04}", "y" * 20_000)) for at in range(1000)]
    send(connection, rows)
    assert len(names(connection)) == 1000


def test_a_connection_that_was_cut_is_an_error_and_not_a_wait(
    connection: PostgresConnection, url: str, cluster: Cluster
) -> None:
    send(connection, [(INSERT, ("o", "p", "a", ""))])
    cluster.cut(url)
    with pytest.raises(psycopg.OperationalError):
        send(connection, [(INSERT, ("o", "p", "b", ""))])
    assert connection.raw.closed
