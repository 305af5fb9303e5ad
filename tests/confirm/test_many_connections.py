"""A caller that opens as many connections as it can leaves room for people and for health, and long counts
delay no other call."""

from __future__ import annotations

import resource
import selectors
import socket
from contextlib import ExitStack

import apsw
import pytest

from tests.confirm.process import Served
from tests.confirm.running import SUBMIT, Running

FILES = 256


@pytest.fixture
def served(tmp_path):
    with Served(tmp_path) as served:
        assert served.process is not None
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        yield served


def connect(served: Served, stack: ExitStack, head: str = "") -> socket.socket:
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20))
    sock.sendall(head.encode())
    return sock


def check_that_people_decide(served: Served) -> None:
    assert served.call("GET", "/health")[0] == 200
    status, asked = served.call("POST", "/confirm", dict(SUBMIT), role="submit")
    assert status == 202
    assert served.call("POST", f"/confirm/{asked['id']}/deny", {}, role="approve")[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["streams", "waits"])
def test_one_agent_s_open_calls_shut_no_one_out(served, kind):
    path = "/events"
    if kind == "waits":
        path = f"/confirm/{served.call('POST', '/confirm', dict(SUBMIT), role='submit')[1]['id']}?wait=200"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {served.token('submit')}\r\n\r\n"
    with ExitStack() as stack:
        answers = [connect(served, stack, head) for _ in range(FILES // 4)]
        for _ in range(FILES):  # each is answered before the next, so that none is only queued
            refused = connect(served, stack, head)
            assert b" 429 " in refused.recv(100)
        check_that_people_decide(served)
        assert len(answers) == FILES // 4


@pytest.mark.slow
def test_idle_connections_shut_no_one_out(served):
    head = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(FILES * 2):
            assert b" 200 " in connect(served, stack, head).recv(100)
        check_that_people_decide(served)


def expire(server: Running, count: int) -> None:
    """Store `count` requests that ran out just now, copies of one that was submitted."""
    server.client("submit", "agent").post("/confirm", json=SUBMIT)
    at_s = server.service.timeline.now_s()
    cells = {"seq": "NULL", "id": "printf('%022d', n)", "status": "'expired'", "rate_number": "NULL"}

    def copy(db: apsw.Connection) -> None:
        names = [str(row[1]) for row in db.execute("PRAGMA table_info(requests)")]
        picked = ", ".join(cells.get(name, str(at_s) if name == "resolved_at" else name) for name in names)
        numbers = f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count})"
        db.execute(f"INSERT INTO requests {numbers} SELECT {picked} FROM requests, c WHERE seq = 1")

    server.service.database.write_now(copy)


@pytest.mark.slow
def test_a_call_that_needs_no_count_is_answered_while_metrics_are_counted(server):
    expire(server, 20_000)
    for _ in range(20):  # the second call begins later, and ends first unless it had to wait
        with ExitStack() as stack, selectors.DefaultSelector() as ready:
            for name in ("/metrics", "/keys"):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
                sock.sendall(f"GET {name} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                ready.register(sock, selectors.EVENT_READ, name)
            if [key.data for key, _ in ready.select(20)] == ["/keys"]:
                return
    pytest.fail("each call waited for the count before it")
