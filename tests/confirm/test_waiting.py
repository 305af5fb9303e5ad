from __future__ import annotations

import asyncio
import http.server
import json
import socket
import threading
import time
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tests.confirm.running import SUBMIT, ManualClock, Running, answered, field_of, request
from tests.support import ended, wait_until
from whet.clock import SystemClock
from whet.web.connection import WebConnection
from whet.web.guard import make_site_address
from whet.web.protocol import LimitedProtocol
from whet.web.sessions import Sessions
from whet_confirm import tokens
from whet_confirm.callbacks import signatures
from whet_confirm.client import ConfirmClient
from whet_confirm.http import heartbeat
from whet_confirm.records import Caller
from whet_confirm.service import ConfirmService
from whet_confirm.web.accounts import SessionRows, TokenAccounts
from whet_confirm.web.live import RequestStream


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("shared"), rate=10_000, private_callbacks=True) as running:
        yield running


def asked(agent, **changes):
    return agent.post("/confirm", json=SUBMIT | changes).json()


def later(call):
    """Run `call` on a thread; gives the thread and the list that its result will be in."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    return thread, results


def test_a_long_poll_ends_with_the_decision(server, agent, alice):
    submitted = asked(agent)
    thread, results = later(lambda: agent.get(f"/confirm/{submitted['id']}?wait=60"))
    wait_until(lambda: server.service.hub.waiting == 1)
    alice.post(submitted["approve_url"])
    ended(thread, "the answer")  # before the minute that it waits for
    assert results[0].json()["status"] == "approved"
    assert server.service.hub.waiting == 0


def test_a_long_poll_ends_with_its_own_time_and_odd_times_are_no_wait(server, agent):
    submitted = asked(agent)
    for wait in ("0.05", "-1", "nan", "x", ""):
        assert agent.get(f"/confirm/{submitted['id']}?wait={wait}").json()["status"] == "pending"


@pytest.mark.slow
def test_a_long_poll_ends_at_the_deadline_without_a_sweeper(tmp_path):
    clock = ManualClock()
    with Running(tmp_path, clock=clock, upkeep=False) as server:
        agent = server.client("submit", "agent")
        submitted = asked(agent, timeout_seconds=30)
        clock.pass_by(29.9)
        thread, results = later(lambda: agent.get(f"/confirm/{submitted['id']}?wait=60"))
        wait_until(lambda: server.service.hub.waiting == 1)
        clock.pass_by(1)
        ended(thread, "the answer")
        assert results[0].json()["status"] == "expired"


def test_a_client_that_hangs_up_is_not_waited_for(server, agent):
    submitted = asked(agent)
    raw = request(
        server.port,
        "GET",
        f"/confirm/{submitted['id']}?wait=60",
        b"",
        f"Authorization: {agent.headers['authorization']}",
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(raw)
        wait_until(lambda: server.service.hub.waiting == 1)
    wait_until(lambda: server.service.hub.waiting == 0)


def read_events(client, count, **headers):
    """Read `count` events of the stream, and its ids; a stream that has fewer is an error, not a wait."""
    found = []
    deadline = time.monotonic() + 40
    with client.stream("GET", "/events", headers=headers, timeout=30) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            assert time.monotonic() < deadline, f"only {len(found)} of {count} events came"
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                if len(found) == count:
                    break
    return found


def test_the_stream_goes_on_where_a_client_left_off(server, agent, alice):
    start = server.service.log.state().size
    submitted = asked(agent)
    alice.post(submitted["deny_url"], json={"reason": "no"})
    first = read_events(alice, 1, **{"last-event-id": str(start)})[0]
    assert (first["kind"], first["request_id"]) == ("submitted", submitted["id"])
    rest = read_events(alice, 2, **{"last-event-id": str(first["id"])})
    assert [event["kind"] for event in rest] == ["vote", "decided"]
    assert rest[1]["data"]["reason"] == "no"


def test_a_live_stream_shows_a_submitter_only_its_own(server, agent, alice):
    other = server.client("submit", "other")
    start = server.service.log.state().size
    mine = later(lambda: read_events(agent, 1, **{"last-event-id": str(start)}))
    everybodys = later(lambda: read_events(alice, 2, **{"last-event-id": str(start)}))
    wait_until(lambda: len(server.service.hub.streams) >= 2)
    foreign, own = asked(other), asked(agent)
    for thread, _ in (mine, everybodys):
        ended(thread, "the events", 60)
    assert [event["request_id"] for event in mine[1][0]] == [own["id"]]
    assert [event["request_id"] for event in everybodys[1][0]] == [foreign["id"], own["id"]]


def test_a_stream_ends_with_its_token_also_in_busy_times(server):
    secret = server.token("audit", "leaver")
    headers = {"authorization": f"Bearer {secret}"}
    agent = server.client("submit", "agent")
    with server.client().stream("GET", "/events", headers=headers) as answer:
        lines = answer.iter_lines()
        next(lines)
        asked(agent)
        token_id = server.service.authenticate(secret).token_id
        server.change(lambda tx: tokens.revoke(tx, token_id, by="test"))
        asked(agent)
        seen = [line for line in lines if line.startswith("event: ")]  # it ends
    assert "event: token_revoked" not in seen


def test_an_open_page_hears_that_something_changed_until_its_person_signs_out(server):
    agent, page = server.client("submit", "agent"), server.signed_in("alice")
    assert server.page().get("/live").status_code == 403
    assert page.head("/live").headers["content-type"].startswith("text/event-stream")
    start = server.service.log.state().size
    submitted = asked(agent)
    with page.stream("GET", "/live", params={"after": start}) as answer:
        lines = answer.iter_lines()
        data = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        assert data == {"requests": [submitted["id"]], "kinds": ["submitted"]}
        csrf = field_of(page.get("/").text, "csrf")
        assert page.post("/logout", data={"csrf": csrf}).status_code == 303
        asked(agent)
        assert not [line for line in lines if line.startswith("data: ")]  # it ends


async def listening(service: ConfirmService, secret: str) -> tuple[RequestStream, Sessions, Request]:
    """What an open page listens to, and its question."""
    accounts = TokenAccounts(service, is_open=False)
    sessions = Sessions(accounts, SessionRows(service), SystemClock(), make_site_address("127.0.0.1"), "live")
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/live",
        "query_string": b"after=0",
        "headers": [],
        "extensions": {"whet.line": WebConnection()},
    }
    entered = Response()
    assert await sessions.sign_in(Request(scope), secret, entered)
    scope["headers"] = [(b"cookie", entered.headers["set-cookie"].partition(";")[0].encode())]
    return RequestStream(service, sessions), sessions, Request(scope)


def test_a_page_whose_person_signed_out_hears_nothing_of_what_is_there_already(server):
    """As in busy times, in which there is always something that needs no waiting for."""
    service, secret = server.service, server.token("approve", "alice")
    asked(server.client("submit", "agent"))

    async def listen() -> list[Any]:
        stream, sessions, request = await listening(service, secret)
        opened = await stream.serve(request)
        await sessions.sign_out(request)
        assert isinstance(opened, StreamingResponse)
        return [piece async for piece in opened.body_iterator]

    assert server.run(listen()) == [b"retry: 2000\n\n"]


def test_two_hundred_pages_listen_at_once(server):
    async def listen() -> list[int]:
        stream, _, request = await listening(server.service, server.token("approve", "alice"))
        opened = [cast("Any", await stream.serve(request)).body_iterator for _ in range(200)]
        for one in opened[1:]:
            await anext(one)
        codes = [(await stream.serve(request)).status_code]
        await anext(opened[0])
        codes.append((await stream.serve(request)).status_code)
        await opened[0].aclose()
        codes.append((await stream.serve(request)).status_code)
        for one in opened:
            await one.aclose()
        return codes

    assert server.run(listen()) == [200, 503, 200]


def test_old_events_come_from_the_database(server):
    alice = server.client("approve", "alice")
    for _ in range(3):
        asked(server.client("submit", "agent"))
    server.service.hub.recent.clear()
    events = read_events(alice, 3, **{"last-event-id": "0"})
    assert [event["id"] for event in events] == [1, 2, 3]


class Receiver:
    """A webhook receiver that answers with the given codes in turn."""

    def __init__(self, *codes: int) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        codes_left = list(codes)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 20  # a caller that sends half a request holds nobody up

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append(({key.lower(): value for key, value in self.headers.items()}, body))
                self.send_response(codes_left.pop(0) if codes_left else 200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self._http = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/hook?x=1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        ended(self._thread, "the receiver's end")
        self._http.server_close()


@pytest.mark.slow
def test_a_webhook_is_signed_as_the_standard_says_and_tried_again(tmp_path):
    clock = ManualClock()
    with Receiver(500, 200) as receiver, Running(tmp_path, private_callbacks=True, clock=clock) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        submitted = asked(agent, callback_url=receiver.url)
        alice.post(submitted["approve_url"])
        wait_until(lambda: server.rows("SELECT attempts FROM callbacks") == [(1,)])
        assert server.client("audit").get("/callbacks").json()["callbacks"][0]["error"] == "answered 500"
        clock.pass_by(6)
        wait_until(lambda: server.rows("SELECT status FROM callbacks") == [("delivered",)])
        (first, body), (second, again) = receiver.got
        assert body == again and first["webhook-id"] == second["webhook-id"]
        assert first["webhook-timestamp"] != second["webhook-timestamp"]
        secret = (server.paths.folder / "webhook.secret").read_text().strip()
        number, at_s = first["webhook-id"], int(first["webhook-timestamp"])
        signed = signatures(secret, server.service.key, number, at_s, body.decode())
        assert first["webhook-signature"] == signed
        shown = json.loads(body)
        assert shown["type"] == "confirmation.approved" and shown["data"]["digest"] == submitted["digest"]


@pytest.mark.slow
def test_a_webhook_that_never_arrives_becomes_a_dead_letter(tmp_path):
    clock = ManualClock()
    service = Running(tmp_path, private_callbacks=True, clock=clock)
    with Receiver(500, 500, 200) as receiver, service as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        alice.post(asked(agent, callback_url=receiver.url)["deny_url"])
        wait_until(lambda: server.rows("SELECT attempts FROM callbacks") == [(1,)])
        clock.pass_by(25 * 3600)
        wait_until(lambda: server.rows("SELECT status FROM callbacks") == [("dead",)])
        revived = server.client("admin").post("/callbacks/1/retry")
        assert revived.status_code == 200
        wait_until(lambda: server.rows("SELECT status FROM callbacks") == [("delivered",)])


@pytest.mark.slow
def test_private_addresses_get_no_webhooks(tmp_path):
    with Receiver() as receiver, Running(tmp_path) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        alice.post(asked(agent, callback_url=receiver.url)["approve_url"])
        wait_until(lambda: server.rows("SELECT status FROM callbacks") == [("dead",)])
        assert not receiver.got
        assert "private address" in server.rows("SELECT error FROM callbacks")[0][0]


def test_amending_voids_votes_and_needs_the_requesters_consent(server, agent, alice, bob):
    plain, open_to = asked(agent), asked(agent, accepts_edits=True)
    change, seen = {"details": {"version": "1.4.3"}}, {"digest": open_to["digest"]}
    refused = alice.post(f"/confirm/{plain['id']}/amend", json=change | {"digest": plain["digest"]})
    assert refused.status_code == 403
    amended = alice.post(f"/confirm/{open_to['id']}/amend", json=change | seen)
    assert amended.status_code == 200 and amended.json()["digest"] != open_to["digest"]
    stale = bob.post(open_to["approve_url"], json={"digest": open_to["digest"]})
    assert stale.status_code == 409
    assert bob.post(open_to["approve_url"], json={"digest": amended.json()["digest"]}).status_code == 200
    record = agent.get(f"/confirm/{open_to['id']}").json()
    assert record["details"] == {"version": "1.4.3"} and record["original_details"] == {"version": "1.4.2"}
    use = f"/confirm/{open_to['id']}/consume"
    assert agent.post(use, json={"digest": open_to["digest"]}).status_code == 409
    assert agent.post(use, json={"digest": record["digest"]}).status_code == 200


def test_a_look_at_what_was_changed_meanwhile_is_none(server):
    submitted = asked(server.client("submit", "agent"), accepts_edits=True)
    bob, seen = server.client("approve", "bob"), server.stored(submitted["id"])
    change = {"details": {"version": "2"}, "digest": submitted["digest"]}
    assert bob.post(f"/confirm/{submitted['id']}/amend", json=change).status_code == 200
    alice, views = Caller("alice", "approve"), "SELECT count(*) FROM views WHERE request_id = ?"
    server.run(server.service.mark_viewed(seen, alice))
    assert server.rows(views, submitted["id"]) == [(0,)]
    server.run(server.service.mark_viewed(server.stored(submitted["id"]), alice))
    assert server.rows(views, submitted["id"]) == [(1,)]


SLOW = [
    b"",
    b"GET /health HTT",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    b"POST /confirm HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
    b"POST /confirm HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
]


def cut_off(server, slow, wait_s):
    token = server.token("submit", "slow").encode()
    head = slow.replace(b"Host:", b"Authorization: Bearer %s\r\nHost:" % token)
    status, answer = answered(server.raw(head, wait_s=wait_s))
    assert status == 408 and "too slowly" in answer["error"]


@pytest.mark.parametrize("slow", SLOW)
def test_slow_heads_and_bodies_are_answered_once_and_cut_off(server, monkeypatch, slow):
    monkeypatch.setattr(LimitedProtocol, "head_time_s", 0.05)
    monkeypatch.setattr(LimitedProtocol, "request_time_s", 0.05)
    cut_off(server, slow, 30)


@pytest.mark.soak
@pytest.mark.parametrize("slow", SLOW)
def test_slow_heads_are_cut_off_after_ten_seconds_and_bodies_after_thirty(server, slow):
    began = time.monotonic()
    cut_off(server, slow, 40)
    assert abs(time.monotonic() - began - (30 if b"POST" in slow else 10)) < 2


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"BREW /confirm HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
        (b"DELETE /confirm HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 405),
        (b"GET /confirm/../audit HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 404),
        (b"GET // HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 404),
        (b"POST /confirm HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 401),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nX: " + b"a" * 70_000, 431),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 200),
        (b"HEAD /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 200),
    ],
)
def test_odd_requests_get_an_answer(server, raw, status):
    assert answered(server.raw(raw))[0] == status


def test_an_encoded_slash_in_an_id_leads_nowhere(server, agent, alice):
    submitted = asked(agent)
    for path in (
        f"/confirm/{submitted['id']}%2Fapprove",
        f"/confirm%2F{submitted['id']}/approve",
        f"/confirm/{submitted['id']}/",
    ):
        raw = request(server.port, "POST", path, b"{}", f"Authorization: {alice.headers['authorization']}")
        assert answered(server.raw(raw))[0] in (404, 405)
    assert agent.get(f"/confirm/{submitted['id']}").json()["status"] == "pending"


def test_pipelined_requests_are_answered_in_order(server, agent):
    ids = [asked(agent)["id"] for _ in range(3)]
    auth = f"Authorization: {agent.headers['authorization']}"
    *first, last = (request(server.port, "GET", f"/confirm/{request_id}", b"", auth) for request_id in ids)
    raw = b"".join(first).replace(b"Connection: close\r\n", b"") + last
    found = [part[:22].decode() for part in server.raw(raw).split(b'{"id":"')[1:]]
    assert found == ids


@pytest.mark.slow
def test_beats_wake_no_stream_and_look_at_its_token(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.5)
    with Running(tmp_path) as server:
        secret = server.token("audit", "listener")
        headers = {"authorization": f"Bearer {secret}"}
        with server.client().stream("GET", "/events", headers=headers, timeout=60) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if line == ": beat")
            waiting = set(server.service.hub.streams)
            next(line for line in lines if line == ": beat")
            assert server.service.hub.streams == waiting  # the same future: nobody was woken
            caller = server.service.authenticate(secret)
            assert caller is not None
            # its time runs out, which is no event
            server.write("UPDATE tokens SET expires_at = 1.0 WHERE id = ?", caller.token_id)
            assert {*lines} <= {": beat", ""}  # it ends
        wait_until(lambda: not server.service.hub.streams)


def test_a_client_that_waits_takes_a_rotated_token(server, tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_HOME", str(tmp_path))
    monkeypatch.delenv("CONFIRMATION_TOKEN", raising=False)
    file = tmp_path / "confirm" / "submit.token"
    file.parent.mkdir(exist_ok=True)
    file.write_text(server.token("submit", "rotating"))
    ((token_id,),) = server.rows("SELECT id FROM tokens WHERE name = ?", "rotating")

    async def ask_around_a_rotation() -> str:
        async with ConfirmClient(server.url) as client:
            ticket = await client.submit("deploy", "Deploy")
            _, secret = server.change(lambda tx: tokens.rotate(tx, token_id, by="owner"))
            file.write_text(secret)
            return str((await client.status(ticket.id))["status"])

    assert asyncio.run(ask_around_a_rotation()) == "pending"
