"""Logging in at the official SDK's own authorization server, and answers that must not be believed."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.mcp.rig import bench
from tests.mcp.sdk_server import make
from tests.mcp.serving import Answer, Logins, Request, as_json, raw, sdk_over_http, usual
from whet.config.paths import Home
from whet.config.schema import McpServer
from whet.log import mask
from whet.mcp.login import read_tokens, write_tokens
from whet.mcp.oauth import Client, LoginFailed, log_in


async def browse(address: str) -> str:
    """Open the address as a browser does, follow where it leads, and give the last page."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as http:
        return (await http.get(address)).text


async def login(url: str, wait_s: float = 10, client: Client | None = None, go: bool = True) -> object:
    """Log in with a browser at hand."""
    pages: list[asyncio.Task[str]] = []

    def show(address: str) -> None:
        if go:
            pages.append(asyncio.create_task(browse(address)))

    try:
        return await log_in(url, client or Client(), show, lambda: 1_000_000, wait_s)
    finally:
        await asyncio.gather(*pages, return_exceptions=True)


def test_login_call_renewal_and_a_login_that_is_over(home: Path) -> None:
    logins = Logins()

    async def test(url: str) -> None:
        server = {"web": McpServer(url=url)}
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

    with sdk_over_http(make, logins) as url:
        asyncio.run(test(url))


def test_a_refused_login_says_so(home: Path) -> None:
    logins = Logins()
    logins.refuse = True
    with sdk_over_http(make, logins) as url, pytest.raises(LoginFailed, match="refused: access_denied"):
        asyncio.run(login(url))


def test_nobody_comes(home: Path) -> None:
    with (
        sdk_over_http(make, Logins()) as url,
        pytest.raises(LoginFailed, match=r"nobody logged in within 0.1 s"),
    ):
        asyncio.run(login(url, 0.1, go=False))


def test_a_server_without_login_wants_none(home: Path) -> None:
    async def test() -> None:
        async with raw(usual) as (url, _):
            assert await login(url) is None

    asyncio.run(test())


def test_an_answer_with_another_state_is_not_taken(home: Path) -> None:
    said: list[str] = []

    async def test(url: str) -> None:
        found = asyncio.Event()
        addresses: list[str] = []

        def show(address: str) -> None:
            addresses.append(address)
            found.set()

        running = asyncio.create_task(log_in(url, Client(), show, lambda: 0, 10))
        await found.wait()
        asked = parse_qs(urlsplit(addresses[0]).query)
        assert asked["code_challenge_method"] == ["S256"] and asked["resource"] == [url]
        back = asked["redirect_uri"][0]
        said.append(await browse(f"{back}?code=evil&state=guess"))
        said.append(await browse(back.replace("/callback", "/other")))
        said.append(await browse(addresses[0]))
        assert await running

    with sdk_over_http(make, Logins()) as url:
        asyncio.run(test(url))
    assert "no login that is under way" in said[0] and "Nothing is here" in said[1] and "logged in" in said[2]


def lying(**changes: object) -> object:
    """Give a handler for a server whose metadata has these changes."""

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
            }
            return as_json({key: changes.get(key, value) for key, value in metadata.items()})
        if request.path == "/register":
            return as_json(changes.get("registered", {"client_id": "me"}), 201)
        if request.path == "/token":
            return as_json(changes.get("token", {}))
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
def test_a_server_that_lies_about_its_login_is_not_followed(changes: dict[str, object], said: str) -> None:
    async def test() -> None:
        async with raw(lying(**changes)) as (url, _):  # type: ignore[arg-type]
            await login(url, 0.2)

    with pytest.raises(LoginFailed) as caught:
        asyncio.run(test())
    assert said in caught.value.message


@pytest.mark.parametrize("token", [{}, {"access_token": "x", "token_type": "mac"}, {"access_token": 7}, []])
def test_a_token_that_is_none_is_not_kept(token: object) -> None:
    async def test() -> None:
        async with raw(lying(token=token)) as (url, _):  # type: ignore[arg-type]
            tasks: list[asyncio.Task[str]] = []

            def show(address: str) -> None:
                asked = parse_qs(urlsplit(address).query)
                back = f"{asked['redirect_uri'][0]}?code=c&state={asked['state'][0]}"
                tasks.append(asyncio.create_task(browse(back)))

            try:
                await log_in(url, Client("known"), show, lambda: 0, 10)
            finally:
                await asyncio.gather(*tasks)

    with pytest.raises(LoginFailed, match="token"):
        asyncio.run(test())
