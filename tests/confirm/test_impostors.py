"""Who is not who they say, or says it twice: codes, passkeys, providers, buttons."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from tests.confirm.provider import CLIENT, SECRET, Provider
from tests.confirm.running import Running, touch
from tests.confirm.test_attacks import Authenticator, ask
from tests.confirm.test_factors import POLICY as WITH_CODE
from tests.confirm.test_factors import Guarded
from tests.confirm.test_oidc import ANN, browser, gone
from whet.contract.channels import ChatPlace, Incoming
from whet.web.login import safe_path
from whet_confirm.decide import DecisionInput
from whet_confirm.keys import base64url, unbase64
from whet_confirm.notify.buttons import Buttons
from whet_confirm.notify.notice_text import build_notice
from whet_confirm.notify.presses import Presses
from whet_confirm.notify.settings import ConfiguredNotifier, NotifyPersonText, People
from whet_confirm.oidc import OidcSettings
from whet_confirm.records import RequestOutcome


@pytest.fixture
def guarded(server, clock):
    return Guarded(server, clock)


with_code = pytest.mark.service(policy=WITH_CODE)
SPELLED: dict[str, Callable[[str], str]] = {
    "wide": lambda code: "".join(chr(ord(digit) + 0xFEE0) for digit in code),
    "a digit before it": lambda code: f"0{code}",
    "a digit after it": lambda code: f"{code}0",
    "negative": lambda code: f"-{code}",
    "cut": lambda code: code[:5],
    "in sixteens": lambda code: f"{int(code):x}",
    "with a fraction": lambda code: f"{code}.0",
    "twice": lambda code: code * 2,
}


@pytest.mark.fast_rows("cut", "wide", "negative")
@with_code
@pytest.mark.parametrize("way", SPELLED)
def test_no_spelling_of_a_code_but_its_own_counts(guarded, way):
    request, code = guarded.ask(), guarded.code()
    assert guarded.approve(request, SPELLED[way](code)).status_code in (400, 403)
    assert guarded.approve(request, code).status_code == 200


@with_code
def test_anothers_code_and_one_of_an_hour_ago_count_for_nothing(guarded):
    bob, theirs, request = guarded.server.client("approve", "bob"), guarded.code(), guarded.ask()
    answer = bob.post(request["approve_url"], json={"code": theirs})  # he has no factor of his own
    assert answer.status_code == 403 and answer.json()["reason"] == "code"
    guarded.clock.pass_by(3500)
    assert guarded.approve(guarded.ask(), theirs).status_code == 403


@with_code
def test_one_code_sent_for_two_requests_at_once_counts_once(guarded):
    first, second = guarded.ask(), guarded.ask()
    service, code = guarded.server.service, guarded.code()
    alice = service.authenticate(str(guarded.alice.headers["authorization"]).partition(" ")[2])
    assert alice is not None

    async def both() -> list[RequestOutcome]:
        ballots = [DecisionInput(request["id"], "approve", code=code) for request in (first, second)]
        return await asyncio.gather(*(service.decide(ballot, alice) for ballot in ballots))

    assert sorted(one.kind for one in guarded.server.run(both())) == ["code", "decided"]


@with_code
@pytest.mark.slow
def test_the_clock_set_back_revives_no_code_and_a_day_of_guesses_is_a_few_dozen(guarded):
    submitted, code = guarded.ask(), guarded.code()
    assert guarded.approve(submitted, code).status_code == 200
    guarded.clock.wall_s -= 7200
    other = guarded.ask()
    assert guarded.approve(other, code).status_code == 403
    tried = 0
    for _ in range(24 * 60):
        request = guarded.ask() if tried % 50 == 0 else other
        answer = guarded.approve(request, guarded.wrong())
        tried += answer.status_code == 403 and answer.json()["error"] == "this code is wrong"
        guarded.clock.pass_by(60)
        other = request if answer.status_code != 409 else guarded.ask()
    assert tried < 40


PAGE: dict[str, Any] = {"origin": "http://localhost:8766", "via_web": True}


@pytest.fixture
def signing(tmp_path):
    pytest.importorskip("webauthn")
    policy = '[groups]\nops = ["alice", "bob"]\n[[rules]]\neffect = "ask"\nrequire_passkey = true\n'
    policy += 'quorum = "2 of ops"\ndeny_threshold = 2\n'
    with Running(tmp_path, policy=policy, upkeep=False) as server:
        yield server


def _respelled(signed: str, change: Callable[[bytes, str], str]) -> str:
    data = json.loads(signed)
    text = data["response"]["signature"]
    data["response"]["signature"] = change(unbase64(text), text)
    return json.dumps(data)


def _folded(raw: bytes) -> str:
    """The other signature that anybody can make of one of an elliptic curve's."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    r, s = decode_dss_signature(raw)
    return base64url(encode_dss_signature(r, order - s))


