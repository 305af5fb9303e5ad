"""Logging in at the official SDK's own authorization server, and answers that must not be believed."""

from __future__ import annotations

import asyncio
import base64
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.mcp.rig import bench
from tests.mcp.sdk_server import make
from tests.mcp.serving import Answer, Logins, Request, as_json, raw, sdk_over_http, usual
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.log import mask
from whet.mcp.login import Tokens, read_tokens, write_tokens
from whet.mcp.oauth import Client, LoginFailed, log_in


async def browse(address: str) -> str:
    """Open the address as a browser does, follow where it leads, and give the last page."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=30) as http:
        return (await http.get(address)).text


async def login(url: str, wait_s: float = 30, client: Client | None = None, go: bool = True) -> object:
    """Log in with a browser at hand."""
    pages: list[asyncio.Task[str]] = []

    def show(address: str) -> None:
        if go:
            pages.append(asyncio.create_task(browse(address)))

    try:
        return await log_in(url, client or Client(), show, lambda: 1_000_000, wait_s)
    finally:
        await asyncio.gather(*pages, return_exceptions=True)


@pytest.mark.slow
async def test_login_call_renewal_and_a_login_that_is_over(home: Path) -> None:
    logins = Logins()
    logins.checks_resource = True
    with sdk_over_http(make, logins) as url:
        server = {"web": McpServerSettings(url=url)}
        async with bench(home, server) as b:
            assert "wants a login; whet mcp login web" in b.told[0]
        (home / "mcp" / "web.json").unlink()
        tokens = await login(url)
        write_tokens(Home(home), "web", tokens)  # type: ignore[arg-type]
        path = home / "mcp" / "web.login.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        kept = read_tokens(Home(home), "web", url)
        assert kept and kept.access_token in logins.tokens and kept.expires_at_ms == 1_000_000 + 3_600_000
        assert kept.access_token not in mask(path.read_text())
        assert read_tokens(Home(home), "web", url + "x") is None
        async with bench(home, server) as b:
            assert (await b.call("mcp__web__add", a=2, b=40)).text.endswith("\n42")
            renewed = read_tokens(Home(home), "web", url)  # it had run out by the tests' clock
            assert renewed and renewed.access_token != kept.access_token
            logins.tokens.clear()  # the server forgets: a refused token is renewed too
            assert (await b.call("mcp__web__add", a=1, b=1)).text.endswith("\n2")
            logins.tokens.clear()
            logins.refresh.clear()
            assert "wants a login" in (await b.call("mcp__web__add", a=1, b=1)).text
            write_tokens(Home(home), "web", await login(url))  # type: ignore[arg-type]
            assert (await b.call("mcp__web__add", a=3, b=1)).text.endswith("\n4")
            assert {token.resource for token in logins.tokens.values()} == {url}
            for token in logins.tokens.values():
                token.resource = "https://other.example/mcp"  # as if meant for another server
            logins.refresh.clear()
            assert "wants a login" in (await b.call("mcp__web__add", a=1, b=1)).text


def test_a_refused_login_says_so(home: Path) -> None:
    logins = Logins()
    logins.refuse = True
    with sdk_over_http(make, logins) as url, pytest.raises(LoginFailed, match="refused: access_denied"):
        asyncio.run(login(url))


@pytest.mark.slow
def test_nobody_comes(home: Path) -> None:
    with (
        sdk_over_http(make, Logins()) as url,
        pytest.raises(LoginFailed, match=r"nobody logged in within 0.1 s"),
    ):
        asyncio.run(login(url, 0.1, go=False))


async def test_a_server_without_login_wants_none(home: Path) -> None:
    async with raw(usual) as (url, _):
        assert await login(url) is None


async def test_an_answer_with_another_state_is_not_taken(home: Path) -> None:
    texts: list[str] = []
    with sdk_over_http(make, Logins()) as url:
        event = asyncio.Event()
        addresses: list[str] = []

        def show(address: str) -> None:
            addresses.append(address)
            event.set()

        running = asyncio.create_task(log_in(url, Client(), show, lambda: 0, 30))
        await event.wait()
        asked = parse_qs(urlsplit(addresses[0]).query)
        assert asked["code_challenge_method"] == ["S256"] and asked["resource"] == [url]
        back = asked["redirect_uri"][0]
        texts.append(await browse(f"{back}?code=evil&state=guess"))
        texts.append(await browse(back.replace("/callback", "/other")))
        texts.append(await browse(addresses[0]))
        assert await running
    assert (
        "no login that is under way" in texts[0] and "Nothing is here" in texts[1] and "logged in" in texts[2]
    )


def lying(tokens: list[Request] | None = None, **changes: object) -> object:
    """Give a handler for a server whose metadata has these changes; `tokens` gets what the token endpoint is
    sent."""
    tokens = [] if tokens is None else tokens

    def handler(request: Request) -> Answer:
        root = f"http://{request.headers['host']}"
        if request.path.startswith("/.well-known/oauth-protected-resource"):
            resource = {"resource": f"{root}/mcp", "authorization_servers": [root]}
            return as_json({key: changes.get(key, value) for key, value in resource.items()})
        if request.path.startswith("/.well-known/oauth-authorization-server"):
            metadata = {
                "issuer": root,
                "authorization_endpoint": f"{root}/authorize",
                "token_endpoint": f"{root}/token",
                "registration_endpoint": f"{root}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": None,
                "authorization_response_iss_parameter_supported": None,
                "client_id_metadata_document_supported": None,
            }
            return as_json({key: changes.get(key, value) for key, value in metadata.items()})
        if request.path == "/register":
            return as_json(changes.get("registered", {"client_id": "me"}), 201)
        if request.path == "/token":
            tokens.append(request)
            token, status = changes.get("token", {}), int(str(changes.get("status", 200)))
            return (status, {}, [token]) if isinstance(token, bytes) else as_json(token, status)
        return 401, {}, []

    return handler


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resource": "https://other.example/mcp"}, "which is not http://127.0.0.1"),
        ({"authorization_servers": ["http://login.example"]}, "not to be trusted"),
        ({"authorization_servers": ["file:///etc/passwd"]}, "not to be trusted"),
        ({"issuer": "https://other.example"}, "speaks for another issuer"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not offer PKCE with S256"),
        ({"authorization_endpoint": "http://login.example/a"}, "not to be trusted"),
        ({"token_endpoint": "javascript:alert(1)"}, "not to be trusted"),
        ({"registration_endpoint": ""}, "lets no client register itself"),
        ({"registered": {"error": "invalid_redirect_uri"}}, "refused the registration"),
    ],
)
async def test_a_server_that_lies_of_its_login_is_not_followed(changes: dict[str, object], said: str) -> None:
    with pytest.raises(LoginFailed) as caught:
        async with raw(lying(**changes)) as (url, _):  # type: ignore[arg-type]
            await login(url, 0.2)
    assert said in caught.value.message


async def come_back(url: str, client: Client | None = None, more: str = "") -> Tokens | None:
    """Log in at a server whose page of consent is not there: go straight to the answer."""
    tasks: list[asyncio.Task[str]] = []

    def show(address: str) -> None:
        asked = parse_qs(urlsplit(address).query)
        back = f"{asked['redirect_uri'][0]}?code=c&state={asked['state'][0]}{more}"
        tasks.append(asyncio.create_task(browse(back)))

    try:
        return await log_in(url, client or Client(), show, lambda: 0, 30)
    finally:
        await asyncio.gather(*tasks)


GOOD = {"access_token": "access-1", "refresh_token": "refresh-1", "expires_in": 3600}
PAIR = "Basic " + base64.b64encode(b"me%3A1:s%2Fecret").decode()


@pytest.mark.parametrize(
    ("offered", "registered", "shown"),
    [
        (None, {}, "basic"),
        (["client_secret_basic", "client_secret_post"], {}, "basic"),
        (["client_secret_post"], {}, "post"),
        (["client_secret_basic"], {"token_endpoint_auth_method": "client_secret_post"}, "post"),
        (["none"], {"token_endpoint_auth_method": "none"}, "none"),
    ],
)
async def test_the_client_shows_its_secret_as_the_server_wants_it(
    home: Path, offered: list[str] | None, registered: dict[str, str], shown: str
) -> None:
    asked: list[Request] = []
    changes: dict[str, object] = {
        "token_endpoint_auth_methods_supported": offered,
        "registered": {"client_id": "me:1", "client_secret": "s/ecret", **registered},
        "token": GOOD,
    }
    async with raw(lying(asked, **changes)) as (url, requests):  # type: ignore[arg-type]
        tokens = await come_back(url)
        assert tokens and tokens.access_token == "access-1"
        write_tokens(Home(home), "web", tokens)
        async with bench(home, {"web": McpServerSettings(url=url)}):
            pass  # it has run out by the tests' clock, and is renewed
        wanted = next(request for request in requests if request.path == "/register").message
        assert wanted["token_endpoint_auth_method"] == (offered or ["none"])[0]
    assert len(asked) >= 2
    for one in asked:
        form = parse_qs(str(one.message))
        assert (one.headers.get("authorization") == PAIR) is (shown == "basic")
        assert (form.get("client_secret") == ["s/ecret"]) is (shown == "post")
        assert form["client_id"] == ["me:1"] and form["resource"][0].endswith("/mcp")


@pytest.mark.parametrize(
    ("named", "promises", "taken"),
    [
        ("", False, True),
        ("", True, False),
        ("&iss=https://other.example", False, False),
        ("&iss={root}", True, True),
    ],
)
async def test_an_answer_of_another_issuer_is_not_taken(named: str, promises: bool, taken: bool) -> None:
    with nullcontext() if taken else pytest.raises(LoginFailed, match="another issuer"):
        changes = {"authorization_response_iss_parameter_supported": promises, "token": GOOD}
        async with raw(lying(**changes)) as (url, _):  # type: ignore[arg-type]
            await come_back(url, Client("known"), named.format(root=url.removesuffix("/mcp")))


async def test_a_way_to_show_the_secret_that_is_not_known_is_said() -> None:
    with pytest.raises(LoginFailed, match="by private_key_jwt, which is not known here"):
        changes = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
        async with raw(lying(**changes)) as (url, _):  # type: ignore[arg-type]
            await come_back(url, Client("me", "secret"))


async def test_a_token_that_lasts_longer_than_time_is_kept() -> None:
    async with raw(lying(token={**GOOD, "expires_in": 1e308})) as (url, _):  # type: ignore[arg-type]
        assert await come_back(url, Client("known"))


def test_no_login_goes_out_unencrypted() -> None:
    with pytest.raises(LoginFailed, match="is not encrypted"):
        asyncio.run(login("http://mcp.example.com/mcp"))


@pytest.mark.slow
async def test_a_refresh_token_is_used_once_by_however_many(home: Path) -> None:
    logins = Logins()
    used: list[str] = []
    exchange = logins.exchange_refresh_token

    async def counted(client: Any, refresh_token: Any, scopes: list[str]) -> Any:
        used.append(refresh_token.token)
        return await exchange(client, refresh_token, scopes)

    logins.exchange_refresh_token = counted  # type: ignore[method-assign]
    with sdk_over_http(make, logins) as url:
        write_tokens(Home(home), "web", await login(url))  # type: ignore[arg-type]
        server = {"web": McpServerSettings(url=url)}
        async with bench(home, server) as one, bench(home, server) as other:
            logins.tokens.clear()  # each finds that its token is refused
            used.clear()
            outs = await asyncio.gather(*(b.call("mcp__web__add", a=1, b=1) for b in (one, other) * 3))
            assert [out.text[-1] for out in outs] == ["2"] * 6 and len(used) == 1


@pytest.mark.parametrize(
    ("status", "token", "said"),
    [
        (200, b'{"access_token": "\xe9"}', "wants a login"),
        (503, {}, "the login at the MCP server web can't be renewed now (HTTP 503)"),
        (400, {"error": "invalid_grant"}, "wants a login"),
        (200, {"access_token": "x" * 300_000}, "wants a login"),
    ],
)
async def test_a_login_that_can_not_be_renewed_says_whether_to_wait(
    home: Path, status: int, token: dict[str, str] | bytes, said: str
) -> None:
    async with raw(lying(status=status, token=token)) as (url, _):  # type: ignore[arg-type]
        kept = Tokens(url, "old", "refresh", 1, url.replace("/mcp", "/token"), url, "me")
        write_tokens(Home(home), "web", kept)
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            assert said in b.told[0]


@pytest.mark.parametrize(
    ("headers", "more", "said"),
    [
        ({"Authorization": "Bearer ${KEY}"}, {}, "hold a key, and its url is not encrypted"),
        ({"X-Api-Key": "abc"}, {}, "hold a key"),
        ({"Authorization": "Bearer ${KEY}"}, {"allow_http": True}, "can't be reached"),
        ({"X-Team": "blue"}, {}, "can't be reached"),
    ],
)
async def test_keys_go_out_encrypted_or_where_they_are_allowed_to(
    home: Path, headers: dict[str, str], more: dict[str, Any], said: str
) -> None:
    server = McpServerSettings(url="http://255.255.255.255:1/mcp", headers=headers, **more)
    async with bench(home, {"web": server}, {"KEY": "secret-key"}) as b:
        assert said in b.told[0]


@pytest.mark.parametrize(
    "token",
    [{}, {"access_token": "x", "token_type": "mac"}, {"access_token": 7}, [], b'{"access_token": "\xe9"}'],
)
async def test_a_token_that_is_none_is_not_kept(token: object) -> None:
    with pytest.raises(LoginFailed, match="token"):
        async with raw(lying(token=token)) as (url, _):  # type: ignore[arg-type]
            await come_back(url, Client("known"))
