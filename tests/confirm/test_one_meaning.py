"""What a decision says has one meaning: everything that could be read in another way decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest

from tests.confirm.running import SUBMIT, Running
from whet_confirm import tokens
from whet_confirm.ledger import Tx
from whet_confirm.open import open_service
from whet_confirm.records import Caller
from whet_confirm.service import CallerLimits
from whet_confirm.submit import Submission

POLICY = """
groups = {ops = ["alice", "bob"]}
rules = [{name = "two", action = "restart", effect = "ask", quorum = "2 of ops"}]
"""
RIGHT, WRONG = "@right@", "0" * 64  # `@right@` becomes the request's digest
BIG = "9" * 5000
DEEP = '{"x":' * 70 + "1" + "}" * 70

APPROVE = [
    '{"digest":null}', '{"digest":""}', '{"digest":[]}', '{"digest":{}}', '{"digest":true}', '{"digest":0}',
    f'{{"digest":"{RIGHT}","digest":"{WRONG}"}}', f'{{"digest":"{RIGHT}","\\u0064igest":"{WRONG}"}}',
    f'{{"digest":"{WRONG}","\\u0064igest":"{RIGHT}"}}', f'{{"Digest":"{WRONG}"}}', f'{{"DIGEST":"{WRONG}"}}',
    f'{{" digest":"{WRONG}"}}', f'{{"digest ":"{WRONG}"}}', f'{{"digest":["{RIGHT}"]}}',
    f'{{"digest":"{WRONG}"}}', f'{{"digest":"{RIGHT} "}}', f'{{"digest":"{RIGHT}{RIGHT}"}}',
    f'{{"digest":"{RIGHT}"}}x', f'{{"digest":"{RIGHT}"}}{{"digest":"{WRONG}"}}', f'[{{"digest":"{RIGHT}"}}]',
    f'{{"digest":"{RIGHT}"', f'\ufeff{{"digest":"{RIGHT}"}}', f'{{"digest":"{RIGHT}","x":NaN}}',
    f'{{"digest":"{RIGHT}","x":1e999}}', f'{{"digest":"{RIGHT}","x":{BIG}}}', DEEP, "null", "1", '"x"', "[]",
    '{"code":null}', '{"code":123456}', '{"reason":null}', '{"reason":5}', '{"reason":"\\ud800"}',
    '{"reason":"a\\u0000b"}', '{"approver":null}', '{"approver":["bob"]}', '{"Approver":"bob"}',
    "{'digest':''}", '{"digest":undefined}', '{"digest":false}', '{"digest":NaN}', '{"code":1e999}',
    f'{{"digest":"{RIGHT}\\u0000"}}', f'{{"digest":"{RIGHT}",}}', f'{{"digest":"{RIGHT}"}} // x',
    f'{{"digest":"{WRONG}","digest":"{RIGHT}"}}', f'["{RIGHT}"]', f'"{RIGHT}"', "true", "\x00", "\ud800",
    "{" * 5_000, "[" * 100_000, f'{{"reason":{BIG}}}',
    '{"digest":"\\ud800"}', "digest=" + WRONG, '{"reason":"a\nb"}',
]  # fmt: skip
DENY = ['{"digest":null}', '{"digest":""}', '{"reason":null}', '{"denier":null}', '{"Reason":"no"}', "[]"]
AMEND = [
    *(body.replace("{", f'{{"digest":"{RIGHT}",', 1) for body in (
        '{"details":null}', '{"details":[]}', '{"details":"{}"}', '{"details":{},"details":{"a":1}}',
        '{"Details":{}}', '{"details":{"a":1,"a":2}}', '{"details":{"a":1e999}}',
        '{"details":{},"reason":null}', '{"details":{"a":"\\ud800"}}', '{"details":{},"Digest":""}',
    )),
    "{}", '{"details":{}}', '{"details":{},"digest":null}', '{"details":{},"digest":""}',
    f'{{"details":{{}},"digest":"{WRONG}"}}', f'{{"details":{{}},"Digest":"{RIGHT}"}}',
    f'{{"details":{{}},"digest":["{RIGHT}"]}}',
]  # fmt: skip
CANCEL = ['{"reason":null}', '{"reason":1}', "null", '{"REASON":"x"}']
MANY = [
    '{"verdict":null,"items":[@item@]}', '{"verdict":"Approve","items":[@item@]}', '{"verdict":"approve"}',
    '{"verdict":"approve","items":null}', '{"verdict":"approve","items":[null]}',
    '{"verdict":"approve","items":[]}', '{"verdict":"approve","items":{}}',
    '{"verdict":"approve","items":[{"id":"@id@","digest":null}]}',
    '{"verdict":"approve","items":@item@}', '{"verdict":"approve","items":[{"id":"@id@","digest":""}]}',
    '{"verdict":"approve","items":[{"id":"@id@"}]}', '{"verdict":"approve","items":[[@item@]]}',
    '{"verdict":"approve","items":[{"id":"@id@","digest":"@right@","digest":"@right@"}]}',
    '{"verdict":"approve","items":[{"id":"\\ud800","digest":"@right@"}]}',
    '{"verdict":"approve","items":[{"id":"@id@","digest":"\\ud800"}]}',
    '{"verdict":"deny","verdict":"approve","items":[@item@]}',
    '{"verdict":"approve","items":[@item@],"reason":null}',
]  # fmt: skip
ALLOW = [
    '{"action":"deploy","principal":"agent","seconds":null}',
    '{"action":"deploy","principal":"agent"}',
    '{"action":"deploy","principal":"agent","seconds":60,"session_key":null}',
    '{"action":"deploy","principal":null,"seconds":60}',
    '{"action":null,"principal":"agent","seconds":60}',
    '{"action":"deploy","principal":"agent","seconds":"60"}',
    '{"action":"deploy","principal":"agent","seconds":true}',
    '{"action":"deploy","principal":"agent","seconds":-1}',
    '{"action":"deploy","principal":"agent","seconds":0}',
    '{"action":"deploy","principal":"agent","seconds":0.5}',
    '{"action":"deploy","principal":"agent","seconds":86401}',
    '{"action":"deploy","principal":"agent","seconds":1e300}',
    '{"action":"deploy","principal":"agent","seconds":1e999}',
    '{"action":"deploy","principal":"agent","seconds":60,"seconds":6}',
    '{"action":"deploy","principal":"agent","seconds":60,"sessionkey":"s"}',
    '{"action":"wipe_database","principal":"agent","seconds":60}',
    '{"action":"Wipe-\\u200bDatabase","principal":"agent","seconds":60}',
    '{"action":"\\uff57ipe_database","principal":"agent","seconds":60}',
    '{"action":"wipe.database ","principal":"agent","seconds":60}',
    '{"action":"\\u200b","principal":"agent","seconds":60}',
    '{"action":" ","principal":"agent","seconds":60}',
    '{"action":"deploy","principal":" ","seconds":60}',
]
AWAY = [
    '{"stand_in":"bob","until":null}', '{"stand_in":"bob"}', '{"stand_in":null,"until":@soon@}',
    '{"stand_in":"bob","until":"@soon@"}', '{"stand_in":"bob","until":true}',
    '{"stand_in":["bob"],"until":1}',
    '{"stand_in":"bob","until":1e300}', '{"stand_in":"bob","until":-1}', '{"stand_in":"bob","until":1e999}',
    '{"stand_in":"alice","until":@soon@}', '{"stand_in":"robot","until":@soon@}',
    '{"stand_in":"ALICE","until":@soon@}', '{"stand_in":"nobody","until":@soon@}',
    '{"stand_in":"","until":1}',
    '{"stand_in":"bob","standin":"carl","until":@soon@}',
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("one")

    with Running(folder, policy=POLICY, rate=10_000, upkeep=False) as running:
        running.people = {name: running.client("approve", name) for name in ("alice", "bob")}
        running.people["root"] = running.client("admin", "root")
        running.agent = running.client("submit", "agent")
        running.client("submit", "robot")  # who may only ask
        yield running


def ask(server: Running, **more: object) -> dict[str, Any]:
    return server.agent.post("/confirm", json=SUBMIT | {"accepts_edits": True} | more).json()


def say(client: httpx2.Client, path: str, body: str, encoding: str = "utf-8") -> httpx2.Response:
    content = body.encode(encoding, "surrogatepass")
    return client.post(path, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    ("who", "verb", "bodies"),
    [
        ("alice", "approve", APPROVE),
        ("alice", "deny", DENY),
        ("alice", "amend", AMEND),
        ("", "cancel", CANCEL),
    ],
)
def test_a_body_that_may_mean_something_else_decides_nothing(server, who, verb, bodies):
    request = ask(server)
    client = server.people[who] if who else server.agent
    for body in bodies:
        answer = say(client, f"/confirm/{request['id']}/{verb}", body.replace(RIGHT, request["digest"]))
        assert answer.status_code in (400, 409), (body[:80], answer.text)
    right = f'{{"digest":"{request["digest"]}"}}'
    assert say(client, f"/confirm/{request['id']}/{verb}", right, "utf-16").status_code == 400
    stored = server.stored(request["id"])
    assert (stored.status, stored.digest) == ("pending", request["digest"])
    assert server.rows("SELECT count(*) FROM votes WHERE request_id = ?", request["id"]) == [(0,)]
    assert say(server.people["alice"], f"/confirm/{request['id']}/approve", right).status_code == 200


def test_an_approval_is_used_and_reported_in_plain_words_only(server):
    request = ask(server)
    server.people["alice"].post(f"/confirm/{request['id']}/approve")
    path, right = f"/confirm/{request['id']}", request["digest"]
    for body in (
        "", "{}", '{"digest":null}', '{"digest":""}', f'{{"digest":["{right}"]}}', f'{{"Digest":"{right}"}}',
        f'{{"digest":"{right}","digest":"{right}"}}', f'{{"digest":"{right.upper()}"}}',
    ):  # fmt: skip
        assert say(server.agent, f"{path}/consume", body).status_code in (400, 409), body
    assert say(server.agent, f"{path}/consume", f'{{"digest":"{right}"}}').status_code == 200
    for body in (
        "{}",
        '{"result":null}',
        '{"result":"EXECUTED"}',
        '{"result":["executed"]}',
        '{"result":true}',
        '{"result":"executed","note":null}',
        '{"result":"failed","result":"executed"}',
        '{"result":"executed","Note":"x"}',
    ):
        assert say(server.agent, f"{path}/report", body).status_code == 400, body
    assert server.stored(request["id"]).execution == ""


def test_a_batch_counts_nothing_that_is_not_said_plainly(server):
    request = ask(server)
    server.people["alice"].get(f"/confirm/{request['id']}")
    item = f'{{"id":"{request["id"]}","digest":"{request["digest"]}"}}'
    for body in MANY:
        text = body.replace("@item@", item).replace("@id@", request["id"]).replace(RIGHT, request["digest"])
        answer = say(server.people["alice"], "/decisions", text)
        assert answer.status_code == 400, (body, answer.text)
    assert server.stored(request["id"]).is_pending


def test_a_whitelist_entry_and_a_delegation_are_never_wider_than_said(server):
    soon = str(server.service.timeline.now_s() + 60)
    for body in ALLOW:
        assert say(server.people["root"], "/whitelist", body).status_code == 400, body
    for body in AWAY:
        answer = say(server.people["alice"], "/delegations", body.replace("@soon@", soon))
        assert answer.status_code == 400, (body, answer.text)
    assert server.rows("SELECT id FROM whitelist UNION ALL SELECT id FROM delegations") == []


def test_null_in_a_submission_is_nothing_said_as_in_the_contract(server):
    names = ("details", "requester", "session_key", "timeout_seconds", "callback_url", "accepts_edits")
    answer = server.agent.post("/confirm", json=SUBMIT | dict.fromkeys(names))
    found = server.stored(answer.json()["id"])
    assert answer.status_code == 202 and (found.requester, found.timeout_seconds) == ("agent", 300)
    for name in ("action", "description"):
        assert server.agent.post("/confirm", json=SUBMIT | {name: None}).status_code == 400
    assert server.agent.post("/confirm", json=SUBMIT | {"sessionKey": "s"}).status_code == 400


def test_one_person_is_one_vote_by_whatever_way(server):
    request = ask(server, action="restart")
    path = f"/confirm/{request['id']}/approve"
    ways: list[Callable[[], httpx2.Response]] = [
        lambda: server.people["alice"].post(path),
        lambda: server.people["alice"].post(path, json={"approver": "bob"}),
        lambda: server.client("approve", "alice").post(path),  # a second token of hers
        lambda: server.client("admin", "alice").post(path),
        lambda: server.people["root"].post(path),  # an admin is in no group
        lambda: server.people["root"].post(path, json={"approver": "bob"}),
        lambda: server.client("approve", "carl").post(path),
        lambda: server.agent.post(path),
        lambda: server.client("approve", "agent").post(path),  # who asked, with an approver's token
        lambda: server.client("audit", "bob").post(path),
        lambda: server.people["alice"].post(path, headers={"x-forwarded-user": "bob"}),
        lambda: server.people["alice"].put(path),
        lambda: server.people["bob"].post(path.upper()),
        lambda: server.people["bob"].post(path + "/"),
        lambda: server.people["bob"].post(path.replace("/approve", "/approve%2f")),
        lambda: server.people["bob"].get(path),
        lambda: server.people["bob"].post(path + "x"),
        lambda: server.people["bob"].post(
            path, headers={"x-http-method-override": "GET"}, json={"digest": None}
        ),
    ]
    for number, way in enumerate(ways):
        way()
        assert server.stored(request["id"]).is_pending, number
    assert server.people["bob"].post(path).status_code == 200


@pytest.mark.parametrize("how", ["revoked here", "revoked elsewhere", "run out"])
def test_a_token_that_held_a_moment_ago_does_nothing_more(server, how):
    request, used = ask(server), ask(server)
    server.people["alice"].post(f"/confirm/{used['id']}/approve")
    digest = {"digest": used["digest"]}
    calls = {
        "submit": ("/confirm", SUBMIT),
        "approve": (f"/confirm/{request['id']}/approve", {}),
        "deny": (f"/confirm/{request['id']}/deny", {}),
        "cancel": (f"/confirm/{request['id']}/cancel", {}),
        "amend": (f"/confirm/{request['id']}/amend", {"details": {}, "digest": request["digest"]}),
        "consume": (f"/confirm/{used['id']}/consume", digest),
        "report": (f"/confirm/{used['id']}/report", {"result": "executed"}),
    }
    agent, dora = server.client("submit", "agent"), server.client("approve", f"dora{len(how)}")
    submit_first(agent, dora, server)
    sql = "SELECT id FROM tokens ORDER BY rowid DESC LIMIT 2"
    end_tokens(server, how, [one for (one,) in server.rows(sql)])
    for name, (path, body) in calls.items():
        client = dora if name in ("approve", "deny", "amend") else agent
        assert client.post(path, json=body).status_code in (401, 429), name
        assert say(client, path, "{").status_code in (401, 429), name
    assert server.stored(request["id"]).is_pending and server.stored(used["id"]).consumed_at is None


def end_tokens(server: Running, how: str, ids: list[str]) -> None:
    if how == "run out":
        sql = "UPDATE tokens SET expires_at = 1.0 WHERE id = ?"
        server.service.database.write_now(
            lambda db: [db.execute(sql, (request_id,)).fetchall() for request_id in ids]
        )
        return
    service = server.service
    if how == "revoked elsewhere":  # as a command does beside the service
        service = open_service(server.paths, policy=None, limits=CallerLimits())

    def revoke(db: apsw.Connection) -> None:
        for request_id in ids:
            tokens.revoke(Tx(db, service.timeline.now_s(), service.key), request_id, by="test")

    service.database.write_now(revoke)
    if service is not server.service:
        service.database.close()


def test_the_limit_counts_what_another_process_stored(tmp_path):
    with Running(tmp_path, rate=3, upkeep=False) as running:
        agent = running.client("submit", "agent")
        assert [agent.post("/confirm", json=SUBMIT).status_code for _ in range(2)] == [202, 202]
        other = open_service(running.paths, policy=None, limits=CallerLimits(3))
        third = Submission(SUBMIT["action"], "the third")
        outcome = asyncio.run(other.submit(Caller("agent", "submit"), third))
        other.database.close()
        assert outcome.kind == "pending" and agent.post("/confirm", json=SUBMIT).status_code == 429


def submit_first(agent: httpx2.Client, person: httpx2.Client, server: Running) -> None:
    """Have both tokens be known to the service as good ones."""
    request = agent.post("/confirm", json=SUBMIT).json()
    assert person.post(f"/confirm/{request['id']}/deny").status_code == 200
