"""Whet as an MCP server over HTTP, asked by the official SDK's client, unmodified."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client, ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.rig import text_of
from tests.serve.conftest import Api
from tests.typed_words import read_typed_words
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply


@asynccontextmanager
async def session(api: Api, token: str = "") -> AsyncGenerator[ClientSession]:
    """The SDK's session; everything in it has a limit."""
    headers = {"authorization": f"Bearer {token or api.token}"}
    async with (
        asyncio.timeout(60),
        httpx2.AsyncClient(headers=headers) as http,
        streamable_http_client(f"{api.url}/mcp", http_client=http) as (read, write),
        ClientSession(read, write) as client,
    ):
        await client.initialize()
        yield client


async def test_the_agent_is_asked_and_its_progress_told(api: Api) -> None:
    (api.workspace / "there.txt").write_text("here")
    read = PracticeCall("read_file", json.dumps({"path": "there.txt"}))
    api.say(ScriptedReply(tool_calls=(read,)), ScriptedReply("It says here."))
    async with session(api) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[0] == "search_sessions" and names[-1] == "ask_agent"
        assert str((await client.list_resources()).resources[0].uri) == "whet://memory/memory"
        texts: list[str | None] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            texts.append(message)

        asked = await client.call_tool("ask_agent", {"message": "What?"}, progress_callback=progress)
        assert asked.structured_content["text"] == "It says here." and texts == ["read_file"]
        assert "# memory" in text_of(await client.call_tool("read_memory", {}))
        api.say(ScriptedReply("Noted."))
        await client.call_tool("ask_agent", {"message": "I always use tox, says the client."})
        assert "says the client" not in read_typed_words(api.home.root)


@pytest.mark.slow
async def test_a_slow_answer_is_kept_alive_and_a_call_can_be_called_off(api: Api) -> None:
    api.say(
        ScriptedReply("late", fault=Fault(delay_s=0.5)), ScriptedReply("never", fault=Fault(stall_after=-1))
    )
    async with session(api) as client:
        asked = await client.call_tool("ask_agent", {"message": "Slowly."})
        assert asked.structured_content["text"] == "late"
        with pytest.raises(MCPError, match=r"[Tt]imed out"):
            await client.call_tool("ask_agent", {"message": "Hang."}, read_timeout_seconds=1.0)
    try:
        async with asyncio.timeout(30):
            while api.hosted.running:
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"the turn still runs:\n{api.stacks()}")


def test_only_owners_are_let_in(api: Api) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with api.http() as http:
        assert http.post("/mcp", json=ping).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert (
            http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code
            == 202
        )
        assert http.post("/mcp", json=[ping]).status_code == 400
        assert http.get("/mcp").status_code == 405
        error = http.post("/mcp", json={**ping, "method": "nonsense"}).json()["error"]
        assert error["code"] == -32601
    with api.http(api.new_token("talker")) as http:
        assert http.post("/mcp", json=ping).status_code == 403
    with api.http("wrong") as http:
        assert http.post("/mcp", json=ping).status_code == 401


async def test_the_sdks_newer_client_falls_back_to_the_handshake(api: Api) -> None:
    headers = {"authorization": f"Bearer {api.token}"}
    async with (
        asyncio.timeout(60),
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{api.url}/mcp", http_client=http)) as client,
    ):
        assert len((await client.list_tools()).tools) == 6
