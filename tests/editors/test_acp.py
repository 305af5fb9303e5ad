"""`whet acp` with the SDK's own client over real processes: prompts, tools, permissions, cancels, history."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, image_block, text_block
from acp.schema import (
    AgentPlanUpdate,
    AvailableCommandsUpdate,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    McpServerStdio,
    PermissionOption,
    ResourceContentBlock,
    TextResourceContents,
    ToolCallProgress,
    ToolCallStart,
)

from tests.cli.running import run as whet
from tests.editors.rig import editing
from whet.practice.ask import Call
from whet.practice.script import Fault, Reply
from whet.practice.server import PracticeServer


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


def does(tool: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=(Call(tool, json.dumps(arguments)),))


def pick(kind: str) -> Any:
    """Answer with the first option of a kind."""

    def answer(options: list[PermissionOption]) -> str:
        return next(option.option_id for option in options if option.kind == kind)

    return answer


async def ask(connection: Any, session_id: str, text: str) -> str:
    answer = await connection.prompt(session_id=session_id, prompt=[text_block(text)])
    return answer.stop_reason


def test_a_prompt_streams_text_and_thoughts(home: Path, tmp_path: Path, server: PracticeServer) -> None:
    server.install([Reply("Hello from the editor.", reasoning="They greet.", pieces=6)])

    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (editor, connection, _):
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            assert made.modes is not None and made.modes.current_mode_id == "ask"
            assert await ask(connection, made.session_id, "hello") == "end_turn"
            assert editor.text() == "Hello from the editor."
            assert editor.thoughts() == "They greet."
            await editor.until(lambda: bool(editor.of(AvailableCommandsUpdate)))

    asyncio.run(story())
    shown = json.loads(whet(["sessions", "list", "--json"], tmp_path)[1])["sessions"]
    assert [(row["source"], row["workspace"]) for row in shown] == [("acp", str(tmp_path / "work"))]


def test_an_edit_is_asked_about_and_shown_as_a_diff(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\ntwo\n")
    server.install(
        [
            does("read_file", path="a.txt", offset=2),
            does("patch", path="a.txt", old_string="two", new_string="three"),
            does("write_file", path="b.txt", content="new\n"),
            Reply("Done."),
        ]
    )

    async def story() -> None:
        async with editing(home, server, work) as (editor, connection, _):
            made = await connection.new_session(cwd=str(work), mcp_servers=[])
            editor.answer = pick("allow_once")
            assert await ask(connection, made.session_id, "edit") == "end_turn"
            starts = editor.of(ToolCallStart)
            assert [one.kind for one in starts] == ["read", "edit", "edit"]
            assert starts[0].locations[0].path == str(work / "a.txt") and starts[0].locations[0].line == 2
            ends = [updates[-1].status for updates in editor.calls().values()]
            assert ends == ["completed"] * 3
            diffs = [(Path(one.path).name, one.old_text, one.new_text) for one in editor.diffs()]
            assert diffs == [("a.txt", "one\ntwo\n", "one\nthree\n"), ("b.txt", None, "new\n")]
            proposed = [
                (block.old_text, block.new_text)
                for call, _ in editor.asked
                for block in call.content or ()
                if isinstance(block, FileEditToolCallContent)
            ]
            assert proposed == [("one\ntwo\n", "one\nthree\n"), (None, "new\n")]
            assert [call.tool_call_id for call, _ in editor.asked] == [one.tool_call_id for one in starts[1:]]

    asyncio.run(story())
    assert (work / "a.txt").read_text() == "one\nthree\n"


@pytest.mark.parametrize("answer", ["reject_once", "closed", "made up"])
def test_what_is_not_allowed_does_not_run(
    home: Path, tmp_path: Path, server: PracticeServer, answer: str
) -> None:
    server.install([does("write_file", path="no.txt", content="x"), Reply("Then not.")])

    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (editor, connection, _):
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            if answer == "reject_once":
                editor.answer = pick("reject_once")
            elif answer == "made up":
                editor.answer = lambda options: "yes-to-everything"
            assert await ask(connection, made.session_id, "write") == "end_turn"
            [call] = editor.calls().values()
            assert call[-1].status == "failed"

    asyncio.run(story())
    assert not (tmp_path / "work" / "no.txt").exists()


def test_always_holds_for_the_next_call_and_modes_decide_what_is_asked(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    def write(name: str) -> Reply:
        return does("write_file", path=name, content="x")

    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (editor, connection, _):
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            session_id = made.session_id
            editor.answer = pick("allow_always")
            server.install([write("1"), write("1"), Reply("ok")])
            await ask(connection, session_id, "write")
            assert len(editor.asked) == 1
            await connection.set_session_mode(session_id=session_id, mode_id="auto")
            server.install([write("2"), does("terminal", command="rm -rf /tmp/x-not-there"), Reply("ok")])
            editor.answer = pick("reject_once")
            await ask(connection, session_id, "write")
            assert [call.title.split()[0] for call, _ in editor.asked[1:]] == ["terminal"]
            assert "allow_always" not in [
                one.kind for one in editor.asked[-1][1] if one.option_id == "always"
            ]
            await connection.set_session_mode(session_id=session_id, mode_id="deny")
            server.install([write("3"), Reply("ok")])
            await ask(connection, session_id, "write")
            assert len(editor.asked) == 2
            with pytest.raises(RequestError):
                await connection.set_session_mode(session_id=session_id, mode_id="root")

    asyncio.run(story())
    assert sorted(os.listdir(tmp_path / "work")) == ["1", "2"]


def test_a_cancel_ends_a_turn_that_streams_and_one_that_asks(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (editor, connection, _):
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            server.install([Reply("slow", fault=Fault(stall_after=1))])
            turn = asyncio.create_task(ask(connection, made.session_id, "go"))
            await asyncio.to_thread(server.wait_for_stall)
            await connection.cancel(session_id=made.session_id)
            assert await turn == "cancelled"
            server.release()
            server.install([does("write_file", path="no.txt", content="x"), Reply("never")])
            editor.hold.clear()
            turn = asyncio.create_task(ask(connection, made.session_id, "write"))
            await editor.until(lambda: bool(editor.asked))
            await connection.cancel(session_id=made.session_id)
            assert await turn == "cancelled"
            editor.hold.set()
            server.install([Reply("here again")])
            assert await ask(connection, made.session_id, "still there?") == "end_turn"

    asyncio.run(story())
    assert not (tmp_path / "work" / "no.txt").exists()


def test_a_session_is_listed_loaded_and_gone_on_with(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    work = tmp_path / "work"
    server.install([does("terminal", command="echo hi"), Reply("It said hi."), Reply("As before.")])

    async def first() -> str:
        async with editing(home, server, work, "--approvals", "auto") as (_, connection, _):
            made = await connection.new_session(cwd=str(work), mcp_servers=[])
            await ask(connection, made.session_id, "say hi")
            return made.session_id

    async def second(session_id: str) -> None:
        async with editing(home, server, work) as (editor, connection, _):
            listed = await connection.list_sessions(cwd=str(work))
            assert [(one.session_id, one.title) for one in listed.sessions] == [(session_id, "say hi")]
            await connection.load_session(cwd=str(work), session_id=session_id, mcp_servers=[])
            assert editor.said() == "say hi"
            assert editor.text() == "It said hi."
            [call] = editor.of(ToolCallStart)
            assert (call.kind, call.status) == ("execute", "completed")
            assert "hi" in call.content[0].content.text
            assert await ask(connection, session_id, "again") == "end_turn"
            with pytest.raises(RequestError) as error:
                await connection.load_session(cwd=str(work), session_id="nobody", mcp_servers=[])
            assert "no session" in str(error.value)

    session_id = asyncio.run(first())
    asyncio.run(second(session_id))
    sent = server.requests[-1].parsed["messages"]
    assert [row["role"] for row in sent][1:] == ["user", "assistant", "tool", "assistant", "user"]


def test_two_sessions_run_at_once_and_a_plan_is_shown(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    items = [
        {"id": "1", "content": "look", "status": "completed"},
        {"id": "2", "content": "act", "status": "in_progress"},
    ]
    server.install(
        [
            Reply("first", fault=Fault(stall_after=0), when="the slow one"),
            does("todo", items=items),
            Reply("second"),
        ]
    )

    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (editor, connection, _):
            slow = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            fast = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            turn = asyncio.create_task(ask(connection, slow.session_id, "the slow one"))
            await asyncio.to_thread(server.wait_for_stall)
            assert await ask(connection, fast.session_id, "the fast one") == "end_turn"
            assert editor.text(session_id=fast.session_id) == "second"
            [plan] = editor.of(AgentPlanUpdate)
            assert [(one.content, one.status) for one in plan.entries] == [
                ("look", "completed"),
                ("act", "in_progress"),
            ]
            server.release()
            assert await turn == "end_turn"
            assert editor.text(session_id=slow.session_id) == "first"

    asyncio.run(story())


def test_images_mentions_and_files_reach_the_model_and_the_rest_is_refused(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    server.install([Reply("seen")])
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 40).decode()
    prompt = [
        text_block("look at "),
        ResourceContentBlock(type="resource_link", name="a.py", uri=f"file://{tmp_path}/a%20b.py"),
        EmbeddedResourceContentBlock(
            type="resource", resource=TextResourceContents(uri=f"file://{tmp_path}/c.py", text="print(1)")
        ),
        image_block(picture, "image/png"),
    ]

    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (editor, connection, _):
            servers = [McpServerStdio(name="files", command="/bin/true", args=[], env=[])]
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=servers)
            answer = await connection.prompt(session_id=made.session_id, prompt=prompt)
            assert answer.stop_reason == "end_turn"
            assert "MCP servers (files) are not used" in editor.thoughts()
            for wrong in ([], [text_block("  ")]):
                with pytest.raises(RequestError):
                    await connection.prompt(session_id=made.session_id, prompt=wrong)
            with pytest.raises(RequestError):
                await connection.new_session(cwd="relative", mcp_servers=[])
            with pytest.raises(RequestError):
                await connection.prompt(session_id="nobody", prompt=[text_block("x")])

    asyncio.run(story())
    parts = server.requests[-1].parsed["messages"][-1]["content"]
    text = "".join(part.get("text", "") for part in parts)
    assert f"[a.py]({tmp_path}/a b.py)" in text and "print(1)" in text
    assert any(part["type"] == "image_url" for part in parts)


def test_slash_commands_need_no_model(home: Path, tmp_path: Path, server: PracticeServer) -> None:
    server.install([Reply("hello")])

    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (editor, connection, _):
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            await ask(connection, made.session_id, "hello")
            for command, word in (
                ("/context", "tokens"),
                ("/compress", "Nothing to compress"),
                ("/usage", "in this session"),
                ("/undo", "You had said: hello"),
                ("/undo", "nothing to undo"),
            ):
                assert await ask(connection, made.session_id, command) == "end_turn"
                assert word in editor.text(), command

    asyncio.run(story())
    assert server.count == 1


def test_a_failed_turn_is_an_error_in_a_line(home: Path, tmp_path: Path, server: PracticeServer) -> None:
    server.install([Reply(fault=Fault(status=401, message="bad key"))])

    async def story() -> None:
        async with editing(home, server, tmp_path / "work") as (_, connection, _):
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            with pytest.raises(RequestError) as error:
                await ask(connection, made.session_id, "hello")
            assert "key" in str(error.value).lower() and "Traceback" not in str(error.value)

    asyncio.run(story())


def test_an_editor_that_is_killed_leaves_an_ended_turn_and_no_process(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    server.install([Reply("slow", fault=Fault(stall_after=0))])
    editor = f"""
