"""Webhooks beside slow receivers: whoever does not answer delays nobody else."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.confirm.running import Running
from tests.confirm.test_waiting import Receiver, wait_until


@contextlib.contextmanager
def silent(count: int) -> Iterator[list[socket.socket]]:
    """Listeners that take every connection and never answer."""
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64)) for _ in range(count)
        ]
        yield listeners


def submit_many(server: Running, name: str, urls: list[str]) -> None:
    agent = server.client("submit", name)
    for number, url in enumerate(urls):
        request = agent.post(
            "/confirm", json={"action": f"a{number}", "description": "d", "callback_url": url}
        ).json()
        agent.post(f"/confirm/{request['id']}/cancel")


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}/hook"


def delivered(server: Running, name: str) -> int:
    sql = (
        "SELECT count(*) FROM callbacks c JOIN requests r ON r.id = c.request_id"
        " WHERE c.status = 'delivered' AND r.principal = ?"
    )
    return int(server.rows(sql, name)[0][0])


@pytest.mark.slow
def test_receivers_that_never_answer_delay_nobody(tmp_path):
    with (
        silent(20) as listeners,
        Receiver() as quick,
        Running(tmp_path, rate=10_000, private_callbacks=True) as server,
    ):
        # Far more than may be under way at once, to twenty receivers, of one principal and then of another.
        submit_many(server, "greedy", [url_of(listener) for listener in listeners for _ in range(15)])
        wait_until(lambda: len(server.rows("SELECT 1 FROM callbacks WHERE status = 'waiting'")) == 300)
        submit_many(server, "other", [quick.url] * 8)
        wait_until(lambda: delivered(server, "other") == 8)
        submit_many(server, "greedy", [quick.url])  # its own, to one that answers
        wait_until(lambda: delivered(server, "greedy") == 1)
        assert len(server.rows("SELECT 1 FROM callbacks WHERE status = 'waiting'")) == 300


@pytest.mark.slow
def test_a_long_queue_to_one_receiver_hides_no_other(tmp_path):
    with (
        silent(1) as (listener,),
        Receiver() as quick,
        Running(tmp_path, rate=10_000, private_callbacks=True) as server,
    ):
        submit_many(server, "agent", [url_of(listener)])
        names = "message_id, request_id, url, body, created_at, run_after"
        rows = server.rows(f"SELECT {names} FROM callbacks")
        many = f"INSERT INTO callbacks ({names}) VALUES (?, ?, ?, ?, ?, ?)"
        server.change(lambda tx: tx.connection.executemany(many, rows * 9_000))
        submit_many(server, "agent", [quick.url])
        wait_until(lambda: delivered(server, "agent") == 1)


@pytest.mark.slow
def test_a_burst_to_one_receiver_arrives_without_waiting_between(tmp_path):
    with Receiver() as quick, Running(tmp_path, rate=10_000, private_callbacks=True) as server:
        before = threading.active_count()
        submit_many(server, "agent", [quick.url] * 40)
        wait_until(lambda: delivered(server, "agent") == 40)
        assert len(quick.got) == 40 and threading.active_count() - before < 20