def _last_bits(text: str) -> str:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + digits[digits.index(text[-1]) ^ 1]


RESPELLED: dict[str, Callable[[bytes, str], str]] = {
    "as it was": lambda _, text: text,
    "padded": lambda _, text: text + "=" * (-len(text) % 4),
    "in the other alphabet": lambda raw, _: base64.b64encode(raw).decode(),
    "with a line's end": lambda _, text: text + "\n",
    "with a blank": lambda _, text: text[:8] + " " + text[8:],
    "with other last bits": lambda raw, text: _last_bits(text) if len(raw) % 3 else text,
    "folded": lambda raw, _: _folded(raw),
}


@pytest.mark.slow  # for the import of webauthn
@pytest.mark.parametrize("way", RESPELLED)
def test_a_signature_counts_once_however_it_is_spelled(signing, way):
    request, hers = ask(signing), Authenticator()
    alice = signing.service.authenticate(signing.token("approve", "alice"))
    assert alice is not None
    hers.enrol(signing, "alice")

    def vote(verdict: Any, signed: str = "") -> str:
        ballot = DecisionInput(request["id"], verdict, passkey=signed, **PAGE)
        return signing.run(signing.service.decide(ballot, alice)).kind

    touch(signing.paths, "SELECT 1")
    signed = hers.sign(request["digest"], count=0)  # as synced passkeys do, whose counter says nothing
    signing.write("UPDATE passkeys SET sign_count = 0")
    assert vote("approve", signed) == "voted"
    assert vote("deny") == "voted"  # she thought better of it
    assert vote("approve", _respelled(signed, RESPELLED[way])) == "passkey"
    assert [one.verdict for one in signing.service.votes(request["id"])] == ["deny"]
    assert vote("approve", hers.sign(request["digest"], count=0)) == "voted"


def test_a_passkey_that_was_taken_away_or_whose_counter_was_cloned_signs_nothing(signing):
    from whet_confirm import passkeys

    request, hers = ask(signing), Authenticator()
    alice = signing.service.authenticate(signing.token("approve", "alice"))
    assert alice is not None
    hers.enrol(signing, "alice")

    def vote(signed: str) -> str:
        ballot = DecisionInput(request["id"], "approve", passkey=signed, **PAGE)
        return signing.run(signing.service.decide(ballot, alice)).kind

    assert vote(hers.sign(request["digest"], count=9)) == "voted"
    for count in (9, 8, 0):
        assert vote(hers.sign(request["digest"], count=count)) == "passkey"
    signing.change(lambda tx: passkeys.remove(tx, "alice", by="root"))
    assert vote(hers.sign(request["digest"], count=10)) == "passkey"


@pytest.fixture(scope="module")
def provider():
    with Provider() as running:
        yield running


@pytest.fixture
def company(provider, tmp_path):
    provider.user, provider.lies, provider.head, provider.signs_with = dict(ANN), {}, {}, provider.key
    policy = '[groups]\nrelease = ["oidc:release"]\n'
    oidc = OidcSettings(provider.issuer, CLIENT, approve_groups=("release",), name_claim="email")
    secrets = {"CONFIRMATION_OIDC_SECRET": SECRET}
    with Running(tmp_path, policy=policy, oidc=oidc, secrets=secrets) as running:
        yield running


