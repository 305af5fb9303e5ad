"""The contract of existing clients, over real sockets: with tokens and without, across a restart."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest

from tests.confirm.process import Served
from tests.confirm.running import SUBMIT, Running
from whet_confirm.http.routes import OPERATIONS

pytestmark = pytest.mark.slow_rows("open-killed")

PENDING_KEYS = {"id", "action", "status", "timeout_seconds", "message", "approve_url", "deny_url"}
RECORD_KEYS = {
    "id", "action", "description", "details", "requester", "session_key", "status", "resolved_by",
    "resolved_at", "created_at", "timeout_seconds", "created_at_iso", "resolved_at_iso",
}  # fmt: skip
AUDIT_KEYS = RECORD_KEYS - {"timeout_seconds"}


class Sides:
    """An agent, an approver and somebody without a token; in open mode all are anybody."""

    def __init__(
        self, agent: httpx2.Client, person: httpx2.Client, stranger: httpx2.Client, name: str
    ) -> None:
        self.agent, self.person, self.stranger = agent, person, stranger
        self.name = name  # whose name a decision bears; "" in open mode
        self.is_open = not name


def sides_of(server: Running) -> Sides:
    """Two callers of a service on a thread."""
    if server.settings.is_open:
        return Sides(server.client(), server.client(), server.client(), "")
    agent, person = server.client("submit", "agent"), server.client("approve", "alice")
    return Sides(agent, person, server.client(), "alice")


def sides_after_a_kill(served: Served, is_open: bool) -> Sides:
    """Two callers of a service that was killed in the middle of its work and started again."""
    agent, person = (None, None) if is_open else ("submit", "approve")
    requests = [served.call("POST", "/confirm", SUBMIT, role=agent or "")[1] for _ in range(3)]
    done = served.call("POST", requests[0]["approve_url"], {}, role=person or "")[1]
    served.kill()
    served.start()
    fields = [served.call("GET", f"/confirm/{request['id']}", role=agent or "")[1] for request in requests]
    assert [item["status"] for item in fields] == ["approved", "pending", "pending"]
    assert (fields[0]["resolved_at"], fields[0]["resolved_by"]) == (done["resolved_at"], done["resolved_by"])
    late = served.call("POST", requests[0]["deny_url"], {}, role=person or "")
    assert late[0] == 409 and late[1]["status"] == "approved"
    assert served.call("POST", requests[1]["deny_url"], {}, role=person or "")[0] == 200
    callers = [served.client(role) for role in (agent, person, None)]
    return Sides(callers[0], callers[1], callers[2], "" if is_open else "owner")


@pytest.fixture(params=["tokens", "open", "tokens-killed", "open-killed"], scope="module")
def sides(request, tmp_path_factory):
    folder, mode = tmp_path_factory.mktemp("shared"), request.param
    if "killed" not in mode:
        with Running(folder, is_open=mode == "open", rate=10_000) as server:
            yield sides_of(server)
        return
    options = ["--rate-limit", "10000", *(["--insecure-no-auth"] if "open" in mode else [])]
    with Served(folder, *options) as served:
        yield sides_after_a_kill(served, "open" in mode)


@pytest.fixture
def fresh(tmp_path):
    with Running(tmp_path) as server:
        yield sides_of(server)


def submit(sides, **changes):
    return sides.agent.post("/confirm", json=SUBMIT | changes)


def test_a_submission_is_accepted_with_defaults(sides):
    answer = sides.agent.post("/confirm", json={"action": "  deploy ", "description": " do it\n"})
    submitted = answer.json()
    assert answer.status_code == 202 and submitted.keys() >= PENDING_KEYS
    assert submitted.items() >= {"action": "deploy", "status": "pending", "timeout_seconds": 300}.items()
    assert submitted["approve_url"] == f"/confirm/{submitted['id']}/approve"
    assert submitted["deny_url"] == f"/confirm/{submitted['id']}/deny"
    record = sides.agent.get(f"/confirm/{submitted['id']}").json()
    assert record.keys() >= RECORD_KEYS
    assert (record["requester"], record["session_key"], record["details"]) == ("agent", "", {})
    assert record["description"] == "do it"
    assert record["resolved_at"] is None and record["resolved_at_iso"] is None
    assert record["resolved_by"] == "" and record["created_at_iso"].startswith("20")
    assert isinstance(record["created_at"], float)


@pytest.mark.fast_rows("open-abc", "tokens-abc", "tokens-given9", "tokens-True", "tokens-killed-1000")
@pytest.mark.parametrize(
    ("given", "read"),
    [
        (29, 30), (30, 30), (3600, 3600), (3601, 3600), (-5, 30), (59.9, 59), ("60", 60), ("abc", 300),
        (None, 300), ([], 300), ({}, 300), (True, 30), (10**30, 3600),
    ],
)  # fmt: skip
def test_timeouts_are_read_as_numbers_and_clamped(sides, given, read):
    answer = submit(sides, timeout_seconds=given)
    assert answer.status_code == 202 and answer.json()["timeout_seconds"] == read


@pytest.mark.fast_rows("open-0", "tokens-killed-None", "open-falsy4", "tokens-falsy5")
@pytest.mark.parametrize("falsy", [None, "", 0, False, [], {}])
def test_falsy_details_are_an_empty_object(sides, falsy):
    request = submit(sides, details=falsy).json()
    assert sides.agent.get(f"/confirm/{request['id']}").json()["details"] == {}


@pytest.mark.fast_rows("open-{}", "tokens-{}")
@pytest.mark.parametrize(
    "body", [b"", b"{", b"not json", b"[]", b"{}", b'{"action":"a"}', b'{"description":"d"}',
             b'{"action":"  ","description":"d"}', b'{"action":"a","description":"\\n"}']
)  # fmt: skip
def test_bad_submissions_are_400_with_an_error(sides, body):
    answer = sides.agent.post("/confirm", content=body)
    assert answer.status_code == 400 and isinstance(answer.json()["error"], str)


def test_approve_answers_once(sides):
    request = submit(sides).json()
    answer = sides.person.post(request["approve_url"], json={"approver": "bob"})
    settled = answer.json()
    assert answer.status_code == 200
    assert (settled["id"], settled["action"], settled["status"]) == (request["id"], "deploy", "approved")
    assert isinstance(settled["resolved_at"], float) and "reason" not in settled
    assert settled["resolved_by"] == (sides.name or "bob")
    again = sides.person.post(request["deny_url"])
    assert again.status_code == 409 and again.json()["status"] == "approved" and again.json()["error"]
    record = sides.agent.get(f"/confirm/{request['id']}").json()
    assert record["resolved_at"] == settled["resolved_at"] and record["resolved_at_iso"]


def test_deny_shows_the_reason_only_when_given(sides):
    first, second = submit(sides).json(), submit(sides).json()
    denied = sides.person.post(first["deny_url"], json={"denier": "bob", "reason": "not on a Friday"})
    assert denied.status_code == 200 and denied.json()["status"] == "denied"
    assert denied.json()["reason"] == "not on a Friday"
    assert "reason" not in sides.person.post(second["deny_url"]).json()


def test_an_empty_approve_body_is_enough_and_open_mode_calls_it_api(sides):
    request = submit(sides).json()
    answer = sides.person.post(request["approve_url"])
    assert answer.json()["resolved_by"] == (sides.name or "api")


def test_health_and_audit_have_their_shapes(sides):
    assert submit(sides).status_code == 202
    before = sides.stranger.get("/health").json()
    request = submit(sides, details={"b": 1, "a": "é"}).json()
    after = sides.stranger.get("/health").json()
    assert after["status"] == "ok" and after["pending_count"] == before["pending_count"] + 1
    assert abs(after["timestamp"] - time.time()) < 60 and isinstance(after["timestamp"], float)
    sides.person.post(request["deny_url"], json={"reason": "no"})
    assert sides.stranger.get("/health").json()["pending_count"] == before["pending_count"]
    page = sides.person.get("/audit?limit=1").json()
    (entry,) = page["entries"]
    assert page["count"] == 1 and entry.keys() >= AUDIT_KEYS and entry["id"] == request["id"]
    assert (entry["status"], entry["resolved_by"]) == ("denied", sides.name or "api")
    assert entry["details"] == '{"a":"é","b":1}' and entry["resolved_at_iso"]
    for limit, count in (("0", 1), ("-4", 1), ("2", 2)):
        assert sides.person.get(f"/audit?limit={limit}").json()["count"] == count
    assert len(sides.person.get("/audit?limit=x").json()["entries"]) <= 50


def test_who_lacks_a_token_is_401_and_the_wrong_role_403_unless_all_is_open(sides):
    request = submit(sides).json()
    expected = (202, 200, 200) if sides.is_open else (401, 401, 403)
    asked = sides.stranger.post("/confirm", json=SUBMIT).status_code
    looked = sides.stranger.get(f"/confirm/{request['id']}").status_code
    approved = sides.agent.post(request["approve_url"]).status_code
    assert (asked, looked, approved) == expected


@pytest.mark.parametrize(
    "path", ["/confirm/none", "/confirm/none/approve", "/confirm/none/deny", "/confirm/" + "0" * 22]
)
def test_unknown_ids_are_404(sides, path):
    answer = sides.person.request("POST" if path.count("/") == 3 else "GET", path)
    assert answer.status_code == 404 and answer.json()["error"]


def test_the_eleventh_of_an_action_is_limited_and_others_are_not(tmp_path):
    with Running(tmp_path) as server:
        agent = server.client("submit")
        assert [agent.post("/confirm", json=SUBMIT).status_code for _ in range(10)] == [202] * 10
        limited = agent.post("/confirm", json=SUBMIT)
        assert limited.status_code == 429 and int(limited.headers["retry-after"]) > 3500
        assert limited.json()["remaining"] == 0 and limited.json()["window_seconds"] == 3600
        assert agent.post("/confirm", json=SUBMIT | {"action": "other"}).status_code == 202


def test_approved_requests_use_up_no_limit_and_all_others_do(tmp_path):
    with Running(tmp_path, rate=3) as server:
        agent, person = server.client("submit"), server.client("approve")
        for verdict in ["approve"] * 4 + ["deny", "approve", "deny", "approve"]:
            answer = agent.post("/confirm", json=SUBMIT)
            assert answer.status_code == 202, answer.text
            assert person.post(answer.json()[f"{verdict}_url"], json={}).status_code == 200
        waiting = agent.post("/confirm", json=SUBMIT)
        limited = agent.post("/confirm", json=SUBMIT)
        assert (waiting.status_code, limited.status_code) == (202, 429)
        assert person.post(waiting.json()["approve_url"], json={}).status_code == 200
        assert agent.post("/confirm", json=SUBMIT).status_code == 202


def test_whitelisted_calls_pass_without_a_person_and_use_up_no_limit(server, agent, admin):
    entry = {"action": "deploy", "principal": "agent", "seconds": 60}
    assert admin.post("/whitelist", json=entry).status_code == 201
    for _ in range(3):
        answer = agent.post("/confirm", json=SUBMIT)
        assert answer.status_code == 200 and answer.json()["status"] == "auto_approved"
        assert answer.json().keys() >= {"id", "action", "message"}
    assert agent.post("/confirm", json=SUBMIT | {"details": []}).status_code == 200
    assert agent.post("/confirm", json={"action": "deploy"}).status_code == 400  # fields come first


def test_audit_pages_go_through_everything_once(fresh):
    ids = [submit(fresh, action=f"act{n}").json()["id"] for n in range(7)]
    seen, query = [], "limit=3"
    while query:
        page = fresh.person.get(f"/audit?{query}").json()
        seen += [entry["id"] for entry in page["entries"]]
        query = f"limit=3&{page['next']}" if "next" in page else ""
    assert seen == ids[::-1]


def test_every_call_is_in_the_page():
    page = (Path(__file__).parents[2] / "docs/confirm.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for call in OPERATIONS:
        path = call.path.replace("{id}", "ID").replace("{entry}", "N").replace("{number}", "N")
        last = f"`/{path.rpartition('/')[2]}`"
        verbs = [call.method] if call.method != "GET" else [call.method, "`/"]
        is_there = any(any(verb in row for verb in verbs) and (path in row or last in row) for row in rows)
        assert is_there, f"{call.method} {path} is in no row"
