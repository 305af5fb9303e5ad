"""MCP servers that the editor brings for a session: the official SDK's own servers, over stdio and HTTP."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from acp.schema import AgentThoughtChunk, EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer
from mcp.server.auth.provider import AccessToken

from tests.editors.rig import Desk, does, pick
from tests.editors.test_files import results
from tests.mcp.sdk_server import make
from tests.mcp.serving import Logins, sdk_over_http
from whet.sandbox.engine import probe
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

HERE = Path(__file__).parents[1] / "mcp"
SDK, ODD = HERE / "sdk_server.py", HERE / "odd_server.py"


def bench(name: str = "bench", **env: str) -> McpServerStdio:
    variables = [EnvVariable(name=key, value=value) for key, value in env.items()]
    return McpServerStdio(name=name, command=sys.executable, args=[str(SDK)], env=variables)


def odd(name: str, *journal: str) -> McpServerStdio:
    """A server that starts at once."""
    return McpServerStdio(
        name=name, command=sys.executable, args=["-S", "-E", str(ODD), "", *journal], env=[]
    )


def running(argument: str) -> int:
    """The number that a server has outside, by an argument of its."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if argument in words and str(ODD) in words:
            return int(path.name)
    raise AssertionError(f"no server with {argument}")


def offered(desk: Desk) -> list[str]:
    """The names of the MCP tools that the model was last offered."""
    names = [tool["function"]["name"] for tool in desk.server.requests[-1].json_body["tools"]]
    return [name for name in names if name.startswith("mcp__")]


@pytest.mark.slow
async def test_a_server_of_the_editor_is_used_under_the_gate_in_its_session_only(desk: Desk) -> None:
    desk.server.install([does("mcp__editor-My-bench__add", a=2, b=3), ScriptedReply("Five.")])
    session_id = await desk.session(servers=[bench("My bench")])
    desk.editor.answer = pick("allow_once")
    assert await desk.ask(session_id, "add") == "end_turn"
    assert results(desk)[-1].endswith("5")
    [(call, _)] = desk.editor.asked
    assert (call.title or "").startswith("mcp__editor-My-bench__add")
    assert "mcp__editor-My-bench__add" in offered(desk)
    desk.server.install([ScriptedReply("hello")])
    await desk.ask(await desk.session(), "hello")
    assert offered(desk) == []
    await desk.connection.close_session(session_id=session_id)
    await desk.connection.load_session(
        cwd=str(desk.work), session_id=session_id, mcp_servers=[bench("My bench")]
    )
    desk.editor.answer = pick("reject_once")
    desk.server.install([does("mcp__editor-My-bench__add", a=2, b=4), ScriptedReply("Not.")])
    assert await desk.ask(session_id, "again") == "end_turn"
    assert "add" in "".join(offered(desk)) and "6" not in results(desk)[-1]
    config = desk.home / "config.yaml"
    assert not config.exists() or "bench" not in config.read_text()


@pytest.mark.slow
def test_a_server_over_http_gets_the_editors_headers(desk: Desk) -> None:
    logins = Logins()
    token = "of-the-editor-1234"
    logins.tokens[token] = AccessToken(token=token, client_id="editor", scopes=["use"])
    with sdk_over_http(make, logins) as url:
        desk.server.install([does("mcp__editor-web__weather", place="here"), ScriptedReply("Warm.")])

        async def story() -> None:
            headers = [HttpHeader(name="Authorization", value=f"Bearer {token}")]
            server = HttpMcpServer(type="http", name="web", url=url, headers=headers)
            assert await desk.ask(await desk.session("auto", [server]), "how warm") == "end_turn"

        desk.run(story())
    assert "21.5" in results(desk)[-1]
    assert not any(token in path.read_text() for path in (desk.home / "mcp").iterdir())


@pytest.fixture
def confined(tmp_path: Path, server: PracticeServer) -> Iterator[Desk]:
    desk = Desk(tmp_path, server, sandbox="auto")
    yield desk
    desk.close()


@pytest.mark.slow
def test_a_server_is_started_by_its_first_call_and_ends_with_the_session(confined: Desk) -> None:
    desk = confined
    journal = desk.work / "journal"
    server = odd("lazy", str(journal))
    written = journal.with_suffix(".pid")

    async def story() -> int:
        desk.server.install(
            [ScriptedReply("hello"), does("mcp__editor-lazy__echo", text="hi"), ScriptedReply("Said.")]
        )
        await desk.connection.close_session(session_id=await desk.session(servers=[server]))
        written.unlink()  # its tools are known from here on
        session_id = await desk.session("auto", [server])
        await desk.ask(session_id, "hello")
        assert not written.exists()
        await desk.ask(session_id, "say hi")
        pid = running(str(journal))
        # It runs in a jail: with a filter on its calls.
        assert not probe().holds or "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()
        pidfd = os.pidfd_open(pid)
        await desk.connection.close_session(session_id=session_id)
        return pidfd

    pidfd = desk.run(story())
    assert select.select([pidfd], [], [], 20)[0], "the server outlived its session"
    os.close(pidfd)
    assert "hi" in results(desk)[-1]


async def test_what_cannot_be_used_is_said_and_the_session_begins(desk: Desk) -> None:
    servers = [
        McpServerStdio(name="gone", command="/no/such/program", args=[], env=[]),
        SseMcpServer(type="sse", name="old", url="http://127.0.0.1:1/sse", headers=[]),
        bench("open", TOKEN="${OPENAI_API_KEY}"),
    ]
    desk.server.install([ScriptedReply("hello")])
    session_id = await desk.session(servers=servers)
    assert await desk.ask(session_id, "hello") == "end_turn"
    text = desk.editor.text(AgentThoughtChunk, session_id)
    assert "editor-gone has no tools in this session" in text
    assert "MCP server old is not used: its transport sse" in text
    assert "MCP server open is not used: its TOKEN holds a variable" in text
    assert offered(desk) == []


async def test_a_session_keeps_the_tools_that_it_began_with(desk: Desk) -> None:
    desk.server.install([ScriptedReply("hello")])
    session_id = await desk.session()
    await desk.ask(session_id, "hello")
    await desk.connection.resume_session(cwd=str(desk.work), session_id=session_id, mcp_servers=[odd("late")])
    desk.server.install([ScriptedReply("hello")])
    await desk.ask(session_id, "again")
    assert "the editor brought them later; new sessions have them" in desk.editor.thoughts()
    assert offered(desk) == []
