"""People sign in with a provider of identities, and its groups are members of a quorum."""

from __future__ import annotations

import time
from collections.abc import Mapping

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.confirm.provider import CLIENT, SECRET, Provider
from tests.confirm.running import SUBMIT, Running, field_of
from whet.contract.errors import ConfigError
from whet_confirm import people, stand_ins
from whet_confirm.oidc import OidcProvider, OidcSettings, SignInRefused, read_oidc

POLICY = '[groups]\nrelease = ["carol", "oidc:release"]\n[[rules]]\naction = "deploy"\neffect = "ask"\n'
POLICY += 'quorum = "2 of release"\n'
ANN = {"sub": "u-1", "preferred_username": "ann", "groups": ["release", "staff"]}
BEN = {"sub": "u-2", "preferred_username": "ben", "groups": ["release"]}


@pytest.fixture(scope="module")
def provider():
    with Provider() as running:
        yield running


@pytest.fixture
def server(provider, tmp_path):
    provider.user, provider.lies, provider.head, provider.signs_with = dict(ANN), {}, {}, provider.key
    oidc = OidcSettings(provider.issuer, CLIENT, approve_groups=("release",), audit_groups=("staff",))
    secrets = {"CONFIRMATION_OIDC_SECRET": SECRET}
    with Running(tmp_path, policy=POLICY, oidc=oidc, secrets=secrets) as running:
        yield running


def browser(server: Running) -> httpx2.Client:
    url = f"http://127.0.0.1:{server.page_port}"
    client = httpx2.Client(base_url=url, timeout=30, follow_redirects=False)
    server.clients.append(client)
    return client


def gone(client: httpx2.Client) -> str:
    """Go to the provider; give the address that it sends the browser back to."""
    sent = client.get("/oidc/start?next=/history")
    assert sent.status_code == 303, sent.text
    return httpx2.get(sent.headers["location"]).headers["location"]


def signed_in(server: Running, user: Mapping[str, object] | None = None) -> httpx2.Client:
    """A browser of somebody who signed in."""
    provider_user = user
    if provider_user is not None:
        server.provider.user = dict(provider_user)
    client = browser(server)
    back = client.get(gone(client))
    assert back.status_code == 200 and 'url=/history"' in back.text, back.text
    return client


@pytest.fixture(autouse=True)
def _known(server, provider):
    server.provider = provider


def approve(client: httpx2.Client, request: dict[str, str]) -> httpx2.Response:
    page = client.get(f"/r/{request['id']}").text
    csrf = field_of(page, "csrf")
    form = {"csrf": csrf, "verdict": "approve", "digest": request["digest"]}
    origin = str(client.base_url).rstrip("/")
    return client.post(f"/r/{request['id']}/decide", data=form, headers={"origin": origin})


def test_two_people_of_the_providers_group_are_a_quorum(server):
    request = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()
    assert "Sign in with your company" in browser(server).get("/login").text
    ann, ben = signed_in(server, ANN), signed_in(server, BEN)
    assert approve(ann, request).headers["location"].endswith("done=voted")
    assert approve(ben, request).headers["location"].endswith("done=decided")
    assert server.stored(request["id"]).resolved_by == "ann, ben"
    kinds = [row[0] for row in server.rows("SELECT kind FROM events WHERE principal = 'ann'")]
    assert kinds[:2] == ["groups_changed", "login"]


def test_a_person_of_another_group_may_look_and_one_of_none_stays_out(server):
    request = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()
    eve = signed_in(server, {"sub": "u-3", "preferred_username": "eve", "groups": ["staff"]})
    page = eve.get(f"/r/{request['id']}")
    assert page.status_code == 200 and "may look but not decide" in page.text
    server.provider.user = {"sub": "u-4", "preferred_username": "mal", "groups": ["sales"]}
    client = browser(server)
    refused = client.get(gone(client))
    assert refused.status_code == 403 and "in no group" in refused.text


LIES = {
    "another nonce": ({"nonce": "x"}, {}),
    "for another client": ({"aud": "somebody"}, {}),
    "for two clients": ({"aud": [CLIENT, "other"]}, {}),
    "of another issuer": ({"iss": "https://evil.example"}, {}),
    "run out": ({"exp": int(time.time()) - 3600}, {}),
    "without a subject": ({"sub": None}, {}),
    "not signed": ({}, {"alg": "none"}),
    "signed with a shared secret": ({}, {"alg": "HS256"}),
    "signed with a key that is not published": ({}, {"kid": "second"}),
    "without a name": ({"preferred_username": ""}, {}),
    "a name that is none": ({"preferred_username": "system:root"}, {}),
    "groups that are no list": ({"groups": "release"}, {}),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_does_not_hold_opens_nothing(server, lie):
    server.provider.lies, server.provider.head = LIES[lie]
    client = browser(server)
    assert client.get(gone(client)).status_code == 403
    assert client.get("/").headers.get("location", "").startswith("/login")
    assert server.rows("SELECT count(*) FROM people") == [(0,)]


def test_a_foreign_signature_opens_nothing(server):
    server.provider.signs_with = rsa.generate_private_key(65537, 2048)
    client = browser(server)
    assert client.get(gone(client)).status_code == 403


def test_an_answer_is_good_once_and_in_the_browser_that_asked(server):
    client, other = browser(server), browser(server)
    address = gone(client)
    assert "another browser" in other.get(address).text
    address = gone(client)
    assert client.get(address).status_code == 200
    assert client.get(address).status_code == 403
    assert client.get("/oidc/callback?state=made-up&code=x").status_code == 403
    state = gone(client).partition("state=")[2]
    assert "access_denied" in client.get(f"/oidc/callback?error=access_denied&state={state}").text


def test_a_name_stays_with_its_subject_until_it_is_forgotten(server):
    signed_in(server, ANN)
    for user in (ANN | {"sub": "u-9"}, ANN | {"preferred_username": "anna"}):
        server.provider.user = user
        client = browser(server)
        assert client.get(gone(client)).status_code == 403
    server.change(lambda tx: people.forget(tx, "ann", by="root"))
    signed_in(server, ANN | {"sub": "u-9"})


def test_a_sign_in_ends_with_its_time_and_so_do_its_groups(server):
    client = signed_in(server, ANN)
    assert client.get("/history").status_code == 200
    server.service.timeline.raise_floor(time.time() + 13 * 3600)
    assert client.get("/history").headers["location"].startswith("/login")
    now_s = server.service.timeline.now_s()
    assert server.read(lambda db: stand_ins.list_members(db, "oidc:release", now_s)) == []


def test_a_provider_that_is_away_or_calls_itself_otherwise_is_said(server):
    async def begin(issuer: str) -> None:
        await OidcProvider(OidcSettings(issuer, CLIENT), {}, "http://x").begin()

    with pytest.raises(SignInRefused, match="does not answer"):
        server.run(begin("http://127.0.0.1:9"))
    with pytest.raises(SignInRefused, match="another address"):
        server.run(begin(server.provider.issuer.replace("127.0.0.1", "localhost")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('issuer = "http://login.example.org"\nclient_id = "x"\napprove_groups = ["a"]', "https"),
        ('issuer = "https://login.example.org"\nclient_id = "x"', "nobody"),
        ('issuer = "https://login.example.org"\nclient_id = "x"\ncolour = 1', "colour"),
    ],
)
def test_a_file_that_is_wrong_says_why(tmp_path, text, said):
    (tmp_path / "oidc.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_oidc(tmp_path / "oidc.toml")
    assert read_oidc(tmp_path / "none.toml") is None
