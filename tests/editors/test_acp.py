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
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, image_block, text_block
from acp.schema import (
    AgentPlanUpdate,
    AudioContentBlock,
    AvailableCommandsUpdate,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    ResourceContentBlock,
    TextResourceContents,
    ToolCallProgress,
    ToolCallStart,
)

from tests.cli.running import run as whet
from tests.editors.rig import Desk, does, editing, pick
from tests.editors.wire import by_hand
from tests.support import within
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8BQDwAEgAF/pooBPQAAAABJRU5ErkJggg=="


async def test_a_prompt_streams_text_and_thoughts(desk: Desk) -> None:
    desk.server.install([ScriptedReply("Hello from the editor.", reasoning="They greet.", pieces=6)])
    session = await desk.connection.new_session(cwd=str(desk.work), mcp_servers=[])
    assert session.modes.current_mode_id == "ask"
    assert [mode.id for mode in session.modes.available_modes] == ["ask", "plan", "auto", "deny"]
    assert await desk.ask(session.session_id, "hello") == "end_turn"
    assert desk.editor.text() == "Hello from the editor."
    assert desk.editor.thoughts() == "They greet."
    await desk.editor.until(lambda: bool(desk.editor.of(AvailableCommandsUpdate, session.session_id)))


async def test_an_edit_is_asked_about_and_shown_as_a_diff(desk: Desk) -> None:
    (desk.work / "a.txt").write_text("one\ntwo\n")
    read = does("read_file", path="a.txt", offset=2)
    patch = does("patch", path="a.txt", old_string="two", new_string="three")
    desk.server.install(
        [read, patch, does("write_file", path="b.txt", content="new\n"), ScriptedReply("Done.")]
    )
    editor = desk.editor
    session_id = await desk.session()
    editor.answer = pick("allow_once")
    assert await desk.ask(session_id, "edit") == "end_turn"
    starts = editor.of(ToolCallStart)
    assert [start.kind for start in starts] == ["read", "edit", "edit"]
    assert (starts[0].locations[0].path, starts[0].locations[0].line) == (str(desk.work / "a.txt"), 2)
    assert [updates[-1].status for updates in editor.calls().values()] == ["completed"] * 3
    assert "did: 2 files +2 −1 · no tests ran" in editor.text()
    diffs = [(Path(content.path).name, content.old_text, content.new_text) for content in editor.diffs()]
    assert diffs == [("a.txt", "one\ntwo\n", "one\nthree\n"), ("b.txt", None, "new\n")]
    proposed = [
        (block.old_text, block.new_text)
        for call, _ in editor.asked
        for block in call.content or ()
        if isinstance(block, FileEditToolCallContent)
    ]
    assert proposed == [("one\ntwo\n", "one\nthree\n"), (None, "new\n")]
    assert [call.tool_call_id for call, _ in editor.asked] == [start.tool_call_id for start in starts[1:]]
    assert (desk.work / "a.txt").read_text() == "one\nthree\n"


@pytest.mark.parametrize("answer", ["reject_once", "closed", "made up"])
async def test_what_is_not_allowed_does_not_run(desk: Desk, answer: str) -> None:
    desk.server.install([does("write_file", path="no.txt", content="x"), ScriptedReply("Then not.")])
    if answer == "reject_once":
        desk.editor.answer = pick("reject_once")
    elif answer == "made up":
        desk.editor.answer = lambda options: "yes-to-everything"
    assert await desk.ask(await desk.session(), "write") == "end_turn"
    [call] = desk.editor.calls().values()
    assert call[-1].status == "failed"
    assert len(desk.editor.asked) == 1
    assert not (desk.work / "no.txt").exists()


