"""Rights that a login lacks: asked for beside those there are, and never over and over; a client that names
itself by a document; tools that only run as tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.mcp.rig import bench
from tests.mcp.serving import Answer, Request, as_json, raw, result, usual
from tests.mcp.test_login import GOOD, browse, lying
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.mcp.challenge import read_challenge
from whet.mcp.login import Tokens, read_tokens, write_tokens
from whet.mcp.oauth import Client, Earlier, log_in

DOCUMENT = "https://me.example/whet.json"


class Guarded:
    """A server whose calls want `wanted`; each login gets a token of its own, good for what was granted."""

    def __init__(self, wanted: str, *, grants: bool = True) -> None:
        self.wanted = wanted
        self.grants = grants
        self.asked: list[dict[str, list[str]]] = []
        self.calls = 0
        self._access = lying()

    def __call__(self, request: Request) -> Answer:
        if request.path != "/mcp":
            return self._place(request)
        if not request.headers.get("authorization"):
            root = f"http://{request.headers['host']}"
            where = f"{root}/.well-known/oauth-protected-resource"
            return 401, {"www-authenticate": f'Bearer resource_metadata="{where}", scope="read"'}, []
        if isinstance(request.message, dict) and request.message.get("method") == "tools/call":
            self.calls += 1
            if not self.grants or request.headers["authorization"] != "Bearer access-2":
                lacks = f'Bearer error="insufficient_scope", scope="{self.wanted}"'
                return 403, {"www-authenticate": lacks}, []
        return usual(request)

    def _place(self, request: Request) -> Answer:
        if request.path == "/token":
            return as_json({**GOOD, "access_token": f"access-{len(self.asked)}", "expires_in": 10**9})
        return self._access(request)  # type: ignore[operator,no-any-return]

    async def login(self, home: Path, url: str) -> Tokens:
        """Log in as `whet mcp login` does, with what was refused before."""
        tasks: list[asyncio.Task[str]] = []

        def show(address: str) -> None:
            query = parse_qs(urlsplit(address).query)
            self.asked.append(query)
            back = f"{query['redirect_uri'][0]}?code=c&state={query['state'][0]}"
            tasks.append(asyncio.create_task(browse(back)))

        before = read_tokens(Home(home), "web", url)
        earlier = Earlier(read_challenge(Home(home), "web", url), before.rights if before else ())
        tokens = await log_in(url, Client("known"), show, lambda: 1_000_000, 30, earlier)
        await asyncio.gather(*tasks)
        assert tokens is not None
        write_tokens(Home(home), "web", tokens)
        return tokens


async def test_a_right_that_a_call_wants_is_asked_for_beside_those_there_are(home: Path) -> None:
    server = Guarded("write")
    async with raw(server) as (url, _):
        await server.login(home, url)
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            out = await b.call("mcp__web__echo", text="hi")
            assert "wants more rights for this than the login has (write)" in out.text
            assert "whet mcp login web" in out.text
            await server.login(home, url)
            assert (await b.call("mcp__web__echo", text="hi")).text.endswith("you said: hi")
    assert [texts["scope"] for texts in server.asked] == [["read"], ["read write"]]


async def test_a_right_that_is_never_granted_is_asked_for_once(home: Path) -> None:
    server = Guarded("write", grants=False)
    async with raw(server) as (url, _):
        await server.login(home, url)
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            assert "wants more rights" in (await b.call("mcp__web__echo", text="hi")).text
            await server.login(home, url)
            # The new login is taken up by a second try; then a refused call is one request.
            for calls in (3, 4):
                out = await b.call("mcp__web__echo", text="hi")
                assert "although the login asked for the right to it (write)" in out.text
                assert "another login would get no more" in out.text
                assert server.calls == calls


def test_a_client_names_itself_by_its_document_where_the_server_takes_that() -> None:
    for takes in (True, False):
        sent: list[Request] = []

        async def test(takes: bool = takes, sent: list[Request] = sent) -> list[str]:
            asked: list[str] = []

            def show(address: str) -> None:
                query = parse_qs(urlsplit(address).query)
                asked.append(query["client_id"][0])
                back = f"{query['redirect_uri'][0]}?code=c&state={query['state'][0]}"
                tasks.append(asyncio.create_task(browse(back)))

            tasks: list[asyncio.Task[str]] = []
            changes = {"client_id_metadata_document_supported": takes, "token": GOOD}
            async with raw(lying(sent, **changes)) as (url, requests):  # type: ignore[arg-type]
                tokens = await log_in(url, Client(document=DOCUMENT), show, lambda: 0, 30)
                await asyncio.gather(*tasks)
                assert tokens is not None and tokens.client_id == asked[0]
                assert any(request.path == "/register" for request in requests) is not takes
            return asked

        assert asyncio.run(test()) == [DOCUMENT if takes else "me"]
        form = parse_qs(str(sent[0].message))
        assert form["client_id"] == [DOCUMENT if takes else "me"] and "client_secret" not in form


async def test_a_tool_that_only_runs_as_a_task_is_not_offered(home: Path) -> None:
    def handler(request: Request) -> Answer:
        if not isinstance(request.message, dict) or request.message.get("method") != "tools/list":
            return usual(request)
        bare = {"inputSchema": {"type": "object"}}
        return result(
            request,
            {
                "tools": [
                    {"name": "only", **bare, "execution": {"taskSupport": "required"}},
                    {"name": "may", **bare, "execution": {"taskSupport": "optional"}},
                    {"name": "never", **bare, "execution": {"taskSupport": "forbidden"}},
                ]
            },
        )

    async with raw(handler) as (url, _), bench(home, {"web": McpServerSettings(url=url)}) as b:
        assert sorted(tool.name for tool in b.servers.tools()) == ["mcp__web__may", "mcp__web__never"]
