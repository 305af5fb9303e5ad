"""Addresses that lead nowhere or inside, seats, entries, names, many at once: none is wider than was said."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.confirm.running import SUBMIT, Running, field_of, touch
from tests.confirm.test_attacks import ask
from tests.support import each
from whet_confirm.addresses import AddressRefused, resolve, split_callback_url
from whet_confirm.callbacks import Callbacks
from whet_confirm.records import Vote
from whet_confirm.web.view import format_ballot

pytestmark = pytest.mark.service(upkeep=False)

NOWHERE = [
    "http://[x/",
    "http://x]/",
    "http://a\u2100b.example/",  # a letter that stands for a/c
    "https://example.com:99999/",
    "https://example.com:0/",
    "https://example.com:port/",
    "https:///path",
    "http://user:secret@example.com/",
    "http://@example.com/",
    "http://exa mple.com/",
    "http://example.com/\r\nx-evil: 1",
    "http://ex\u0430mple.com/",
]


@pytest.mark.fast_rows("[x/", "secret@", "x-evil", ":99999", "///path")
@pytest.mark.parametrize("url", NOWHERE)
def test_a_webhook_that_leads_nowhere_is_refused_and_ends_nothing(tmp_path, url):
    with pytest.raises(AddressRefused):
        split_callback_url(url)
    with Running(tmp_path, upkeep=False) as server:
        agent = server.client("submit", "agent")
        refused = agent.post("/confirm", json=SUBMIT | {"callback_url": url})
        assert refused.status_code == 400 and "callback_url" in refused.json()["error"]
        # One that an older version has stored, beside one that is all right.
        touch(
            server.paths,
            "INSERT INTO callbacks (message_id, request_id, url, body, created_at, run_after)"
            " VALUES ('msg_x', 'x', ?, '{}', 1.0, 1.0), ('msg_y', 'y', ?, '{}', 1.0, 1.0)",
            url,
            "http://127.0.0.1:9/",
        )
        due: list[Any] = []
        callbacks = Callbacks(server.service, "whsec_AAAA", allow_private=False)
        callbacks.start_due(due.append)
        assert [item.message_id for item in due] == ["msg_x", "msg_y"]


@each(
    "url",
    ["http://127.0.0.1/", "http://[::1]/", "http://[::ffff:10.0.0.1]/", "http://169.254.169.254/latest/meta-data",
     "http://[fd00:ec2::254]/", "http://100.100.100.200/", "http://0.0.0.0/", "http://localhost/",
     "http://[fe80::1]/", "http://224.0.0.1/", "http://[64:ff9b::a00:1]/", "http://168.63.129.16/",
     "http://[::ffff:a83f:8110]/", "http://[2002:7f00:1::]/", "file:///etc/passwd", "http://localhost:80/",
     "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::1]/", "http://[::127.0.0.1]/",
     "http://[::ffff:0:7f00:1]/", "http://[fec0::1]/", "http://[5f00::1]/", "http://[ff0e::1]/",
     "http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://100.64.0.1/"],
)  # fmt: skip
async def test_an_inner_address_is_refused(url):
    with pytest.raises(AddressRefused):
        await resolve(url, allow_private=False)


@each("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1"])
async def test_a_number_that_some_systems_read_as_an_inner_address_is_not_called(host):
    with pytest.raises((AddressRefused, OSError)):
        await resolve(f"http://{host}/", allow_private=False)


def test_a_ring_of_three_lends_three_seats_and_no_fourth(tmp_path):
    policy = '[groups]\nops = ["alice", "bob", "carol"]\n[[rules]]\neffect = "ask"\nquorum = "3 of ops"\n'
    with Running(tmp_path, policy=policy, upkeep=False) as server:
        request = ask(server)
        everyone = {name: server.client("approve", name) for name in ("alice", "bob", "carol", "dora")}
        for giver, stand_in in (("alice", "bob"), ("bob", "carol"), ("carol", "alice")):
            until = {"stand_in": stand_in, "until": time.time() + 600}
            assert everyone[giver].post("/delegations", json=until).status_code == 201
        url = f"/confirm/{request['id']}/approve"
        assert everyone["dora"].post(url).status_code == 403
        assert [everyone[name].post(url).status_code for name in ("alice", "alice", "bob")] == [202] * 3
        until = {"stand_in": "dora", "until": time.time() + 600}
        assert everyone["bob"].post("/delegations", json=until).status_code == 201  # after he has voted
        assert everyone["carol"].post(url).status_code == 403  # she has lent hers, and lost his
        assert everyone["dora"].post(url).status_code == 200
        assert server.stored(request["id"]).resolved_by == "alice, bob, dora"


def test_an_entry_is_for_its_principal_and_session_alone(server, admin, agent):
    other = server.client("submit", "agent2")
    entry = {"action": "deploy", "principal": "agent", "seconds": 60, "session_key": "s1"}
    assert admin.post("/whitelist", json=entry).status_code == 201
    passes = SUBMIT | {"session_key": "s1"}
    assert agent.post("/confirm", json=passes).status_code == 200
    for who, body in (
        (agent, SUBMIT),
        (agent, SUBMIT | {"session_key": "S1"}),
        (agent, SUBMIT | {"session_key": "s1 "}),
        (agent, passes | {"action": "deploy2"}),
        (other, passes),
        (other, passes | {"requester": "agent"}),
    ):
        assert who.post("/confirm", json=body).status_code == 202, body


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["localhost:99999", "localhost:port", "[::1", "localhost:8766:1", "localhost@evil"]
)
def test_a_page_called_by_an_address_that_is_none_decides_nothing(server, host):
    request, person = ask(server), server.signed_in("alice")
    shown = person.get(f"/r/{request['id']}").text
    csrf = field_of(shown, "csrf")
    form = {"csrf": csrf, "verdict": "approve", "digest": request["digest"], "sure": "yes"}
    heads = {"host": host, "origin": f"http://{host}"}
    answer = person.post(f"/r/{request['id']}/decide", data=form, headers=heads)
    # With a port that there is not the name is still ours: whoever sends that is no browser.
    is_known = host.startswith("localhost:9")
    assert answer.status_code == 303 if is_known else 400 <= answer.status_code < 500
    assert server.stored(request["id"]).is_pending is not is_known


def test_many_given_twice_or_unseen_or_changed_count_once_or_not(server):
    requests = [ask(server, accepts_edits=True) for _ in range(3)]
    risky = ask(server, action="wipe_database")
    alice, bob = server.client("approve", "alice"), server.client("approve", "bob")
    for fields in (requests[0], requests[1], risky):
        alice.get(f"/confirm/{fields['id']}")
    change = {"details": {"version": "9"}, "digest": requests[1]["digest"]}
    assert bob.post(f"/confirm/{requests[1]['id']}/amend", json=change).status_code == 200
    items = [{"id": one["id"], "digest": one["digest"]} for one in (requests[0], *requests, risky)]
    answer = alice.post("/decisions", json={"verdict": "approve", "items": items})
    counted = [outcome["counted"] for outcome in answer.json()["outcomes"]]
    assert counted == [True, False, False, False, False]
    assert server.stored(requests[2]["id"]).is_pending and server.stored(risky["id"]).is_pending


def test_the_names_of_people_and_tokens_are_one_space(server):
    server.token("approve", "alice")
    for name in ("Alice", "\uff41lice", "al\u200bice", "oidc:alice", "uid:0", "system:start", "policy:x",
                 "whitelist:1", "a b", "", "x" * 129, "cli:root"):  # fmt: skip
        with pytest.raises(Exception, match="name"):
            server.token("approve", name)


def test_the_page_shows_500_characters_of_a_votes_reason():
    shown = format_ballot(Vote("r", "ann", "deny", 1.0, "x" * 501))["reason"]
    assert shown.startswith("x" * 500) and "x" * 501 not in shown
