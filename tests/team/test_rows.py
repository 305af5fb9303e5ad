"""Plain rows over one connection: what fails is taken back, and the connection goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tests.team.cluster import Cluster
from whet.postgres.connection import PostgresConnection, connect
from whet.postgres.rows import RowSender

INSERT = "INSERT INTO moved (origin, part, name, at) VALUES (?, ?, ?, ?)"
REMOVE = "DELETE FROM moved WHERE name = ?"


@pytest.fixture
def sender(url: str) -> Iterator[RowSender]:
    with closing(connect(url, timeout_s=10)) as raw:
        yield RowSender(PostgresConnection(raw, {}))


def names(sender: RowSender) -> list[str]:
    found = sender.connection.execute("SELECT name FROM moved ORDER BY name")
    return [row[0] for row in found.fetchall()]


def test_a_batch_that_fails_writes_nothing_and_the_next_ones_go_through(sender: RowSender) -> None:
    first = INSERT, ("o", "p", "a", "")
    sender.send([first])
    for again in range(3):
        with pytest.raises(psycopg.errors.UniqueViolation):
            sender.send([(INSERT, ("o", "p", f"x{again}", "")), first, (REMOVE, ("a",))])
        sender.send([(INSERT, ("o", "p", f"b{again}", "")), (REMOVE, ("none",))])
    assert names(sender) == ["a", "b0", "b1", "b2"]


def test_statements_that_the_server_has_forgotten_are_prepared_again(sender: RowSender) -> None:
    sender.send([(INSERT, ("o", "p", "a", ""))])
    sender.connection.raw.execute("DEALLOCATE ALL")
    sender.send([(INSERT, ("o", "p", "b", "")), (REMOVE, ("a",))])
    assert names(sender) == ["b"]


@pytest.mark.slow
def test_a_batch_larger_than_every_buffer_goes_over_whole(sender: RowSender) -> None:
    rows = [(INSERT, ("o", "p", f"{at:04}", "y" * 20_000)) for at in range(1000)]
    sender.send(rows)
    assert len(names(sender)) == 1000


def test_a_connection_that_was_cut_is_an_error_and_not_a_wait(
    sender: RowSender, url: str, cluster: Cluster
) -> None:
    sender.send([(INSERT, ("o", "p", "a", ""))])
    cluster.cut(url)
    with pytest.raises(psycopg.OperationalError):
        sender.send([(INSERT, ("o", "p", "b", ""))])
    assert sender.connection.raw.closed