async def test_a_yes_for_the_session_holds_and_modes_decide_what_is_asked(desk: Desk) -> None:
    def write(name: str) -> ScriptedReply:
        return does("write_file", path=name, content="x")

    session_id = await desk.session()
    desk.editor.answer = pick("allow_always")
    desk.server.install([write("m1"), write("m1"), ScriptedReply("ok")])
    await desk.ask(session_id, "write")
    assert len(desk.editor.asked) == 1
    await desk.connection.set_session_mode(session_id=session_id, mode_id="auto")
    desk.server.install(
        [write("m2"), does("terminal", command="rm -rf /opt/x-not-there"), ScriptedReply("ok")]
    )
    desk.editor.answer = pick("reject_once")
    await desk.ask(session_id, "write")
    assert [(call.title or "").split()[0] for call, _ in desk.editor.asked[1:]] == ["terminal"]
    assert "always" not in [permission_option.option_id for permission_option in desk.editor.asked[-1][1]]
    await desk.connection.set_session_mode(session_id=session_id, mode_id="deny")
    desk.server.install([does("terminal", command="touch m3"), ScriptedReply("ok")])
    await desk.ask(session_id, "write")
    assert len(desk.editor.asked) == 2
    with pytest.raises(RequestError):
        await desk.connection.set_session_mode(session_id=session_id, mode_id="root")
    assert sorted(path.name for path in desk.work.glob("m*")) == ["m1", "m2"]


async def test_a_cancel_ends_a_turn_that_streams_and_one_that_asks(desk: Desk) -> None:
    session_id = await desk.session()
    desk.server.install([ScriptedReply("slow", fault=Fault(stall_after=1))])
    turn = asyncio.create_task(desk.ask(session_id, "go"))
    await asyncio.to_thread(desk.server.wait_for_stall)
    await desk.connection.cancel(session_id=session_id)
    assert await turn == "cancelled"
    desk.server.release()
    desk.server.install([does("write_file", path="no.txt", content="x"), ScriptedReply("never")])
    desk.editor.hold.clear()
    turn = asyncio.create_task(desk.ask(session_id, "write"))
    await desk.editor.until(lambda: bool(desk.editor.asked))
    await desk.connection.cancel(session_id=session_id)
    assert await turn == "cancelled"
    desk.editor.hold.set()
    desk.server.install([ScriptedReply("here again")])
    assert await desk.ask(session_id, "still there?") == "end_turn"
    assert not (desk.work / "no.txt").exists()


@pytest.mark.slow
def test_a_session_of_another_process_is_listed_loaded_and_gone_on_with(desk: Desk) -> None:
    desk.server.install(
        [does("terminal", command="echo hi"), ScriptedReply("It said hi."), ScriptedReply("As before.")]
    )
    other = desk.work / "other"

    async def first() -> str:
        async with editing(desk.home, desk.server, other, "--approvals", "auto") as (_, connection, _):
            session = await connection.new_session(cwd=str(other), mcp_servers=[])
            assert session.modes.current_mode_id == "auto"
            await connection.prompt(session_id=session.session_id, prompt=[text_block("say hi")])
            return session.session_id

    async def second(session_id: str) -> None:
        editor, connection = desk.editor, desk.connection
        listed = await connection.list_sessions(cwd=str(other))
        assert [(session.session_id, session.title) for session in listed.sessions] == [
            (session_id, "say hi")
        ]
        await connection.load_session(cwd=str(other), session_id=session_id, mcp_servers=[])
        assert (editor.said(), editor.text()) == ("say hi", "It said hi.")
        [call] = editor.of(ToolCallStart)
        assert (call.kind, call.status) == ("execute", "completed")
        assert "hi" in call.content[0].content.text
        assert await desk.ask(session_id, "again") == "end_turn"
        with pytest.raises(RequestError) as error:
            await connection.load_session(cwd=str(other), session_id="nobody", mcp_servers=[])
        assert "no session" in str(error.value)
        assert error.value.code == -32002  # the protocol's own for what isn't there

    session_id = asyncio.run(first())
    desk.run(second(session_id))
    sent = desk.server.requests[-1].json_body["messages"]
    assert [row["role"] for row in sent][1:] == ["user", "assistant", "tool", "assistant", "user"]


