"""Where a login is found: whatever a server refuses first, and at servers of 2025-03-26, which describe no
resource and perhaps nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.mcp.rig import bench
from tests.mcp.serving import Answer, Request, as_json, raw, usual
from tests.mcp.test_login import GOOD, browse
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.mcp.callback import LoginFailed
from whet.mcp.challenge import read_challenge
from whet.mcp.login import write_tokens
from whet.mcp.oauth import Client, Earlier, log_in

ELSEWHERE = "/described/here.json"


class Refusing:
    """A server that wants a login for one method, and is found by what its 401 names or by nothing."""

    def __init__(self, method: str, described: Sequence[str], resource: str = "/mcp") -> None:
        self.method = method
        self.resource = resource
        self.described = described
        self.paths: list[str] = []

    def __call__(self, request: Request) -> Answer:
        root = f"http://{request.headers['host']}"
        self.paths.append(request.path)
        if request.path == "/token":
            return as_json({**GOOD, "expires_in": 10**9})
        if request.path == "/register":
            return as_json({"client_id": "me"}, 201)
        if request.path == ELSEWHERE and "resource" in self.described:
            return as_json({"resource": f"{root}{self.resource}", "authorization_servers": [root]})
        if request.path == "/.well-known/oauth-authorization-server" and "authority" in self.described:
            fields = {"issuer": root, "code_challenge_methods_supported": ["S256"]}
            ends = {f"{name}_endpoint": f"{root}/{name}" for name in ("authorization", "token")}
            return as_json({**fields, **ends, "registration_endpoint": f"{root}/register"})
        if request.path != "/mcp":
            return 404, {}, []
        asked = request.message.get("method", "") if isinstance(request.message, dict) else ""
        is_open = self.method not in ("", asked)
        if is_open or request.headers.get("authorization") == f"Bearer {GOOD['access_token']}":
            return usual(request)
        where = f'Bearer resource_metadata="{root}{ELSEWHERE}"' if "resource" in self.described else "Bearer"
        return 401, {"www-authenticate": where}, []


async def _come_back(home: Path, url: str, asked: list[str]) -> bool:
    """Log in as `whet mcp login` does; whether a login was wanted."""
    tasks: list[asyncio.Task[str]] = []

    def show(address: str) -> None:
        asked.append(urlsplit(address).path)
        query = parse_qs(urlsplit(address).query)
        back = f"{query['redirect_uri'][0]}?code=c&state={query['state'][0]}"
        tasks.append(asyncio.create_task(browse(back)))

    earlier = Earlier(read_challenge(Home(home), "web", url))
    tokens = await log_in(url, Client(), show, lambda: 1_000_000, 30, earlier)
    await asyncio.gather(*tasks)
    if tokens is not None:
        write_tokens(Home(home), "web", tokens)
    return tokens is not None


@pytest.mark.parametrize("method", ["", "initialize", "tools/list", "tools/call"])
async def test_a_login_is_found_by_whatever_is_refused(home: Path, method: str) -> None:
    """Also where the handshake passes without one, or the list, and a call is the first to be refused."""
    server = Refusing(method, ["resource", "authority"])
    asked: list[str] = []
    async with raw(server) as (url, _):
        settings = {"web": McpServerSettings(url=url)}
        if method == "tools/call":
            assert not await _come_back(home, url, asked)  # nothing was refused yet
            async with bench(home, settings) as b:
                refused = (await b.call("mcp__web__echo", text="x")).text
                assert "wants a login. whet mcp login web" in refused
        assert await _come_back(home, url, asked)
        async with bench(home, settings) as b:
            assert (await b.call("mcp__web__echo", text="hi")).text.endswith("you said: hi")
    assert asked == ["/authorization"] and ELSEWHERE in server.paths


@pytest.mark.parametrize(("described", "place"), [(["authority"], "/authorization"), ([], "/authorize")])
async def test_an_old_server_is_its_own_authority(home: Path, described: list[str], place: str) -> None:
    """It describes no resource: what it says of itself at its origin counts, else the usual paths there."""
    server = Refusing("", described)
    asked: list[str] = []
    async with raw(server) as (url, _):
        assert await _come_back(home, url, asked)
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            assert (await b.call("mcp__web__echo", text="hi")).text.endswith("you said: hi")
    assert asked == [place] and "/register" in server.paths and "/token" in server.paths


@pytest.mark.parametrize("resource", ["", "/", "/mcp/"])
async def test_a_resource_above_the_server_covers_it(home: Path, resource: str) -> None:
    server = Refusing("", ["resource", "authority"], resource)
    async with raw(server) as (url, _):
        assert await _come_back(home, url, [])


@pytest.mark.parametrize("resource", ["/mc", "/mcp/below", "/mcpx"])
async def test_a_resource_beside_the_server_is_refused(home: Path, resource: str) -> None:
    server = Refusing("", ["resource", "authority"], resource)
    async with raw(server) as (url, _):
        with pytest.raises(LoginFailed):
            await _come_back(home, url, [])
    assert "/token" not in server.paths