import asyncio
from pathlib import Path
from acp import text_block
from tests.editors.rig import editing
class At: base_url = {server.base_url!r}
work = Path({str(tmp_path / "work")!r})
async def main():
    async with editing(Path({str(home)!r}), At(), work) as (_, connection, process):
        made = await connection.new_session(cwd=str(work), mcp_servers=[])
        print(process.pid, flush=True)
        await connection.prompt(session_id=made.session_id, prompt=[text_block("go")])
asyncio.run(main())
"""
    (tmp_path / "work").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", editor], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    server.wait_for_stall()
    pidfd = os.pidfd_open(pid)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    assert select.select([pidfd], [], [], 20)[0], "whet acp outlived its editor"
    os.close(pidfd)
    [row] = json.loads(whet(["sessions", "list", "--json"], tmp_path)[1])["sessions"]
    code, out, _ = whet(["sessions", "show", row["id"], "--json"], tmp_path)
    assert code == 0 and json.loads(out)["messages"][0]["content"].startswith("go")


def test_a_missing_model_is_told_to_the_editor_and_a_terminal_is_told_too(home: Path, tmp_path: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("model: {provider: nobody-knows}\n")

    async def story() -> None:
        async with editing(home, None, tmp_path / "work") as (_, connection, _):
            answer = await connection.initialize(protocol_version=PROTOCOL_VERSION)
            assert answer.agent_capabilities.load_session
            with pytest.raises(RequestError) as error:
                await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            assert "nobody-knows" in str(error.value)

    asyncio.run(story())


def test_what_is_no_protocol_on_standard_output_is_nothing(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    """Garbage comes in, a command prints: every line that goes out is one JSON object."""
    server.install([does("terminal", command="echo noise; echo more >&2"), Reply("ok")])
    flags = ["--provider", "practice", "--base-url", server.base_url, "--model", "practice"]
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "acp", "--approvals", "auto", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert process.stdin is not None and process.stdout is not None

    def call(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        row = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(row).encode() + b"\n")
        process.stdin.flush()
        while True:
            found = json.loads(process.stdout.readline())
            assert found["jsonrpc"] == "2.0"
            if found.get("id") == number:
                return found

    call(1, "initialize", {"protocolVersion": 1})
    session_id = call(2, "session/new", {"cwd": str(tmp_path), "mcpServers": []})["result"]["sessionId"]
    process.stdin.write(b"this is no JSON\n\x00\xff\n[]\n")
    assert "error" in call(3, "session/nothing", {})
    assert "error" in call(4, "session/prompt", {"sessionId": 7})
    prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "go"}]}
    assert call(5, "session/prompt", prompt)["result"]["stopReason"] == "end_turn"
    process.stdin.close()
    assert process.wait(20) == 0
    process.stdout.close()


def test_tool_output_streams_and_the_last_word_is_the_result(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    server.install([does("terminal", command="echo visible; exit 3"), Reply("It failed.")])

    async def story() -> None:
        async with editing(home, server, tmp_path / "work", "--approvals", "auto") as (editor, connection, _):
            made = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
            await ask(connection, made.session_id, "run it")
            [start] = editor.of(ToolCallStart)
            assert start.title == "terminal echo visible; exit 3"
            last = editor.of(ToolCallProgress)[-1]
            assert last.status == "failed" and last.raw_output["exit_code"] == 3
            assert "visible" in last.content[0].content.text

    asyncio.run(story())
