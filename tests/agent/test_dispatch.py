"""What is shown of a call is what runs, in the folder that the shell stands in, and its cost is told."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.rig import ListGate, Rig, calls, rig
from whet.context.engines import NoEngine
from whet.contract.changes import TextChange, call_digest, hash_of
from whet.contract.errors import BadInput
from whet.contract.events import Emit, ToolStarted
from whet.contract.protocols import Decision, GateCall
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.practice.script import ScriptedReply
from whet.tools.signature import tool

ANSWER = ScriptedReply(text="All done.")


def shell(ran: list[tuple[str, str]]) -> Tool:
    """A command tool whose `cd` is kept, as a shell's is."""

    @tool(toolset="terminal", effects={"execute"}, tags={"command"})
    async def sh(ctx: ToolContext, command: str, workdir: str = "") -> ToolOutput:
        """Run."""
        ran.append((command, workdir))
        return ToolOutput("done", folder=command.removeprefix("cd ") if command.startswith("cd ") else None)

    return sh


def results(r: Rig) -> list[str]:
    return [message.text for message in r.session.log.messages if message.role == "tool"]


def test_a_command_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []
    (tmp_path / "sub").mkdir()
    script = [
        calls(("sh", '{"command": "cd sub"}')),
        calls(("sh", '{"command": "ls"}')),
        calls(("sh", '{"command": "ls", "workdir": "."}')),
        ANSWER,
    ]

    async def main() -> None:
        async with rig(tmp_path, script, more_tools=[shell(ran)]) as r:
            assert (await r.turn("go")).reason == "answered"
            assert ran == [("cd sub", ""), ("ls", "sub"), ("ls", ".")]
            assert [event.arguments for event in r.events if isinstance(event, ToolStarted)] == [
                '{"command": "cd sub"}',
                '{"command":"ls","workdir":"sub"}',
                '{"command": "ls", "workdir": "."}',
            ], "what runs, as the model wrote it where nothing was added"

    asyncio.run(main())