MAIL = {"email": "ann@example.com", "email_verified": True}
SAID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an address that nobody verified": ({"email_verified": False}, {}),
    "an address verified in words": ({"email_verified": "true"}, {}),
    "an address of which nothing is said": ({"email_verified": None}, {}),
    "an address that is a list": ({"email": ["ann@example.com"]}, {}),
    "an address with a hidden letter": ({"email": "ann\u200b@example.com"}, {}),
    "no end": ({"exp": None}, {}),
    "an end in words": ({"exp": "tomorrow"}, {}),
    "no beginning": ({"iat": None}, {}),
    "a beginning tomorrow": ({"iat": int(time.time()) + 86400}, {}),
    "not before tomorrow": ({"nbf": int(time.time()) + 86400}, {}),
    "no nonce": ({"nonce": None}, {}),
    "a nonce in a list": ({"nonce": ["x"]}, {}),
    "no audience": ({"aud": None}, {}),
    "an empty audience": ({"aud": []}, {}),
    "an audience that begins like ours": ({"aud": f"{CLIENT}-2"}, {}),
    "two audiences, made for the other": ({"aud": [CLIENT, "other"], "azp": "other"}, {}),
    "an issuer with a slash more": ({"iss": "http://127.0.0.1/"}, {}),
    "a subject that is a number": ({"sub": 7}, {}),
    "groups with the name inside": ({"groups": ["release-readers", "xrelease", "Release"]}, {}),
    "groups that are an object": ({"groups": {"release": True}}, {}),
    "a head with a condition that nobody knows": ({}, {"crit": ["b64"], "b64": False}),
    "an algorithm in other letters": ({}, {"alg": "rs256"}),
    "an algorithm for another kind of key": ({}, {"alg": "ES256"}),
    "no algorithm": ({}, {"alg": None}),
    "a key's name that leads elsewhere": ({}, {"kid": "../../dev/null"}),
}


@pytest.mark.fast_rows(
    "no algorithm",
    "another kind of key",
    "an empty audience",
    "no audience",
    "no end",
    "no nonce",
    "not before tomorrow",
    "issuer with a slash",
    "address that nobody verified",
    "groups that are an object",
    "a subject that is a number",
    "a head with a condition",
    "leads elsewhere",
    "two audiences",
    "hidden letter",
    "no beginning",
    "verified in words",
)
@pytest.mark.parametrize("what", SAID)
def test_what_a_provider_may_not_say_opens_nothing(company, provider, what):
    provider.user = {"sub": "u-1", "groups": ["release"], **MAIL}
    provider.lies, provider.head = SAID[what]
    client = browser(company)
    refused = client.get(gone(client))
    assert refused.status_code == 403, refused.text
    assert client.get("/").headers.get("location", "").startswith("/login")
    assert company.rows("SELECT count(*) FROM people") == [(0,)]


def test_a_callback_is_good_once_in_one_browser_and_begins_a_new_session(company, provider):
    provider.user = {"sub": "u-1", "groups": ["release"], **MAIL}
    client = browser(company)
    number = f"whet_confirm_{company.page_port}"
    client.cookies.set(number, "A" * 43, domain="127.0.0.1", path="/")  # chosen by somebody else
    back = gone(client)
    for odd in (re.sub(r"state=[^&]+", "state=", back), re.sub(r"state=[^&]+", "state=x&state=y", back)):
        assert client.get(odd).status_code == 403
    assert client.get(f"{back}&iss=https%3A%2F%2Fevil.example").status_code == 403
    back = gone(client)
    landed = client.get(back)
    assert landed.status_code == 200
    values = [cookie.value for cookie in client.cookies.jar if cookie.name == number]
    assert any(value != "A" * 43 for value in values)
    assert client.get(back).status_code == 403  # the same answer again
    chosen = company.page(f"{number}={'A' * 43}")
    assert chosen.get("/").headers["location"].startswith("/login")


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "\\\\evil", "/x\r\ny",
     "javascript:alert(1)", "/ok\\..", "", "evil", "/\u202eevil"],
)  # fmt: skip
def test_no_way_back_leads_elsewhere(target):
    assert safe_path(target) == "/"


