"""Whet as an MCP server, asked by the official SDK's client, unmodified."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.running import run
from tests.mcp.rig import text_of
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

READING = ["search_sessions", "read_session", "read_memory", "list_skills", "read_skill"]


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, home: Path, server: PracticeServer) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    home.mkdir()
    model = {"provider": "practice", "base_url": server.base_url, "model": "practice-echo"}
    (home / "config.yaml").write_text(f"model: {json.dumps(model)}\n")
    return folder


def parameters(folder: Path, *arguments: str) -> StdioServerParameters:
    """How the SDK's client starts us."""
    environ = {**os.environ, "WHET_REVIEW_WORKER": "off"}
    command = ["-m", "whet", "mcp", "serve", *arguments]
    return StdioServerParameters(command=sys.executable, args=command, env=environ, cwd=folder)


@asynccontextmanager
async def session(folder: Path, *arguments: str) -> AsyncGenerator[ClientSession]:
    """The SDK's session with us; everything in it has a limit."""
    async with (
        asyncio.timeout(60),
        stdio_client(parameters(folder, *arguments)) as (read, write),
        ClientSession(read, write) as client,
    ):
        await client.initialize()
        yield client


def text(result: Any) -> str:
    return result.content[0].text


@pytest.mark.slow
async def test_search_read_and_ask(folder: Path, home: Path, server: PracticeServer) -> None:
    server.install(
        [ScriptedReply("The zyzzogeton lives in South America."), ScriptedReply("It is a leafhopper.")]
    )
    (home / "memories").mkdir()
    (home / "memories" / "USER.md").write_text("- Prefers tea\n")
    async with session(folder) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [*READING, "ask_agent"]
        asked = await client.call_tool("ask_agent", {"message": "Where does the zyzzogeton live?"})
        facts = asked.structured_content
        assert facts["text"] == "The zyzzogeton lives in South America." and facts["end_reason"] == "answered"
        again = await client.call_tool(
            "ask_agent", {"message": "What is it?", "session_id": facts["session_id"]}
        )
        assert again.structured_content["session_id"] == facts["session_id"]
        assert "zyzzogeton live?" in server.requests[-1].body.decode()
        tool_result = await client.call_tool("search_sessions", {"query": "zyzzogeton"})
        hit = tool_result.structured_content["hits"][0]
        assert hit["session_id"] == facts["session_id"]
        read = await client.call_tool("read_session", {"session_id": hit["session_id"], "seq": hit["seq"]})
        assert "leafhopper" in text(read)
        far = {"session_id": hit["session_id"], "seq": 2**63 + 1}
        assert (await client.call_tool("read_session", far)).is_error
        assert "Prefers tea" in text(await client.call_tool("read_memory", {}))
        listed = text(await client.call_tool("list_skills", {}))
        shown = await client.call_tool("read_skill", {"name": listed.partition(":")[0]})
        assert not shown.is_error and "name: debug-failing-test" in text(shown)
        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert uris[:2] == ["whet://memory/memory", "whet://memory/user"]
        assert "whet://skills/debug-failing-test" in uris
        for uri, said in (("whet://memory/user", "Prefers tea"), (uris[2], "---\nname: ")):
            assert said in text_of((await client.read_resource(uri)).contents[0])
        assert (await client.list_resource_templates()).resource_templates == []
        prompts = (await client.list_prompts()).prompts
        assert "debug-failing-test" in [prompt.name for prompt in prompts]
        got = await client.get_prompt("debug-failing-test", {"task": "Mend test_x."})
        said = text_of(got.messages[0].content)
        assert "name: debug-failing-test" in said and said.endswith("Task: Mend test_x.")
        with pytest.raises(MCPError):
            await client.get_prompt("nope", {})
        for uri in (
            "whet://memory/other",
            "whet://skills/nope",
            "whet://skills/..%2F..",
            "file:///etc/passwd",
        ):
            with pytest.raises(MCPError, match=r"(?i)there is no"):
                await client.read_resource(uri)


@pytest.mark.slow
async def test_the_sdks_newer_client_falls_back_to_the_handshake(folder: Path) -> None:
    async with asyncio.timeout(60), Client(parameters(folder, "--no-ask")) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == READING


@pytest.mark.slow
async def test_mistakes_are_told_denials_hold_and_nothing_private_is_read(
    folder: Path, server: PracticeServer
) -> None:
    code, out, _ = run(["chat", "-q", "hush zyzzogeton", "--private", "--json"], folder)
    private = json.loads(out)["session_id"]
    assert code == 0
    write = PracticeCall("write_file", json.dumps({"path": "made.txt", "content": "x"}))
    read = PracticeCall("read_file", json.dumps({"path": "there.txt"}))
    (folder / "there.txt").write_text("here")
    server.install(
        [
            ScriptedReply(tool_calls=(read, write)),
            ScriptedReply("I could not write."),
            ScriptedReply("soon", when="Be quick."),  # whether or not the one before reached the server
            ScriptedReply("late", fault=Fault(stall_after=-1)),
        ]
    )
    async with session(folder) as client:
        tool_result = await client.call_tool("search_sessions", {"query": "zyzzogeton"})
        assert tool_result.structured_content["hits"] == []
        for tool, arguments in (
            ("read_session", {"session_id": private}),
            ("read_session", {"session_id": "nothing"}),
            ("ask_agent", {"session_id": private, "message": "What did I say?"}),
            ("read_skill", {"name": "../../config.yaml"}),
            ("read_skill", {"name": "a" * 100_000}),
            ("read_skill", {"name": "a\x00b"}),
            ("search_sessions", {"query": 7}),
            ("ask_agent", {}),
            ("ask_agent", {"message": " "}),
        ):
            assert (await client.call_tool(tool, arguments)).is_error, tool
        with pytest.raises(MCPError, match="there is no tool 'nonsense'"):
            await client.call_tool("nonsense", {})

        texts: list[str | None] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            texts.append(message)

        asked = await client.call_tool("ask_agent", {"message": "Write it."}, progress_callback=progress)
        assert asked.structured_content["text"] == "I could not write." and texts == ["read_file"]
        assert "Nobody was there to ask" in server.requests[-1].body.decode()

        with pytest.raises(MCPError, match=r"[Tt]imed out"):
            await client.call_tool("ask_agent", {"message": "Take long."}, read_timeout_seconds=3.0)
        asked = await client.call_tool("ask_agent", {"message": "Be quick."})
        assert asked.structured_content["text"] == "soon"
    assert not (folder / "made.txt").exists()
    ends = [json.loads(run(["sessions", "list", "--json"], folder)[1])]
    assert len(ends[0]["sessions"] if isinstance(ends[0], dict) else ends[0]) == 4
