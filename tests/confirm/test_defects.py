"""The thirty verified defects of the reference daemon, each as a request that must end otherwise here."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import threading

import pytest

from tests.confirm.process import SERVE, Served
from tests.confirm.running import SUBMIT, ManualClock, Running, alter, answered, request
from tests.confirm.test_waiting import later
from tests.support import ended, wait_until
from whet_confirm import audit
from whet_confirm.ledger import Tx
from whet_confirm.rates import next_rate
from whet_confirm.submit import WINDOW_S


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("shared"), rate=100_000) as running:
        yield running


@pytest.fixture(scope="module")
def agent(server):
    return server.client("submit", "agent")


@pytest.fixture(scope="module")
def alice(server):
    return server.client("approve", "alice")


def asked(agent, **changes):
    answer = agent.post("/confirm", json=SUBMIT | changes)
    assert answer.status_code == 202, answer.text
    return answer.json()


def test_01_audit_works(agent, alice):
    submitted = asked(agent)
    page = alice.get("/audit")
    assert page.status_code == 200 and page.json()["entries"][0]["id"] == submitted["id"]


def test_02_nobody_approves_without_a_token_nor_their_own_request(server, agent, alice):
    submitted = asked(agent)
    body = {"approver": "alexander (human)"}
    assert server.client().post(submitted["approve_url"], json=body).status_code == 401
    assert agent.post(submitted["approve_url"], json=body).status_code == 403
    other_token = server.client("approve", "agent")
    assert other_token.post(submitted["approve_url"], json=body).status_code == 403
    assert agent.get(f"/confirm/{submitted['id']}").json()["status"] == "pending"
    assert alice.post(submitted["approve_url"], json=body).json()["resolved_by"] == "alice"


def test_03_late_bodies_never_let_both_win(server, agent):
    token = server.token("approve", "bob")
    for _ in range(20):
        submitted = asked(agent)
        pair = []
        for verb in ("approve", "deny"):
            sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            path = f"/confirm/{submitted['id']}/{verb}"
            sock.sendall(request(server.port, "POST", path, b"{}", f"Authorization: Bearer {token}")[:-2])
            pair.append(sock)
        for sock in pair:
            sock.sendall(b"{}")
        codes = []
        for sock in pair:
            with sock:
                codes.append(answered(b"".join(iter(lambda s=sock: s.recv(65_536), b"")))[0])
        assert sorted(codes) == [200, 409]


def test_03_threads_never_let_both_win(server, agent):
    clients = [server.client("approve", name) for name in ("t1", "t2", "t3", "t4")]
    for _ in range(10):
        submitted, codes = asked(agent), []
        gate = threading.Barrier(4)

        def go(client, verb, submitted=submitted, codes=codes, gate=gate):
            gate.wait(30)
            codes.append(client.post(f"/confirm/{submitted['id']}/{verb}").status_code)

        verbs = zip(clients, ("approve", "deny", "approve", "deny"), strict=True)
        threads = [threading.Thread(target=go, args=pair, daemon=True) for pair in verbs]
        for thread in threads:
            thread.start()
        for thread in threads:
            ended(thread, "a decision")
        assert sorted(codes) == [200, 409, 409, 409]


@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_04_nothing_is_decided_after_the_deadline_also_without_a_sweeper(tmp_path, verb):
    clock = ManualClock()
    with Running(tmp_path, clock=clock, upkeep=False) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        submitted = asked(agent, timeout_seconds=30)
        clock.pass_by(29.9)
        assert agent.get(f"/confirm/{submitted['id']}").json()["status"] == "pending"
        clock.pass_by(0.1)
        late = alice.post(f"/confirm/{submitted['id']}/{verb}")
        assert late.status_code == 409 and late.json()["status"] == "expired"
        record = agent.get(f"/confirm/{submitted['id']}").json()
        assert (record["status"], record["resolved_by"]) == ("expired", "system:timeout")


def test_04_a_clock_that_is_set_back_revives_nothing(tmp_path):
    clock = ManualClock()
    with Running(tmp_path, clock=clock, upkeep=False) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        submitted = asked(agent, timeout_seconds=30)
        clock.pass_by(31)
        clock.wall_s -= 3600
        assert alice.post(submitted["approve_url"]).status_code == 409
        second = asked(agent, timeout_seconds=30)
        clock.wall_s -= 3600
        clock.elapsed_s += 31
        assert alice.post(second["approve_url"]).status_code == 409


@pytest.mark.slow
def test_05_the_sweeper_writes_the_end_down_by_itself(tmp_path):
    clock = ManualClock()
    with Running(tmp_path, clock=clock) as server:
        agent = server.client("submit", "agent")
        submitted = asked(agent, timeout_seconds=30)
        clock.pass_by(31)
        wait_until(lambda: server.rows("SELECT 1 FROM requests WHERE status = 'expired'"))
        assert server.rows("SELECT kind FROM events WHERE kind = 'expired'")
        assert server.client().get("/health").json()["pending_count"] == 0
        assert agent.get(f"/confirm/{submitted['id']}").json()["status"] == "expired"


def test_06_a_lone_surrogate_as_approver_approves_nothing(tmp_path):
    with Running(tmp_path, is_open=True) as server:
        client = server.client()
        submitted = asked(client)
        answer = client.post(submitted["approve_url"], content=b'{"approver":"\\ud800"}')
        assert answer.status_code == 400
        assert client.get(f"/confirm/{submitted['id']}").json()["status"] == "pending"
        assert server.rows("SELECT count(*) FROM events WHERE kind = 'vote'") == [(0,)]


@pytest.mark.slow
def test_07_08_requests_and_limits_outlive_the_process(tmp_path):
    with Running(tmp_path, rate=2) as server:
        agent = server.client("submit", "agent")
        requests = [asked(agent) for _ in range(2)]
        assert agent.post("/confirm", json=SUBMIT).status_code == 429
    with Running(tmp_path, rate=2) as server:
        agent = server.client("submit", "agent")
        assert agent.post("/confirm", json=SUBMIT).status_code == 429
        states = {agent.get(f"/confirm/{request['id']}").json()["status"] for request in requests}
        assert states == {"pending"}


def test_08_the_window_slides(tmp_path):
    clock = ManualClock()
    with Running(tmp_path, rate=2, clock=clock) as server:
        agent = server.client("submit", "agent")
        asked(agent)
        clock.pass_by(1800)
        asked(agent)
        assert agent.post("/confirm", json=SUBMIT).headers["retry-after"] == "1800"
        clock.pass_by(WINDOW_S - 1800)
        asked(agent)
        assert agent.post("/confirm", json=SUBMIT).status_code == 429


def test_09_the_limit_sees_through_spelling_and_is_each_principals_own(tmp_path):
    with Running(tmp_path, rate=2) as server:
        agent, other = server.client("submit", "agent"), server.client("submit", "other")
        for name in ("rate", "Rate"):
            asked(agent, action=name)
        for name in ("RATE", "rate\u200b", "ｒａｔｅ", "ra\u00adte", "rate\t"):
            assert agent.post("/confirm", json=SUBMIT | {"action": name}).status_code == 429, name
        asked(other, action="rate")


def test_09_a_principal_that_keeps_inventing_names_meets_the_cap(tmp_path):
    with Running(tmp_path, pending=5) as server:
        agent = server.client("submit", "agent")
        codes = [agent.post("/confirm", json=SUBMIT | {"action": f"a{n}"}).status_code for n in range(7)]
        assert codes == [202] * 5 + [429] * 2
        server.write("INSERT INTO idempotency SELECT 'agent', 'k', x'00', id, 0 FROM requests LIMIT 1")
        assert agent.post("/confirm", json=SUBMIT, headers={"idempotency-key": "k"}).status_code == 422
        asked(server.client("submit", "other"))


def test_10_high_risk_actions_are_never_whitelisted_nor_allowed_by_a_rule(tmp_path):
    policy = '[[rules]]\naction = "*"\neffect = "allow"\n'
    with Running(tmp_path, policy=policy) as server:
        agent, admin = server.client("submit", "agent"), server.client("admin", "root")
        for name in ("wipe_database", "Wipe_Database", "wipe-database", "wipe\u200b_database"):
            entry = {"action": name, "principal": "*", "session_key": "s", "seconds": 60}
            assert admin.post("/whitelist", json=entry).status_code == 400
            answer = agent.post("/confirm", json=SUBMIT | {"action": name, "session_key": "s"})
            assert answer.status_code == 202, name
        assert agent.post("/confirm", json=SUBMIT).json()["status"] == "auto_approved"
        assert agent.post("/whitelist", json=entry).status_code == 403


def test_11_auto_approvals_leave_a_record(tmp_path):
    with Running(tmp_path) as server:
        agent, admin = server.client("submit", "agent"), server.client("admin", "root")
        admin.post("/whitelist", json={"action": "deploy", "principal": "agent", "seconds": 60})
        submitted = agent.post("/confirm", json=SUBMIT).json()
        assert len(submitted["id"]) == 22 and submitted["message"] == "whitelist entry 1 lets it pass"
        assert agent.get(f"/confirm/{submitted['id']}").json()["status"] == "auto_approved"
        (entry,) = admin.get("/audit").json()["entries"]
        assert entry["resolved_by"] == "whitelist:1" and "no rule matches" not in json.dumps(entry)


@pytest.mark.parametrize("body", ["[]", "42", "null", '"x"', "true", "NaN", "[[[[]]]]"])
def test_12_json_that_is_no_object_is_400(agent, body):
    assert agent.post("/confirm", content=body).status_code == 400


@pytest.mark.parametrize(
    "change",
    [{"action": 5}, {"action": ["a"]}, {"requester": 5}, {"session_key": {}}, {"description": {}},
     {"details": "x"}, {"details": [1]}, {"callback_url": "ftp://x"}, {"action": "a" * 257},
     {"action": "a\0b"}]
)  # fmt: skip
def test_13_wrong_types_are_400(agent, change):
    answer = agent.post("/confirm", json=SUBMIT | change)
    assert answer.status_code == 400 and answer.json()["error"]


def test_13_numbers_beyond_floats_are_400(agent):
    body = '{"action":"a","description":"d","timeout_seconds":1e999}'
    assert agent.post("/confirm", content=body).status_code == 400


def test_14_what_is_refused_leaves_no_ghost(server, agent):
    before = server.client().get("/health").json()["pending_count"]
    deep = lambda n: b'{"action":"a","description":"d","details":' + b'{"a":' * n + b"1" + b"}" * n + b"}"  # noqa: E731
    bodies = [
        b'{"action":"\\ud800","description":"d"}',
        b'{"action":"a","description":"\\udfff"}',
        b'{"action":"a","description":"d","details":{"x":"\\ud800"}}',
        b'{"action":"a","description":"d","details":{"\\ud800":1}}',
        deep(64), deep(900), deep(20_000),
        *(b'{"action":"a","description":"d","details":%s}' % details for details in (
            b'{"a":1,"a":2}', b'{"a":{"b":1,"b":2}}', b'{"a":1,"\\u0061":2}', b'{"a":0x10}', b'{"a":01}',
            b'{"a":+1}', b'{"a":.5}', b'{"a":%s}' % (b"9" * 5_000),
        )),
        b'{"action":"a","action":"b","description":"d"}',
        b"\xff\xfe{\x00}\x00",
    ]  # fmt: skip
    for body in bodies:
        assert agent.post("/confirm", content=body).status_code == 400, body[:60]
    assert server.client().get("/health").json()["pending_count"] == before
    assert agent.post("/confirm", content=deep(62)).status_code == 202


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_15_what_is_not_json_is_not_stored(agent, value):
    body = f'{{"action":"a","description":"d","details":{{"x":{value}}}}}'
    assert agent.post("/confirm", content=body).status_code == 400


def test_16_an_oversized_or_malformed_body_approves_nothing(server, agent, alice):
    submitted = asked(agent)
    assert agent.post("/confirm", content=b"x" * 3_000_000).status_code == 413
    assert alice.post(submitted["approve_url"], content=b" " * 3_000_000).status_code == 413
    for body in (b"{", b"[]", b"approve", b'{"approver":5}', b'{"reason":{}}', b"\x00"):
        assert alice.post(submitted["approve_url"], content=body).status_code == 400, body
    chunks = b"".join(b"8000\r\n" + b" " * 0x8000 + b"\r\n" for _ in range(40)) + b"0\r\n\r\n"
    head = request(server.port, "POST", submitted["approve_url"], b"", "Transfer-Encoding: chunked",
                   f"Authorization: {alice.headers['authorization']}")  # fmt: skip
    assert answered(server.raw(head + chunks))[0] == 413
    assert agent.get(f"/confirm/{submitted['id']}").json()["status"] == "pending"


def test_17_the_reason_is_kept(server, agent, alice):
    submitted = asked(agent)
    alice.post(submitted["deny_url"], json={"reason": "not on a Friday"})
    assert agent.get(f"/confirm/{submitted['id']}").json()["reason"] == "not on a Friday"
    assert alice.get("/audit?limit=1").json()["entries"][0]["reason"] == "not on a Friday"
    assert "not on a Friday" in server.service.log.history(request_id=submitted["id"])[-1].data


def test_18_history_keeps_every_event(server, agent, alice):
    submitted = asked(agent)
    agent.get(f"/confirm/{submitted['id']}")
    alice.get(f"/confirm/{submitted['id']}")
    alice.post(submitted["approve_url"])
    agent.post(f"/confirm/{submitted['id']}/consume", json={"digest": submitted["digest"]})
    agent.post(f"/confirm/{submitted['id']}/report", json={"result": "executed"})
    kinds = server.kinds(submitted["id"])
    assert kinds == ["submitted", "viewed", "vote", "decided", "consumed", "executed"]


@pytest.mark.slow
def test_19_the_database_is_private_and_a_change_behind_its_back_is_found(tmp_path):
    with Running(tmp_path) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        submitted = asked(agent)
        alice.post(submitted["approve_url"])
        assert stat.S_IMODE(server.paths.database.stat().st_mode) == 0o600
    alter(server.paths.database, "UPDATE requests SET status = 'denied', resolved_by = 'mallory'")
    with Running(tmp_path) as server:
        keys = audit.read_keys(server.paths.public_key) | {server.service.key.id: server.service.key}
        report = server.read(lambda db: audit.verify(db, keys))
    assert report.problems == (f"request {submitted['id']}: its status says denied, the log says approved",)


@pytest.mark.parametrize(
    "headers",
    [
        ("Origin: http://evil.example",),
        ("Sec-Fetch-Site: cross-site",),
        ("Origin: null",),
        ("Content-Type: text/plain", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"),
    ],
)
def test_20_other_sites_can_not_approve_even_in_open_mode(tmp_path, headers):
    with Running(tmp_path, is_open=True) as server:
        submitted = asked(server.client())
        raw = request(server.port, "POST", submitted["approve_url"], b"{}", *headers)
        status, _ = answered(server.raw(raw))
        assert status == 403
        assert server.client().get(f"/confirm/{submitted['id']}").json()["status"] == "pending"


def test_21_an_approval_is_bound_to_its_digest_and_used_once(server, agent, alice):
    submitted = asked(agent)
    use = f"/confirm/{submitted['id']}/consume"
    assert agent.post(use, json={"digest": submitted["digest"]}).status_code == 409  # not approved yet
    alice.post(submitted["approve_url"], json={"digest": submitted["digest"]})
    assert agent.post(use, json={"digest": "0" * 64}).status_code == 409
    assert agent.post(use).status_code == 400
    first = agent.post(use, json={"digest": submitted["digest"]}, headers={"idempotency-key": "run 7"})
    assert first.status_code == 200
    assert agent.post(use, json={"digest": submitted["digest"]}).status_code == 409
    for key, status in (("x", 409), ("run 7", 200)):
        again = agent.post(use, json={"digest": submitted["digest"]}, headers={"idempotency-key": key})
        assert again.status_code == status
    kinds = server.kinds(submitted["id"])
    assert kinds.count("consumed") == 1 and kinds.count("consume_refused") == 3
    other = server.client("submit", "other")
    assert other.post(use, json={"digest": submitted["digest"]}).status_code == 404


def test_21_an_approval_for_another_digest_does_not_count(agent, alice):
    submitted = asked(agent)
    answer = alice.post(submitted["approve_url"], json={"digest": "f" * 64})
    assert answer.status_code == 409 and answer.json()["digest"] == submitted["digest"]
    assert agent.get(f"/confirm/{submitted['id']}").json()["status"] == "pending"


def test_22_an_idempotency_key_gives_the_same_request(server, agent):
    key = {"idempotency-key": "turn-1 call-2"}
    first = agent.post("/confirm", json=SUBMIT, headers=key)
    again = agent.post("/confirm", content=json.dumps(SUBMIT, indent=3), headers=key)
    assert first.status_code == again.status_code == 202 and first.json() == again.json()
    for change in ({"description": "x"}, {"details": {"version": "1.4.3"}}, {"timeout_seconds": 31}):
        assert agent.post("/confirm", json=SUBMIT | change, headers=key).status_code == 422
    other = server.client("submit", "other2")
    assert other.post("/confirm", json=SUBMIT, headers=key).json()["id"] != first.json()["id"]


@pytest.mark.slow
def test_23_memory_holds_no_details_and_no_limit_keys(tmp_path):
    with Running(tmp_path, rate=1000) as server:
        agent = server.client("submit", "agent")
        body = SUBMIT | {"details": {"blob": "x" * 900_000}}
        for number in range(3):
            asked(agent, **(body | {"action": f"a{number}"}))
        held = sum(len(event.data) for event in server.service.hub.recent)
        assert held < 10_000 and server.service.log.pending_by == {"agent": 3}


def test_24_pending_count_is_what_is_pending(tmp_path):
    with Running(tmp_path) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        requests = [asked(agent) for _ in range(3)]
        alice.post(requests[0]["deny_url"])
        agent.post(f"/confirm/{requests[1]['id']}/cancel")
        assert server.client().get("/health").json()["pending_count"] == 1


@pytest.mark.slow
def test_25_a_webhook_that_hangs_holds_nobody_up(tmp_path):
    listener = socket.create_server(("127.0.0.1", 0))
    with listener as silent, Running(tmp_path, private_callbacks=True) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        submitted = asked(agent, callback_url=f"http://127.0.0.1:{silent.getsockname()[1]}/hook")
        alice.post(submitted["approve_url"])
        silent.settimeout(30)
        with silent.accept()[0]:  # it has connected and gets no answer
            assert server.client().get("/health").status_code == 200
            assert server.rows("SELECT attempts FROM callbacks") == [(0,)]  # it still waits for that answer


def test_26_27_ids_are_long_and_sort_by_time(agent):
    ids = [asked(agent)["id"] for _ in range(3)]
    assert all(len(request_id) == 22 and request_id.isalnum() for request_id in ids) and len(set(ids)) == 3
    assert [request_id[:7] for request_id in ids] == sorted(request_id[:7] for request_id in ids)


@pytest.mark.slow
def test_28_a_limit_of_fifty_thousand_costs_two_index_lookups(tmp_path):
    with Running(tmp_path, rate=50_000) as server:
        server.write(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)"
            " INSERT INTO requests (id, action, action_key, description, details, requester,"
            " session_key, principal, status, created_at, expires_at, timeout_seconds, digest, plan,"
            " policy_version, is_high_risk, accepts_edits, rate_number)"
            " SELECT 'r' || i, 'deploy', 'deploy', '', '{}', '', '', 'agent', 'denied', ?, 0, 30, '',"
            " '{}', '', 0, 0, i FROM n",
            server.service.timeline.now_s() - 60,
        )
        steps = []

        def counted(db):
            db.set_progress_handler(lambda: bool(steps.append(1)), 10)
            try:
                tx = Tx(db, server.service.timeline.now_s(), server.service.key)
                return next_rate(tx, "agent", "deploy", 50_000, 3600.0)
            finally:
                db.set_progress_handler(None, 10)

        number, earlier_at = server.service.database.write_now(counted)
        assert number == 50_001 and earlier_at > 0 and len(steps) < 5_000, "it does not grow with the number"
        assert server.client("submit", "agent").post("/confirm", json=SUBMIT).status_code == 429


@pytest.mark.slow
def test_29_sigterm_ends_cleanly_and_answers_who_waits(tmp_path):
    with Served(tmp_path) as served:
        submitted = served.call("POST", "/confirm", SUBMIT, role="submit")[1]
        path = f"/confirm/{submitted['id']}?wait=60"
        thread, waiting = later(lambda: served.call("GET", path, role="submit"))
        served.wait_for_metric("whet_confirm_waiting_clients 1")
        assert served.terminate() == 0
        ended(thread, "the answer")
        assert waiting and waiting[0][0] == 200 and waiting[0][1]["status"] == "pending"


def test_30_list_wait_cancel_and_no_version_in_the_server_header(server, agent, alice):
    submitted = asked(agent)
    pending = alice.get("/confirm?status=pending&limit=500").json()["requests"]
    assert submitted["id"] in [one["id"] for one in pending]
    other = server.client("submit", "stranger")
    assert other.get("/confirm").json()["requests"] == []
    assert other.get(f"/confirm/{submitted['id']}").status_code == 404
    assert other.post(f"/confirm/{submitted['id']}/cancel").status_code == 404
    cancelled = agent.post(f"/confirm/{submitted['id']}/cancel", json={"reason": "changed my mind"})
    assert cancelled.json()["status"] == "cancelled"
    assert alice.post(submitted["approve_url"]).json()["status"] == "cancelled"
    assert "server" not in agent.get("/health").headers


@pytest.mark.slow
def test_open_mode_is_for_this_machine_only(tmp_path):
    command = [*SERVE, "--insecure-no-auth", "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "this machine only" in done.stderr