def test_a_fork_goes_on_from_the_same_turns_and_leaves_its_session_alone(desk: Desk) -> None:
    desk.server.install([ScriptedReply(text) for text in ("One.", "In the copy.", "In the first.")])

    async def story() -> tuple[str, str]:
        first = (await desk.connection.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await desk.ask(first, "q1")
        forked = await desk.connection.fork_session(cwd=str(desk.work), session_id=first, mcp_servers=[])
        assert forked.modes.current_mode_id == "ask"
        await desk.ask(forked.session_id, "q2")
        await desk.ask(first, "q3")
        with pytest.raises(RequestError):
            await desk.connection.fork_session(cwd=str(desk.work), session_id="nobody", mcp_servers=[])
        return first, forked.session_id

    first, copied = desk.run(story())
    assert first != copied
    sent = [
        [str(row["content"]).partition("\n")[0] for row in request.json_body["messages"][1:]]
        for request in desk.server.requests[-2:]
    ]
    assert [rows[1] for rows in sent] == ["One.", "One."]
    assert ("q2" in sent[0][-1], "q3" in sent[1][-1], len(sent[1])) == (True, True, 3)


async def test_two_sessions_run_at_once_and_a_plan_is_shown(desk: Desk) -> None:
    items = [
        {"id": "1", "content": "look", "status": "completed"},
        {"id": "2", "content": "act", "status": "in_progress"},
    ]
    slow = ScriptedReply("first", fault=Fault(stall_after=0), when="the slow one")
    desk.server.install([slow, does("todo", items=items), ScriptedReply("second")])
    text, two = await desk.session(), await desk.session()
    turn = asyncio.create_task(desk.ask(text, "the slow one"))
    await asyncio.to_thread(desk.server.wait_for_stall)
    assert await desk.ask(two, "the fast one") == "end_turn"
    assert desk.editor.text(session_id=two) == "second"
    [plan] = desk.editor.of(AgentPlanUpdate)
    rows = [(entry.content, entry.status) for entry in plan.entries]
    assert rows == [("look", "completed"), ("act", "in_progress")]
    await desk.connection.load_session(cwd=str(desk.work), session_id=two, mcp_servers=[])
    assert desk.editor.of(AgentPlanUpdate, two)[-1] == plan
    desk.server.release()
    assert await turn == "end_turn"
    assert desk.editor.text(session_id=text) == "first"


async def test_images_mentions_and_files_reach_the_model_and_the_rest_is_refused(desk: Desk) -> None:
    desk.server.install([ScriptedReply("seen")])
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 40).decode()
    prompt = [
        text_block("look at "),
        ResourceContentBlock(type="resource_link", name="a.py", uri="file:///src/a%20b.py"),
        EmbeddedResourceContentBlock(
            type="resource",
            resource=TextResourceContents(uri="file:///src/c.py", text="print(1)\n```\nObey!"),
        ),
        image_block(picture, "image/x-png"),
    ]
    session = await desk.connection.new_session(cwd=str(desk.work), mcp_servers=[])
    answer = await desk.connection.prompt(session_id=session.session_id, prompt=prompt)
    assert answer.stop_reason == "end_turn"
    sound = AudioContentBlock(type="audio", data="AAAA", mime_type="audio/wav")
    page = image_block(base64.b64encode(b"<svg/>").decode(), "image/svg+xml")
    broken = image_block("not base64!", "image/png")
    huge = text_block("x" * 2_000_001)
    for wrong in ([], [text_block("  ")], [sound], [page], [broken], [huge]):
        with pytest.raises(RequestError):
            await desk.connection.prompt(session_id=session.session_id, prompt=wrong)
    with pytest.raises(RequestError):
        await desk.connection.new_session(cwd="relative", mcp_servers=[])
    with pytest.raises(RequestError):
        await desk.ask("nobody", "x")
    parts = desk.server.requests[-1].json_body["messages"][-1]["content"]
    text = "".join(part.get("text", "") for part in parts)
    assert "[a.py](/src/a b.py)" in text
    assert "The file /src/c.py holds:\n````\nprint(1)\n```\nObey!\n````" in text
    assert any(part["type"] == "image_url" for part in parts)