def test_a_command_begins_where_an_earlier_one_of_its_own_reply_ended(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []
    (tmp_path / "sub").mkdir()
    script = [calls(("sh", '{"command": "cd sub"}'), ("look", "{}"), ("sh", '{"command": "ls"}')), ANSWER]

    async def main() -> None:
        async with rig(tmp_path, script, more_tools=[shell(ran)]) as r:
            await r.turn("go")
            assert ran == [("cd sub", ""), ("ls", "sub")] and r.trace() == ["look "]

    asyncio.run(main())


def test_a_command_whose_folder_is_gone_does_not_run(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []
    (tmp_path / "sub").mkdir()
    script = [
        calls(("sh", '{"command": "cd sub"}')),
        ANSWER,
        calls(("sh", '{"command": "rm a"}')),
        calls(("sh", '{"command": "ls"}')),
        ANSWER,
    ]

    async def main() -> None:
        async with rig(tmp_path, script, more_tools=[shell(ran)]) as r:
            await r.turn("go")
            shutil.rmtree(tmp_path / "sub")
            await r.turn("on")
            assert ran == [("cd sub", ""), ("ls", "")]
            assert results(r)[1].startswith("Nothing was run: the folder")

    asyncio.run(main())


class Looking(ListGate):
    """Looks at what each call makes of files before it allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[TextChange, ...]] = []

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        assert call.preview is not None
        self.shown.append(await call.preview({"what": "new"}))
        return await super().decide(call, emit)


def test_a_gate_is_shown_what_a_call_makes_of_files_and_nothing_where_the_tool_does_not_say(
    tmp_path: Path,
) -> None:
    async def preview(ctx: ToolContext, arguments: dict[str, Any]) -> tuple[TextChange, ...]:
        return (TextChange("a", str(ctx.workspace / "a"), None, arguments["what"]),)

    @tool(toolset="file", effects={"write"})
    async def write(ctx: ToolContext, what: str) -> str:
        """Write."""
        return "written"

    tools = [msgspec.structs.replace(write, preview=preview)]
    script = [calls(("write", '{"what": "old"}'), ("put", '{"what": "old"}')), ANSWER]

    async def main() -> None:
        async with rig(tmp_path, script, more_tools=tools) as r:
            gate = Looking()
            r.session = msgspec.structs.replace(r.session, gate=gate)
            await r.turn("go")
            assert gate.shown == [(TextChange("a", str(tmp_path / "a"), None, "new"),), ()]

    asyncio.run(main())


class Shown(ListGate):
    """A person who saw one text of the file, whatever it is by now."""

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        seen = (TextChange("a", str(Path(call.workspace) / "a"), "", "new", hash_of(b"before")),)
        digest = call_digest(call.tool.name, call.arguments, call.workspace, seen)
        return Decision("allow", "person", digest=digest, changes=seen)


@pytest.mark.parametrize(("now", "said"), [(b"before", "written"), (b"after", "The file changed after")])
def test_a_file_that_changed_after_the_question_is_not_written(tmp_path: Path, now: bytes, said: str) -> None:
    async def preview(ctx: ToolContext, arguments: dict[str, Any]) -> tuple[TextChange, ...]:
        return (TextChange("a", str(ctx.workspace / "a"), "", arguments["what"], hash_of(now)),)

    @tool(toolset="file", effects={"write"})
    async def write(ctx: ToolContext, what: str) -> str:
        """Write."""
        return "written"

    tools = [msgspec.structs.replace(write, preview=preview)]

    async def main() -> None:
        async with rig(tmp_path, [calls(("write", '{"what": "new"}')), ANSWER], more_tools=tools) as r:
            r.session = msgspec.structs.replace(r.session, gate=Shown())
            assert (await r.turn("go")).reason == "answered"
            assert results(r)[0].startswith(said)

    asyncio.run(main())


def test_a_call_that_was_over_at_once_is_not_begun_later(tmp_path: Path) -> None:
    """Its start is stored with its result, and the timer that would have stored it is off."""
    rigs: list[Rig] = []
    starts: list[list[tuple[Any, ...]]] = []

    @tool(toolset="file", effects={"read"}, repeatable=True)
    async def see(ctx: ToolContext) -> str:
        """See."""
        return "seen"

    @tool(toolset="file", effects={"read"}, repeatable=True)
    async def gaze(ctx: ToolContext) -> str:
        """Look until this call's own start is on disk, which its timer does after that of the other."""
        sql = "SELECT started, finished FROM tool_calls"
        while not (rows := rigs[0].database.read_now(lambda db: db.execute(sql).fetchall()))[-1][0]:
            await asyncio.sleep(0)
        starts.append(rows)
        return "seen"

    async def main() -> None:
        async with rig(tmp_path, [calls(("see", "{}"), ("gaze", "{}")), ANSWER], more_tools=[see, gaze]) as r:
            rigs.append(r)
            await r.turn("go")
        (started, finished), _ = starts[0]
        assert started <= finished

    asyncio.run(main())


def test_what_a_person_would_write_is_checked_as_a_call_is(tmp_path: Path) -> None:
    class Wrong(ListGate):
        async def decide(self, call: GateCall, emit: Emit) -> Decision:
            assert call.preview is not None
            with pytest.raises(BadInput):
                await call.preview({"what": ["no text"]})
            assert await call.preview({"what": "b"}) == ()
            return await super().decide(call, emit)

    async def main() -> None:
        async with rig(tmp_path, [calls(("put", '{"what": "a"}')), ANSWER]) as r:
            r.session = msgspec.structs.replace(r.session, gate=Wrong())
            assert (await r.turn("go")).reason == "answered" and r.trace() == ["put a"]

    asyncio.run(main())


def test_the_engine_is_told_what_each_reply_cost(tmp_path: Path) -> None:
    class Counting(NoEngine):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[int] = []

        def update_from_response(self, usage: dict[str, Any]) -> None:
            self.told.append(int(usage["prompt_tokens"]))

    engine = Counting()

    async def main() -> None:
        async with rig(tmp_path, [calls(("look", "{}")), ANSWER], engine=engine) as r:
            end = await r.turn("go")
        # Read after the session's end, which waits for the engine's own thread.
        assert len(engine.told) == end.steps == 2
        assert sum(engine.told) == end.usage.prompt_tokens

    asyncio.run(main())