def _desk(server: Running, names: dict[str, str]) -> tuple[Presses, Buttons, Buttons]:
    mine, other = Buttons(b"k" * 32, "chat"), Buttons(b"k" * 32, "other")
    channel = cast("Any", SimpleNamespace(name="chat"))
    seat = ConfiguredNotifier(channel, "telegram", mine, frozenset(), "chat")
    people = {name: NotifyPersonText({"telegram": number}) for name, number in names.items()}
    known = People(people, {"chat": "telegram"})
    return Presses(server.service, known, [seat]), mine, other


def test_presses_that_are_not_this_persons_on_this_request_as_it_is_decide_nothing(tmp_path):
    policy = '[groups]\nops = ["alice", "carol"]\n[[rules]]\neffect = "ask"\nquorum = "1 of ops"\n'
    with Running(tmp_path, policy=policy, upkeep=False) as server:
        request, second = ask(server, accepts_edits=True), ask(server, action="restart")
        for name in ("alice", "bob", "carol"):
            server.token("approve", name)
        server.token("audit", "eve")
        who = {"alice": "7", "bob": "8", "eve": "9", "agent": "10"}
        presses, mine, other = _desk(server, who)

        def data(buttons: Buttons, request_id: str, label: str = "Approve") -> str:
            notice = build_notice(server.stored(request_id), link="")
            return next(button.data for button in buttons.make_buttons(notice) if label in button.label)

        def press(text: str, user: str = "7") -> str:
            incoming = Incoming(ChatPlace("chat", "-1001", user=user), "1", "press", text=text)
            return server.run(presses(incoming))

        good = data(mine, request["id"])
        verb, number, mac = good.split(":")
        odd = {
            "by a stranger": (good, "99"),
            "by an auditor": (good, "9"),
            "by the agent": (good, "10"),
            "by somebody of no group": (good, "8"),
            "of another channel": (data(other, request["id"]), "7"),
            "moved to another request": (f"{verb}:{second['id']}:{mac}", "7"),
            "another verb": (f"d:{number}:{mac}", "7"),
            "a reason that there is not": (f"d9:{number}:{mac}", "7"),
            "its code in capitals": (f"{verb}:{number}:{mac.upper()}", "7"),
            "its code cut": (f"{verb}:{number}:{mac[:-1]}", "7"),
            "no code": (f"{verb}:{number}:", "7"),
            "more behind it": (f"{good}:x", "7"),
            "another id": (f"{verb}:{'A' * 22}:{mac}", "7"),
            "no button": ("approve", "7"),
            "a user in other digits": (good, "\uff17"),
            "a user with a very long name": (good, "9" * 100),
        }
        for why, (text, user) in odd.items():
            assert press(text, user), why
            assert server.stored(request["id"]).is_pending and server.stored(second["id"]).is_pending, why
            assert server.service.votes(request["id"]) == [], why
        refused = server.rows("SELECT principal, data FROM events WHERE kind = 'press_refused'")
        noted = {"channel": "chat", "user": "9" * 64, "why": "not a person who may decide"}
        long = [(by, json.loads(data)) for by, data in refused if "999" in by]
        assert long == [(f"telegram:{'9' * 71}", noted)]
        # A button from before a change, a delegation and a revoked token.
        alice = server.client("approve", "alice")
        change = {"details": {"version": "2"}, "digest": request["digest"]}
        changed = alice.post(f"/confirm/{request['id']}/amend", json=change)
        assert changed.status_code == 200, changed.text
        assert "another version" in press(good)
        away = {"stand_in": "bob", "until": time.time() + 600}
        assert alice.post("/delegations", json=away).status_code == 201
        newest = data(mine, second["id"])
        assert "Not decided" in press(newest)  # her seat is taken
        assert "approved by bob" in press(newest, "8")
        assert "Too late" in press(newest)
