"""Attacks on the API and the page as they come over the wire: none of them decides anything or is misread."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import threading
from contextlib import aclosing, closing
from typing import Any, ClassVar

import pytest

from tests.confirm.process import Served
from tests.confirm.running import SUBMIT, ManualClock, Running, answered
from tests.confirm.test_sight import form, page_of
from whet.http1.client import HttpClient, Limits
from whet_confirm.callbacks import Callbacks


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("hostile"), rate=100_000, private_callbacks=True) as running:
        running.agent = running.client("submit", "agent")
        running.people = {name: running.client("approve", name) for name in ("alice", "bob")}
        yield running


VERBS = ("approve", "deny", "amend", "consume", "report", "cancel")


def ask(server: Running, **more: object) -> dict[str, Any]:
    return server.agent.post("/confirm", json=SUBMIT | more).json()


def tokens(server: Running) -> tuple[str, str]:
    return server.agent.headers["authorization"], server.people["alice"].headers["authorization"]


_SHORT = {
    "CALL": "POST /confirm/ID/approve HTTP/1.1\nHost: 127.0.0.1\n",
    "WHO": "Authorization: ALICE",
    "BODY": "Content-Length: 2\n\n{}",
}

# Heads that could be read in two ways, each sent with a right approve token. What is in capitals is put in.
HEADS = {
    "two tokens, the agent's first": "CALLAuthorization: AGENT\nWHO\nBODY",
    "two tokens, the person's first": "CALLWHO\nAuthorization: AGENT\nBODY",
    "a foreign origin before ours": "CALLOrigin: http://evil.example\nOrigin: http://127.0.0.1\nWHO\nBODY",
    "a foreign site before ours": "CALLSec-Fetch-Site: cross-site\nSec-Fetch-Site: same-origin\nWHO\nBODY",
    "two lengths": "CALLWHO\nContent-Length: 2\nContent-Length: 5\n\n{}",
    "a list of lengths": "CALLWHO\nContent-Length: 2, 2\n\n{}",
    "a signed length": "CALLWHO\nContent-Length: +2\n\n{}",
    "a negative length": "CALLWHO\nContent-Length: -2\n\n{}",
    "a length in sixteens": "CALLWHO\nContent-Length: 0x2\n\n{}",
    "a length beyond counting": "CALLWHO\nContent-Length: 99999999999999999999999999\n\n{}",
    "a length beside chunks": "CALLWHO\nContent-Length: 2\nTransfer-Encoding: chunked\n\n2\n{}\n0\n\n",
    "a coding that only ends like chunked": "CALLWHO\nTransfer-Encoding: xchunked\n\n2\n{}\n0\n\n",
    "chunked is not the last coding": "CALLWHO\nTransfer-Encoding: chunked, identity\n\n2\n{}\n0\n\n",
    "a chunk of negative size": "CALLWHO\nTransfer-Encoding: chunked\n\n-2\n{}\n0\n\n",
    "a chunk's size with a prefix": "CALLWHO\nTransfer-Encoding: chunked\n\n0x2\n{}\n0\n\n",
    "a chunk's size beyond counting": "CALLWHO\nTransfer-Encoding: chunked\n\nfffffffffffffffff\n{}\n0\n\n",
    "a chunk longer than it says": "CALLWHO\nTransfer-Encoding: chunked\n\n1\n{}\n0\n\n",
    "a blank before the colon": "CALLAuthorization : ALICE\nBODY",
    "a header without a name": "CALL: x\nWHO\nBODY",
    "a NUL in a header": "CALLX-A: a\0b\nWHO\nBODY",
    "a method in small letters": "post /confirm/ID/approve HTTP/1.1\nHost: 127.0.0.1\nWHO\nBODY",
    "a tab for a blank": "POST\t/confirm/ID/approve\tHTTP/1.1\nHost: 127.0.0.1\nWHO\nBODY",
    "a version that is none": "POST /confirm/ID/approve HTTP/1.10\nHost: 127.0.0.1\nWHO\nBODY",
    "HTTP/2 without having asked": "PRI * HTTP/2.0\n\nSM\n\n",
    "a user in the host": "POST /confirm/ID/approve HTTP/1.1\nHost: 127.0.0.1@evil.example\nWHO\n"
    "Connection: close\nBODY",
    "no host at all, and another in the address": "POST http://evil.example/confirm/ID/approve HTTP/1.1\n"
    "WHO\nBODY",
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_two_programs_read_differently_decides_nothing(server, name):
    request = ask(server)
    agent, alice = tokens(server)
    text = HEADS[name]
    for short, whole in _SHORT.items():
        text = text.replace(short, whole)
    text = text.replace("ID", request["id"]).replace("AGENT", agent).replace("ALICE", alice)
    answer = server.raw(text.replace("\n", "\r\n").encode("latin-1"), wait_s=20)
    assert server.stored(request["id"]).is_pending, answer
    assert answer.count(b"HTTP/1.1 ") == 1 and re.match(rb"HTTP/1\.1 4\d\d ", answer), answer


# Ways of naming the call or the caller that a proxy, a framework or a browser would understand.
CALLS: dict[str, tuple[str, str, dict[str, str]]] = {
    "GET": ("GET", "/confirm/ID/approve", {}),
    "HEAD": ("HEAD", "/confirm/ID/approve", {}),
    "PUT": ("PUT", "/confirm/ID/approve", {}),
    "another method named in a header": ("GET", "/confirm/ID/approve", {"X-HTTP-Method-Override": "POST"}),
    "another method named in the query": ("GET", "/confirm/ID/approve?_method=POST", {}),
    "a slash at the end": ("POST", "/confirm/ID/approve/", {}),
    "two slashes": ("POST", "//confirm/ID/approve", {}),
    "dots": ("POST", "/x/../confirm/ID/approve", {}),
    "encoded dots": ("POST", "/x/%2e%2e/confirm/ID/approve", {}),
    "an encoded verb": ("POST", "/confirm/ID/%61pprove", {}),
    "a verb in capitals": ("POST", "/confirm/ID/APPROVE", {}),
    "a path's parameter": ("POST", "/confirm/ID;x=1/approve", {}),
    "a NUL": ("POST", "/confirm/ID%00/approve", {}),
    "an encoded id": ("POST", "/confirm/%49D/approve", {}),
    "a backslash": ("POST", "/confirm\\ID\\approve", {}),
    "an address for the proxy behind": ("POST", "/health", {"X-Original-URL": "/confirm/ID/approve"}),
    "an address to be rewritten": ("POST", "/health", {"X-Rewrite-URL": "/confirm/ID/approve"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_named_differently_is_no_approval(server, name):
    request = ask(server)
    method, path, headers = CALLS[name]
    fill = {key: value.replace("ID", request["id"]) for key, value in headers.items()}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        sent = {"Authorization": tokens(server)[1], **fill}
        connection.request(method, path.replace("ID", request["id"]), b"{}", sent)
        assert connection.getresponse().status in (400, 404, 405)
    assert server.stored(request["id"]).is_pending


def test_numbers_that_are_one_number_have_one_digest_and_others_have_not(server):
    def text(number: str) -> str:
        body = f'{{"action": "pay", "description": "d", "details": {{"n": {number}}}}}'
        request = server.agent.post("/confirm", content=body.encode()).json()
        return server.stored(request["id"]).details_json

    assert text("-0.0") == text("0.0") == text("0") == text("0e5") == '{"n":0}'
    assert text("1e2") == text("100.0") == text("100") == '{"n":100}'
    assert text("9007199254740993") == '{"n":9007199254740993}' != text("9007199254740992")
    assert text("1e21") == '{"n":1e+21}'


def test_roles_do_not_reach_into_each_other(server):
    request = ask(server, accepts_edits=True)
    path = f"/confirm/{request['id']}"
    audit, other = server.client("audit", "auditor"), server.client("submit", "other")
    calls = [("POST", f"{path}/{verb}") for verb in VERBS]
    calls += [("POST", "/whitelist"), ("DELETE", "/whitelist/1"), ("POST", "/decisions")]
    calls += [("POST", "/callbacks/1/retry"), ("POST", "/delegations")]
    digest = {"digest": request["digest"]}
    bodies = {"consume": digest, "report": {"result": "executed"}, "amend": {"details": {}, **digest}}
    for who in (audit, other):
        for method, where in calls:
            sent = bodies.get(where.rpartition("/")[2], {})
            answer = who.request(method, where, json=sent)
            refusals = (400, 403, 404) if where.startswith(path) else (403,)
            assert answer.status_code in refusals, (where, answer.text)
    for who, where in (
        (other, path),
        (other, f"{path}/grant"),
        (server.agent, "/audit"),
        (other, "/whitelist"),
    ):
        assert who.get(where).status_code in (403, 404), where
    used = server.people["alice"].post(f"{path}/consume", json={"digest": request["digest"]})
    assert used.status_code in (403, 404)
    stored = server.stored(request["id"])
    assert stored.is_pending and stored.digest == request["digest"]


@pytest.mark.slow
def test_of_four_that_race_one_wins_and_nothing_runs_that_was_not_approved(server):
    for _ in range(40):
        request = ask(server)
        path, gate, fields = f"/confirm/{request['id']}", threading.Barrier(5), {}

        def go(name: str, who: Any, where: str, body: dict[str, str], gate=gate, found=fields) -> None:
            gate.wait(20)
            found[name] = who.post(where, json=body).status_code

        alice, bob, use = server.people["alice"], server.people["bob"], {"digest": request["digest"]}
        racers = [
            ("approve", alice, f"{path}/approve", {}),
            ("deny", bob, f"{path}/deny", {}),
            ("cancel", server.agent, f"{path}/cancel", {}),
            ("consume", server.agent, f"{path}/consume", use),
            ("use again", server.agent, f"{path}/consume", use),
        ]
        threads = [threading.Thread(target=go, args=racer, daemon=True) for racer in racers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        ends = [fields[name] for name in ("approve", "deny", "cancel")]
        assert sorted(ends) == [200, 409, 409], fields
        uses = [fields["consume"], fields["use again"]]
        assert uses.count(200) <= (fields["approve"] == 200) and set(uses) <= {200, 409}, fields


def test_nothing_is_decided_changed_or_used_once_its_time_is_over(tmp_path):
    clock = ManualClock()
    with Running(tmp_path, clock=clock, upkeep=False) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        request = agent.post("/confirm", json=SUBMIT | {"accepts_edits": True, "timeout_seconds": 30}).json()
        path = f"/confirm/{request['id']}"
        clock.pass_by(30.001)
        for wall_s in (0.0, -3_600.0, -86_400.0 * 400):  # and the clock set back revives nothing
            clock.wall_s += wall_s
            for who, verb, body in (
                (alice, "approve", {}),
                (alice, "deny", {}),
                (alice, "amend", {"details": {"a": 1}, "digest": request["digest"]}),
                (agent, "cancel", {}),
                (agent, "consume", {"digest": request["digest"]}),
            ):
                assert who.post(f"{path}/{verb}", json=body).status_code == 409, verb
        assert agent.get(path).json()["status"] == "expired"


@pytest.mark.slow
def test_no_field_writes_into_the_page_and_nothing_frames_or_keeps_it(tmp_path):
    bad = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}${7*7}</textarea></pre>"
    with Running(tmp_path) as server, page_of(server) as alice:
        agent = server.client("submit", "agent")
        body = {
            "action": bad,
            "description": bad,
            "requester": bad,
            "session_key": bad,
            "accepts_edits": True,
            "details": {bad: bad, "list": [bad], "before": bad, "after": f"{bad}x", "patch": f"\n+{bad}"},
        }
        request = agent.post("/confirm", json=body).json()
        server.client("approve", "bob").post(f"/confirm/{request['id']}/deny", json={"reason": bad})
        other = agent.post("/confirm", json=body).json()
        for path in (
            "/",
            f"/r/{request['id']}",
            f"/r/{other['id']}",
            "/history",
            "/log",
            "/login?next=" + bad,
            f"/{bad}",
        ):
            answer = alice.get(path)
            assert "<script>alert" not in answer.text and "<img src=x" not in answer.text, path
            head = answer.headers
            assert "frame-ancestors 'none'" in head["content-security-policy"], path
            assert "no-store" in head.get("cache-control", ""), path
            assert head["x-content-type-options"] == "nosniff", path


@pytest.mark.slow
def test_a_form_that_this_person_did_not_fill_in_decides_nothing(tmp_path):
    with Running(tmp_path) as server, page_of(server) as alice, page_of(server, "bob") as bob:
        request = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()
        path = f"/r/{request['id']}"
        own, others = form(alice.get(path).text), form(bob.get(path).text)
        right = {**own, "verdict": "approve"}
        foreign = {"origin": "http://evil.example"}
        tries: list[tuple[dict[str, Any], dict[str, str]]] = [
            ({**right, "csrf": others["csrf"]}, {}),
            ({**right, "csrf": ""}, {}),
            (right, foreign),
            (right, {"origin": "null"}),
            (right, {"sec-fetch-site": "cross-site"}),
            ({**right, "digest": "0" * 64}, {}),
            ({**right, "verdict": "Approve"}, {}),
            ({**right, "verdict": ["deny", "approve"]}, {}),
            ({**right, "verdict": "approve\0"}, {}),
            (right, {"content-type": "text/plain"}),
        ]
        for fields, headers in tries:
            answer = alice.post(f"{path}/decide", data=fields, headers=headers)
            assert answer.status_code >= 400, (fields, headers)
        assert alice.get(f"{path}/decide", params=right).status_code in (404, 405)
        del alice.headers["origin"]
        assert alice.post(f"{path}/decide", data=right).status_code == 403
        assert server.stored(request["id"]).is_pending


@pytest.mark.slow
def test_odd_numbers_in_the_query_are_read_as_the_contract_says(server):
    request = ask(server)
    alice = server.people["alice"]
    for wait in ("nan", "-inf", "-1", "1e-9", "0x5", "²", "१", ""):
        assert alice.get(f"/confirm/{request['id']}", params={"wait": wait}).status_code == 200
    for query in (
        "limit=1e9", "limit=-5", "limit=²", "before=²", "before=-1", "limit=9" * 3, "before=" + "9" * 400,
    ):  # fmt: skip
        assert alice.get(f"/confirm?{query}").status_code == 200, query
    assert json.loads(alice.get("/confirm?status=pending&status=approved").text)["count"] >= 0


@pytest.mark.slow
def test_a_log_of_writes_that_was_taken_away_is_missed_at_the_next_start(tmp_path):
    served = Served(tmp_path)
    with served:
        request = served.call("POST", "/confirm", SUBMIT, role="submit")[1]
        assert served.call("POST", f"/confirm/{request['id']}/deny", {}, role="approve")[0] == 200
        served.kill()  # what it wrote is still beside the database
    assert (served.home / "confirmations.db-wal").stat().st_size > 0
    (served.home / "confirmations.db-wal").unlink()
    (served.home / "confirmations.db-shm").unlink(missing_ok=True)
    with pytest.raises(AssertionError, match="the database is older than it was"), served:
        pass


HOSTS = ["[::1].evil.example", "localhost.evil.example", "127.0.0.1:80:evil", "localhost@evil.example",
         "[::1", "::1", "127.0.0.1.", "0x7f.1", "2130706433", "127.1", "localhost:999999",
         "[::ffff:7f00:1]", "evil.example"]  # fmt: skip


def test_a_host_that_only_looks_like_ours_is_refused(server):
    for host in HOSTS:
        raw = server.raw(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert answered(raw)[0] in (400, 403), host


FRAMES = [
    "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: +4\r\n\r\nabcd",
    "Content-Length: 4, 4\r\n\r\nabcd",
    "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    "Content-Length: -1\r\n\r\nabcd",
    "Content-Length: 0x4\r\n\r\nabcd",
    "Content-Length: 1_0\r\n\r\nabcd",
    "Content-Length: 99999999999999999999999\r\n\r\nabcd",
    "Transfer-Encoding: chunked\r\n\r\n-1\r\nabcd\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0x4\r\nabcd\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nabcd\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n4\nabcd\n0\n\n",
    "X: a\r\n b: c\r\nContent-Length: 4\r\n\r\nabcd",
    "Transfer-Encoding: chunked\r\n\r\n4;a=b\r\nabcdX\r\n0\r\n\r\n",
]


def test_no_request_hides_behind_another(server):
    host = f"Host: 127.0.0.1:{server.port}\r\n"
    for frame in FRAMES:
        hidden = f"GET /health HTTP/1.1\r\n{host}\r\n"
        raw = server.raw(f"POST /confirm HTTP/1.1\r\n{host}{frame}{hidden}".encode())
        assert raw.count(b"HTTP/1.1 ") == 1 and answered(raw)[0] in (400, 401, 413), frame


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Sends whoever comes on to another place of this machine."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.send_response(307)
        self.send_header("location", "/inside")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_a_webhook_goes_nowhere_else_because_its_receiver_says_so(tmp_path):
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    receiver.daemon_threads = True
    threading.Thread(target=receiver.serve_forever, args=(0.02,), daemon=True).start()
    with Running(tmp_path, private_callbacks=True, upkeep=False) as server:
        server.agent = server.client("submit", "agent")
        request = ask(server, callback_url=f"http://127.0.0.1:{receiver.server_port}/first")
        server.client("approve", "alice").post(f"/confirm/{request['id']}/deny")
        callbacks = Callbacks(server.service, "whsec_AAAA", allow_private=True)
        due: list[Any] = []
        callbacks.start_due(due.append)
        (item,) = due

        async def send() -> tuple[str, bool]:
            async with aclosing(HttpClient(Limits(20.0, silence_s=20.0), uses_proxy=False)) as client:
                return await callbacks.post(client, item)

        assert server.run(send()) == ("answered 307", False)
    receiver.shutdown()
    receiver.server_close()
    assert Elsewhere.asked == ["/first"]
