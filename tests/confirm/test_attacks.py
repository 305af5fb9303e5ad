"""Ways round that a hostile review found, each as it was tried."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import apsw
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from tests.confirm.running import SUBMIT, Running, field_of, touch
from whet.contract.errors import StoreCorrupt
from whet.web.sessions import find_client_user
from whet_confirm import decide, people, tokens
from whet_confirm.callbacks import Callbacks
from whet_confirm.decide import DecisionInput
from whet_confirm.keys import base64url
from whet_confirm.ledger import Tx
from whet_confirm.oidc import OidcPerson, OidcSettings, SignInAttempt
from whet_confirm.passkeys import vote_challenge
from whet_confirm.records import Caller
from whet_confirm.requests import revealed_digest
from whet_confirm.web.passkey_pages import request_origin
from whet_confirm.web.provider import ProviderPages

pytestmark = pytest.mark.service(upkeep=False, private_callbacks=True)

POLICY = """
groups = {finance = ["alice", "bob"]}
rules = [
  {name = "never", action = "pay", effect = "deny", details = {"$.amount" = {gt = 1000}}},
  {name = "more", action = "pay", effect = "ask", quorum = "2 of finance", \
    details.amount = {gt = 100, le = 1000}},
  {name = "little", action = "pay", effect = "ask", quorum = "1 of finance", details.amount = {le = 100}},
]
"""
APPROVED = "UPDATE requests SET status = 'approved', resolved_by = 'alice', resolved_at = created_at"


def ask(server: Running, **more: object) -> dict[str, Any]:
    return server.client("submit", "agent").post("/confirm", json=SUBMIT | more).json()


def test_an_approval_that_somebody_wrote_gets_no_answer_grant_or_webhook(server):
    request = ask(server, callback_url="http://127.0.0.1:9/hook")
    agent = server.client("submit", "agent")
    assert agent.get(f"/confirm/{request['id']}").json()["status"] == "pending"
    touch(server.paths, APPROVED)
    for path in ("", "/grant", "?wait=1"):
        answer = agent.get(f"/confirm/{request['id']}{path}")
        assert answer.status_code == 503 and "changed from outside" in answer.json()["error"], path


@pytest.mark.parametrize("status", ["approved", "denied"])
def test_a_webhook_that_somebody_wrote_is_not_signed(server, status):
    request = ask(server, callback_url="http://127.0.0.1:9/hook")
    data = {name: request[name] for name in ("id", "action", "digest")} | {"status": status}
    body = json.dumps({"type": f"confirmation.{status}", "timestamp": 1.0, "data": data})
    touch(
        server.paths,
        "INSERT INTO callbacks (message_id, request_id, url, body, created_at, run_after)"
        " VALUES (?, ?, 'http://127.0.0.1:9/hook', ?, 1.0, 1.0)",
        f"msg_{request['id']}",
        request["id"],
        body,
    )
    callbacks = Callbacks(server.service, "whsec_AAAA", allow_private=True)
    due: list[Any] = []
    callbacks.start_due(due.append)
    (item,) = due
    sent = server.run(callbacks.post(cast("Any", None), item))
    assert sent == ("it does not match the request's outcome", True)


@pytest.mark.slow
def test_a_sign_in_that_somebody_wrote_is_none(server):
    request = ask(server)
    person = server.signed_in("alice")
    assert "Sign out" in person.get("/").text
    cookie = next(iter(person.cookies.jar))
    # A row of one's own, and one of somebody else's with another account in it.
    number, until = "A" * 43, time.time() + 9e5
    for hashed in (number, f"{number}@{os.getuid()}"):
        touch(
            server.paths,
            "INSERT INTO web_sessions SELECT ?, account_key, csrf, created_at, ? FROM web_sessions LIMIT 1",
            hashlib.sha256(hashed.encode()).hexdigest(),
            until,
        )
    form = {"csrf": "C", "verdict": "approve", "digest": request["digest"]}
    forged = server.page(f"{cookie.name}={number}")
    assert forged.get(f"/r/{request['id']}").headers["location"].startswith("/login")
    assert forged.post(f"/r/{request['id']}/decide", data=form).status_code == 403
    server.token("approve", "bob")
    (bob,) = server.rows("SELECT id FROM tokens WHERE name = 'bob'")
    touch(server.paths, "UPDATE web_sessions SET account_key = ? || substr(account_key, 13)", str(bob[0]))
    assert person.get("/").headers["location"].startswith("/login")


def test_a_token_that_ends_between_its_check_and_the_vote_decides_nothing(server):
    request = ask(server, accepts_edits=True)
    who = server.service.authenticate(server.token("approve", "alice"))
    assert who is not None
    server.change(lambda tx: tokens.revoke(tx, who.token_id, by="root"))
    for caller in (who, Caller("ann", "approve", "oidc:ann")):
        voted = server.run(server.service.decide(DecisionInput(request["id"], "approve"), caller))
        amended = server.run(server.service.amend((request["id"], request["digest"]), caller, {}))
        assert (voted.kind, amended.kind) == ("not_allowed", "not_allowed")
    assert server.stored(request["id"]).is_pending


@pytest.fixture
def paying(tmp_path):
    with Running(tmp_path, policy=POLICY, upkeep=False) as running:
        yield running


def test_a_change_falls_under_the_rule_for_what_it_asks_now(paying):
    request = ask(paying, action="pay", details={"amount": 5}, accepts_edits=True)
    alice, bob = paying.client("approve", "alice"), paying.client("approve", "bob")
    way = f"/confirm/{request['id']}"

    def change(amount: int) -> dict[str, object]:
        return {"details": {"amount": amount}, "digest": request["digest"]}

    outsider = paying.client("approve", "mallory").post(f"{way}/amend", json=change(6))
    assert outsider.status_code == 403 and "lets others decide" in outsider.json()["error"]
    refused = alice.post(f"{way}/amend", json=change(5000))
    assert refused.status_code == 403 and "'never' denies this" in refused.json()["error"]
    assert alice.post(f"{way}/amend", json=change(500)).status_code == 200
    assert bob.post(f"{way}/approve").status_code == 202  # alone it was enough for 5
    assert alice.post(f"{way}/approve").json()["status"] == "approved"


@pytest.mark.parametrize("verb", ["amend", "cancel"])
def test_a_record_that_somebody_changed_is_not_made_the_logs_own(server, verb):
    request = ask(server, accepts_edits=True)
    touch(server.paths, "UPDATE requests SET requester = requester, description = 'harmless'")
    who = server.client("approve" if verb == "amend" else "submit", "alice" if verb == "amend" else "agent")
    body = {"details": {}, "digest": request["digest"]} if verb == "amend" else {}
    answer = who.post(f"/confirm/{request['id']}/{verb}", json=body)
    assert answer.status_code == 409 and "changed from outside" in answer.json()["error"]


@pytest.mark.service(
    policy='[groups]\nops = ["bob"]\n[[rules]]\neffect = "ask"\nquorum = 2\nescalate_to = "ops"\n'
)
def test_an_escalation_does_not_vouch_for_a_plan_that_somebody_wrote(server):
    request = ask(server)
    touch(server.paths, 'UPDATE requests SET plan = \'{"rule":"x"}\', escalates_at = 1.0')
    assert server.change(lambda tx: decide.escalate(tx, 9, server.service.policy_file.policy)) == 1
    answer = server.client("approve", "alice").post(f"/confirm/{request['id']}/approve")
    assert answer.status_code == 409 and "altered" in answer.json()["error"], answer.text


@pytest.mark.slow
@pytest.mark.skipif(
    os.name != "posix" or not Path("/proc/self/net/tcp").exists(), reason="needs Linux's /proc"
)
def test_a_cookie_that_another_user_of_the_machine_was_shown_is_worth_nothing(server):
    person = server.signed_in("alice")
    cookie = next(iter(person.cookies.jar))
    copy = server.page(f"{cookie.name}={cookie.value}")
    assert copy.get("/").status_code == 200  # the same user, in another program
    if os.getuid() != 0:
        pytest.skip("only root can connect as another user")
    libc, thief = ctypes.CDLL(None), server.page(f"{cookie.name}={cookie.value}")
    libc.setfsuid(65534)  # of this thread alone; a socket belongs to whom it says
    try:
        answer = thief.get("/")
    finally:
        libc.setfsuid(0)
    assert answer.status_code == 303 and answer.headers["location"].startswith("/login")


@pytest.mark.parametrize("client", [None, ("testclient", 1), ("192.0.2.7", 80), ("::1", 80)])
def test_who_is_elsewhere_has_no_user_here(client):
    assert find_client_user({"type": "http", "client": client, "server": ("127.0.0.1", 80)}) == ""


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        ("http://localhost:8766", True),
        ("http://localhost:9999", False),
        ("http://127.0.0.1", False),
        ("https://confirm.example.org", True),
        ("null", True),  # no host: fits no passkey
    ],
)
def test_what_a_passkey_signed_at_another_port_of_this_machine_is_none_of_ours(origin, is_ours):
    scope = {"type": "http", "headers": [(b"origin", origin.encode())], "server": ("127.0.0.1", 8766)}
    assert (request_origin(Request(scope)).origin == origin) is is_ours


def test_a_providers_account_does_not_take_the_name_that_a_token_has(server):
    server.token("approve", "alice")

    def enter(name: str) -> str:
        person = OidcPerson("https://idp.example", f"u-{name}", name, "approve", ())
        return server.change(lambda tx: people.record_login(tx, person, 60.0))

    assert "has a token here" in enter("alice") and enter("ann") == ""
    server.token("approve", "ann")  # an admin says that they are one
    assert enter("ann") == ""


@pytest.mark.slow
@pytest.mark.service(upkeep=True)
def test_a_forged_approval_stops_no_news_of_others(server):
    first = ask(server)
    touch(server.paths, "UPDATE requests SET plan = '{'")
    assert server.client("submit", "agent").get(f"/confirm/{first['id']}").status_code == 503
    touch(server.paths, "UPDATE requests SET plan = '{}'")
    touch(server.paths, APPROVED)
    assert ask(server)["status"] == "pending"
    assert server.client().get("/health").status_code == 200


class Authenticator:
    """A passkey in software, which signs whatever it is told to."""

    def __init__(self, host: str = "localhost") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.id, self.host = base64url(os.urandom(16)), host

    def enrol(self, server: Running, name: str) -> None:
        point = self._key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (point.x, point.y))
        key = b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20" + x + b"\x22\x58\x20" + y
        values = (self.id, name, base64url(key), "localhost", 5, 1.0)
        sql = "INSERT INTO passkeys VALUES (?, ?, ?, ?, ?, ?, NULL)"
        server.change(lambda tx: tx.connection.execute(sql, values).fetchall())

    def sign(self, digest: str, *, verdict: str = "approve", **odd: Any) -> str:
        fields = {
            "type": odd.get("type", "webauthn.get"),
            "challenge": base64url(vote_challenge(verdict, digest)),
            "origin": odd.get("origin", "http://localhost:8766"),
        }
        client = json.dumps(fields).encode()
        flags = bytes([odd.get("flags", 5)])  # somebody was there, and was verified
        data = hashlib.sha256(self.host.encode()).digest() + flags + odd.get("count", 6).to_bytes(4, "big")
        signature = self._key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        parts = {"clientDataJSON": client, "authenticatorData": data, "signature": signature}
        response = {name: base64url(part) for name, part in parts.items()}
        return json.dumps({"id": odd.get("id", self.id), "response": response})


@pytest.mark.slow  # for the import of webauthn
def test_only_this_persons_verified_signature_over_this_vote_on_this_page_counts(tmp_path):
    pytest.importorskip("webauthn")
    policy = '[[rules]]\neffect = "ask"\nrequire_passkey = true\n'
    with Running(tmp_path, policy=policy, upkeep=False) as server:
        request, other = ask(server), ask(server, action="restart")
        alice = server.service.authenticate(server.token("approve", "alice"))
        assert alice is not None
        hers, bobs, elsewhere = Authenticator(), Authenticator(), Authenticator("evil.example")
        for key, name in ((hers, "alice"), (bobs, "bob"), (elsewhere, "alice")):
            key.enrol(server, name)

        def vote(signed: str, origin: str = "http://localhost:8766") -> tuple[str, str]:
            ballot = DecisionInput(request["id"], "approve", passkey=signed, origin=origin, via_web=True)
            outcome = server.run(server.service.decide(ballot, alice))
            return outcome.kind, outcome.message

        digest = request["digest"]
        refused = {
            "none": "",
            "for another request": hers.sign(other["digest"]),
            "a denial": hers.sign(digest, verdict="deny"),
            "of bob": bobs.sign(digest),
            "of bob in her name": bobs.sign(digest, id=hers.id),
            "for another site": elsewhere.sign(digest),
            "on another page": hers.sign(digest, origin="http://localhost:9999"),
            "of an enrolment": hers.sign(digest, type="webauthn.create"),
            "nobody was verified": hers.sign(digest, flags=1),
            "nobody was there": hers.sign(digest, flags=4),
            "its counter went back": hers.sign(digest, count=5),
        }
        for why, signed in refused.items():
            assert vote(signed)[0] == "passkey", why
        assert vote(hers.sign(digest, origin="http://localhost:9999"), "")[0] == "passkey"
        assert server.stored(request["id"]).is_pending
        good = hers.sign(digest)
        assert vote(good)[0] == "decided"
        assert server.service.votes(request["id"])[0].principal == "alice"


async def test_an_answer_of_another_provider_and_a_flood_of_beginnings_let_nobody_in_or_out():
    class Begins:
        settings = OidcSettings("https://idp.example", "c", approve_groups=("x",))
        states: ClassVar[list[str]] = []

        async def begin(self) -> SignInAttempt:
            self.states.append(secrets.token_urlsafe(8))
            return SignInAttempt(self.states[-1], "n", "v", "https://idp.example/auth")

    class Told:
        def answer(self, template: str, status: int = 200, **values: object) -> PlainTextResponse:
            return PlainTextResponse(str(values.get("text")), status)

    now = SimpleNamespace(timeline=SimpleNamespace(now_s=lambda: 1.0))
    way = ProviderPages(*cast("Any", (now, Begins(), SimpleNamespace(is_secure=False), Told())))

    def request(query: str, cookie: str = "") -> Request:
        headers = [(b"cookie", cookie.encode())]
        return Request({"type": "http", "query_string": query.encode(), "headers": headers})

    begun = [await way.start(request("")) for _ in range(1002)]
    assert begun[-1].status_code == 303
    for number, answer in ((1, b"not begun here"), (2, b"another provider"), (-1, b"another provider")):
        cookie = begun[number].headers["set-cookie"].partition(";")[0]
        state = Begins.states[number]
        mixed = await way.callback(request(f"state={state}&code=c&iss=https://evil.example", cookie))
        assert mixed.status_code == 403 and answer in bytes(mixed.body)


@pytest.mark.service(
    policy='[groups]\nops = ["alice", "bob"]\n[[rules]]\neffect = "ask"\nquorum = "2 of ops"\n'
)
def test_seats_go_round_in_a_ring_and_give_no_more_votes(server):
    request, until = ask(server), time.time() + 3600
    alice, bob, dave = (server.client("approve", name) for name in ("alice", "bob", "dave"))
    way = f"/confirm/{request['id']}/approve"
    assert alice.post(way).status_code == 202
    for giver in (alice, bob):  # dave has both seats now, and alice's vote has none
        assert giver.post("/delegations", json={"stand_in": "dave", "until": until}).status_code == 201
    assert dave.post("/delegations", json={"stand_in": "alice", "until": until}).status_code == 400
    assert dave.post(way).status_code == 202 and bob.post(way).status_code == 403
    assert server.stored(request["id"]).is_pending


def test_nothing_is_written_to_or_read_from_a_database_that_was_put_in_place_of_ours(tmp_path):
    with Running(tmp_path, upkeep=False) as server:
        agent, request = server.client("submit", "agent"), ask(server)
        older = server.paths.database.with_suffix(".older")
        touch(server.paths, "VACUUM INTO ?", str(older))
        server.run(server.service.decide(DecisionInput(request["id"], "deny"), Caller("alice", "approve")))
        aside = server.paths.database.rename(tmp_path / "ours.db")
        older.rename(server.paths.database)
        assert agent.post("/confirm", json=SUBMIT).status_code == 503

        def read_beside(outer: apsw.Connection) -> None:  # while the readers of before are in use
            server.read(read_beside)

        with pytest.raises(StoreCorrupt, match="replaced"):
            server.read(read_beside)
        aside.replace(server.paths.database)
        assert agent.post("/confirm", json=SUBMIT).status_code == 202
        assert server.stored(request["id"]).status == "denied"


@pytest.mark.slow
@pytest.mark.parametrize(
    "details",
    ['{"a": 1, "a": 2}', '{"a": ' + "[" * 70 + "]" * 70 + "}", '{"a": ' + "[" * 5000 + "]" * 5000 + "}",
     '{"a": "\\ud800"}', '{"a": 1e999}', "[]", "{"],
)  # fmt: skip
def test_the_page_reads_changed_details_as_strictly_as_the_api(server, details):
    request = ask(server, accepts_edits=True)
    alice = server.signed_in("alice")
    csrf = field_of(alice.get(f"/r/{request['id']}").text, "csrf")
    form = {"csrf": csrf, "digest": request["digest"], "details": details}
    assert alice.post(f"/r/{request['id']}/amend", data=form).status_code == 400
    assert server.stored(request["id"]).digest == request["digest"]
    form["details"] = '{"version": "1.4.3"}'
    assert alice.post(f"/r/{request['id']}/amend", data=form).status_code == 303
    assert json.loads(server.stored(request["id"]).details_json) == {"version": "1.4.3"}


@pytest.mark.slow  # for the import of webauthn
def test_no_decision_reads_the_whole_log(tmp_path):
    pytest.importorskip("webauthn")
    policy = '[[rules]]\neffect = "ask"\nrequire_passkey = true\n'
    with Running(tmp_path, policy=policy, upkeep=False) as server:
        request, hers = ask(server), Authenticator()
        alice = server.service.authenticate(server.token("approve", "alice"))
        assert alice is not None
        hers.enrol(server, "alice")
        ballot = DecisionInput(
            request["id"],
            "approve",
            passkey=hers.sign(request["digest"]),
            origin="http://localhost:8766",
            via_web=True,
        )
        asked: list[str] = []

        def work(tx: Tx) -> object:
            traced: Any = tx.connection

            def note(cursor: Any, _sql: str, _values: object) -> bool:
                asked.append(str(cursor.expanded_sql))
                return True

            traced.set_exec_trace(note)
            try:
                decide.record_reveal(tx, request["id"], alice)
                revealed_digest(tx.connection, request["id"], "alice")
                return decide.decide(tx, ballot, alice, server.service.policy_file.policy)
            finally:
                traced.set_exec_trace(None)

        outcome = server.change(work)
        assert outcome.kind == "decided"
        reads = [sql for sql in asked if sql.startswith("SELECT") and "FROM events" in sql]
        assert len(reads) >= 2
        for sql in reads:
            steps = [str(row[3]) for row in server.rows(f"EXPLAIN QUERY PLAN {sql}")]
            assert not any(step == "SCAN events" for step in steps) or (
                "LIMIT 1" in sql and "WHERE" not in sql
            ), sql