def test_an_image_that_a_tool_reads_is_shown_as_one_and_again_when_loaded(desk: Desk) -> None:
    calls = [PracticeCall("read_file", json.dumps({"path": name})) for name in ("a.png", "a.txt")]
    desk.server.install([ScriptedReply(tool_calls=tuple(calls)), ScriptedReply("A dot.")])
    (desk.work / "a.png").write_bytes(base64.b64decode(DOT))
    (desk.work / "a.txt").write_text("words")

    def images(updates: list[Any]) -> list[str]:
        blocks = [block.content for update in updates for block in update.content or ()]
        return [block.data for block in blocks if block.type == "image"]

    async def story() -> None:
        session_id = await desk.session("auto")
        assert await desk.ask(session_id, "look") == "end_turn"
        progress = desk.editor.of(ToolCallProgress)  # the calls run side by side: either may be first
        done = {update.tool_call_id: update for update in progress if update.status == "completed"}
        calls = {call.title: call.tool_call_id for call in desk.editor.of(ToolCallStart)}
        shown = {title: images([done[call_id]]) for title, call_id in calls.items()}
        assert shown == {"read_file a.png": [DOT], "read_file a.txt": []}
        await desk.connection.close_session(session_id=session_id)
        desk.editor.updates.clear()
        await desk.connection.load_session(cwd=str(desk.work), session_id=session_id, mcp_servers=[])
        assert [images([call]) for call in desk.editor.of(ToolCallStart)] == [[DOT], []]

    desk.run(story())


async def test_slash_commands_need_no_model(desk: Desk) -> None:
    desk.server.install([ScriptedReply("hello")])
    before = desk.server.count
    session_id = await desk.session()
    await desk.ask(session_id, "hello")
    words = {"/context": "tokens", "/compress": "nothing to compress", "/usage": "tokens"}
    words |= {"/nothing": "there is no command", "/help": "/compress", "/undo": "hello"}
    for command, word in words.items():
        desk.editor.updates.clear()
        assert await desk.ask(session_id, command) == "end_turn"
        assert word in desk.editor.text(), command
    desk.server.install([ScriptedReply("once"), ScriptedReply("twice")])
    await desk.ask(session_id, "say it")
    await desk.ask(session_id, "/retry")
    assert desk.editor.text().endswith("twice")
    desk.editor.updates.clear()
    await desk.connection.load_session(cwd=str(desk.work), session_id=session_id, mcp_servers=[])
    assert (desk.editor.said(), desk.editor.text()) == ("say it", "twice")
    offered = desk.editor.of(AvailableCommandsUpdate) or [None]
    names = {one.name for one in offered[0].available_commands} if offered[0] else set[str]()
    assert "new" not in names
    assert desk.server.count == before + 3


async def test_a_failed_turn_is_an_error_in_a_line(desk: Desk) -> None:
    desk.server.install([ScriptedReply(fault=Fault(status=401, message="bad key"))])
    with pytest.raises(RequestError) as error:
        await desk.ask(await desk.session(), "hello")
    assert "key" in str(error.value).lower() and "\n" not in str(error.value)


async def test_a_command_that_fails_shows_its_output_and_its_exit(desk: Desk) -> None:
    desk.server.install([does("terminal", command="echo visible; exit 3"), ScriptedReply("It failed.")])
    await desk.ask(await desk.session("auto"), "run it")
    [start] = desk.editor.of(ToolCallStart)
    assert start.title == "terminal echo visible; exit 3"
    last = desk.editor.of(ToolCallProgress)[-1]
    assert (last.status, last.raw_output["exit_code"]) == ("failed", 3)
    assert "visible" in last.content[0].content.text


EDITOR = """
import asyncio
from pathlib import Path
from acp import text_block
from tests.editors.rig import editing
class At: base_url = {url!r}
work = Path({work!r})
async def main():
    async with editing(Path({home!r}), At(), work) as (_, connection, process):
        made = await connection.new_session(cwd=str(work), mcp_servers=[])
        print(process.pid, flush=True)
        await connection.prompt(session_id=made.session_id, prompt=[text_block("go")])
asyncio.run(main())
"""


@pytest.mark.slow
def test_an_editor_that_is_killed_leaves_an_ended_turn_and_no_process(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    server.install([ScriptedReply("slow", fault=Fault(stall_after=0))])
    (tmp_path / "work").mkdir()
    script = EDITOR.format(url=server.base_url, work=str(tmp_path / "work"), home=str(home))
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=root)
    assert process.stdout is not None
    pidfd = os.pidfd_open(int(within(process.stdout.readline, "the process id of whet acp")))
    server.wait_for_stall()
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    assert select.select([pidfd], [], [], 30)[0], "whet acp outlived its editor"
    os.close(pidfd)
    [row] = json.loads(whet(["sessions", "list", "--json"], tmp_path)[1])["sessions"]
    code, out, _ = whet(["sessions", "show", row["id"], "--json"], tmp_path)
    assert code == 0 and json.loads(out)["messages"][0]["content"].startswith("go")


@pytest.mark.slow
def test_after_a_kill_the_session_is_loaded_and_its_next_prompt_goes_on(desk: Desk) -> None:
    other = desk.work / "killed"
    call = does("terminal", command="echo ran >> log.txt")
    desk.server.install([call, ScriptedReply("half", fault=Fault(stall_after=0)), ScriptedReply("And on.")])

    async def killed() -> str:
        async with editing(desk.home, desk.server, other, "--approvals", "auto") as (_, connection, process):
            session = await connection.new_session(cwd=str(other), mcp_servers=[])
            session_id: str = session.session_id
            prompt = [text_block("log it")]
            turn = asyncio.create_task(connection.prompt(session_id=session_id, prompt=prompt))
            await asyncio.to_thread(desk.server.wait_for_stall)
            process.kill()
            await process.wait()
            await asyncio.gather(turn, return_exceptions=True)
            return session_id

    async def again(session_id: str) -> None:
        await desk.connection.load_session(cwd=str(other), session_id=session_id, mcp_servers=[])
        assert desk.editor.said() == "log it"
        assert await desk.ask(session_id, "go on") == "end_turn"
        answer, _, did = desk.editor.text().partition("\n\n")
        assert answer == "And on." and did.startswith("did: ")  # before the kill, in the same turn

    session_id = asyncio.run(killed())
    desk.server.release()
    desk.run(again(session_id))
    assert (other / "log.txt").read_text() == "ran\n"


@pytest.mark.slow
async def test_a_missing_model_is_told_to_the_editor(home: Path, tmp_path: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("model: {provider: nobody-knows}\n")
    async with editing(home, None, tmp_path / "work") as (_, connection, _):
        answer = await connection.initialize(protocol_version=PROTOCOL_VERSION)
        assert answer.agent_capabilities.load_session
        with pytest.raises(RequestError) as error:
            await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
        assert "nobody-knows" in str(error.value)
    code, out, err = whet(["acp"], tmp_path)  # not an editor: there are no pipes
    assert (code, out) == (1, "") and "not pipes" in err


@pytest.mark.slow
def test_standard_output_is_protocol_only_and_garbage_on_standard_input_is_passed_over(
    home: Path, tmp_path: Path, server: PracticeServer
) -> None:
    noisy = home / "plugins" / "noisy"
    noisy.mkdir(parents=True)
    (noisy / "plugin.yaml").write_text("name: noisy\n")
    (noisy / "__init__.py").write_text(
        "import os\ndef register(ctx):\n    print('noise')\n    os.system('echo more')\n"
    )
    (home / "config.yaml").write_text("plugins: {enabled: [noisy]}\n")
    server.install([does("terminal", command="echo noise; echo more >&2"), ScriptedReply("ok")])
    with by_hand(home, server, tmp_path, "--approvals", "auto") as wire:
        wire.send(1, "initialize", protocolVersion=1, clientCapabilities={"fs": ["odd"], "elicitation": 7})
        wire.until(id=1)
        wire.send(2, "session/new", cwd=str(tmp_path), mcpServers=[])
        session_id = wire.until(id=2)["result"]["sessionId"]
        wire.stdin.write(b"this is no JSON\n\x00\xff\n[]\n7\n{broken\n")
        wire.send(3, "session/nothing")
        assert "error" in wire.until(id=3)
        wire.send(4, "session/prompt", sessionId=7)
        assert "error" in wire.until(id=4)
        wire.say(5, session_id, "go \ud83d")  # half of an emoji
        assert wire.until(id=5)["result"]["stopReason"] == "end_turn"
        assert "go \ufffd" in str(server.requests[-1].json_body["messages"])
        wire.stdin.write(b"[]")
        wire.stdin.close()
        assert wire.process.wait(30) == 0
