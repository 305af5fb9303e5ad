"""What is shown of a call is what runs, in the folder that the shell stands in, and its cost is told."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.rig import FullDisk, ListGate, Rig, calls, rig
from whet.clock import SystemClock
from whet.context.engines import NoEngine
from whet.contract.changes import TextChange, hash_bytes, hash_call
from whet.contract.errors import BadInput
from whet.contract.events import Emit, ToolFinished, ToolStarted
from whet.contract.messages import ImagePart, TextPart
from whet.contract.protocols import Decision, GateCall
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.tools.signature import tool
from whet_lab.practice.script import ScriptedReply

ANSWER = ScriptedReply("All done.")


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


async def test_a_command_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []
    (tmp_path / "sub").mkdir()
    script = [
        calls(("sh", '{"command": "cd sub"}')),
        calls(("sh", '{"command": "ls"}')),
        calls(("sh", '{"command": "ls", "workdir": "."}')),
        ANSWER,
    ]
    async with rig(tmp_path, script, more_tools=[shell(ran)]) as r:
        assert (await r.turn("go")).reason == "answered"
        assert ran == [("cd sub", ""), ("ls", "sub"), ("ls", ".")]
        assert [event.arguments for event in r.events if isinstance(event, ToolStarted)] == [
            '{"command": "cd sub"}',
            '{"command":"ls","workdir":"sub"}',
            '{"command": "ls", "workdir": "."}',
        ], "what runs, as the model wrote it where nothing was added"


async def test_a_command_begins_where_an_earlier_one_of_its_own_reply_ended(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []
    (tmp_path / "sub").mkdir()
    script = [calls(("sh", '{"command": "cd sub"}'), ("look", "{}"), ("sh", '{"command": "ls"}')), ANSWER]
    async with rig(tmp_path, script, more_tools=[shell(ran)]) as r:
        await r.turn("go")
        assert ran == [("cd sub", ""), ("ls", "sub")] and r.trace() == ["look "]


async def test_a_command_whose_folder_is_gone_does_not_run(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []
    (tmp_path / "sub").mkdir()
    script = [
        calls(("sh", '{"command": "cd sub"}')),
        ANSWER,
        calls(("sh", '{"command": "rm a"}')),
        calls(("sh", '{"command": "ls"}')),
        ANSWER,
    ]
    async with rig(tmp_path, script, more_tools=[shell(ran)]) as r:
        await r.turn("go")
        shutil.rmtree(tmp_path / "sub")
        await r.turn("on")
        assert ran == [("cd sub", ""), ("ls", "")]
        assert results(r)[1].startswith("Nothing was run: the folder")


class Looking(ListGate):
    """Looks at what each call makes of files before it allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[TextChange, ...]] = []

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        assert call.preview is not None
        self.shown.append(await call.preview({"what": "new"}))
        return await super().decide(call, emit)


async def test_a_gate_sees_what_a_call_makes_of_files_where_the_tool_says_it(tmp_path: Path) -> None:
    async def preview(ctx: ToolContext, arguments: dict[str, Any]) -> tuple[TextChange, ...]:
        return (TextChange("a", str(ctx.workspace / "a"), None, arguments["what"]),)

    @tool(toolset="file", effects={"write"})
    async def write(ctx: ToolContext, what: str) -> str:
        """Write."""
        return "written"

    tools = [msgspec.structs.replace(write, preview=preview)]
    script = [calls(("write", '{"what": "old"}'), ("put", '{"what": "old"}')), ANSWER]
    async with rig(tmp_path, script, more_tools=tools) as r:
        gate = Looking()
        r.session = msgspec.structs.replace(r.session, gate=gate)
        await r.turn("go")
        assert gate.shown == [(TextChange("a", str(tmp_path / "a"), None, "new"),), ()]


class Shown(ListGate):
    """A person who saw one text of the file, whatever it is by now."""

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        seen = (TextChange("a", str(Path(call.workspace) / "a"), "", "new", hash_bytes(b"before")),)
        digest = hash_call(call.tool.name, call.arguments, call.workspace, seen)
        return Decision("allow", "person", digest=digest, changes=seen)


@pytest.mark.parametrize(("now", "said"), [(b"before", "written"), (b"after", "The file changed after")])
async def test_a_file_changed_since_the_question_is_not_written(
    tmp_path: Path, now: bytes, said: str
) -> None:
    async def preview(ctx: ToolContext, arguments: dict[str, Any]) -> tuple[TextChange, ...]:
        return (TextChange("a", str(ctx.workspace / "a"), "", arguments["what"], hash_bytes(now)),)

    @tool(toolset="file", effects={"write"})
    async def write(ctx: ToolContext, what: str) -> str:
        """Write."""
        return "written"

    tools = [msgspec.structs.replace(write, preview=preview)]
    async with rig(tmp_path, [calls(("write", '{"what": "new"}')), ANSWER], more_tools=tools) as r:
        r.session = msgspec.structs.replace(r.session, gate=Shown())
        assert (await r.turn("go")).reason == "answered"
        assert results(r)[0].startswith(said)


async def test_a_call_that_was_over_at_once_is_not_begun_later(tmp_path: Path) -> None:
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

    async with rig(tmp_path, [calls(("see", "{}"), ("gaze", "{}")), ANSWER], more_tools=[see, gaze]) as r:
        rigs.append(r)
        await r.turn("go")
    (started, finished), _ = starts[0]
    assert started <= finished


@pytest.mark.parametrize("only_reads", [True, False])
async def test_a_command_that_only_reads_is_stored_with_its_result(tmp_path: Path, only_reads: bool) -> None:
    """It has no effect that could happen twice; any other's start is on disk before it runs."""
    rigs: list[Rig] = []
    is_begun: list[bool] = []

    class Knowing(ListGate):
        async def decide(self, call: GateCall, emit: Emit) -> Decision:
            return Decision("allow", "rule", only_reads=only_reads)

    @tool(toolset="terminal", effects={"execute"}, timeout_s=None)
    async def command(ctx: ToolContext) -> str:
        """Run."""
        sql = "SELECT started FROM tool_calls"
        rows: list[tuple[Any, ...]] = rigs[0].database.read_now(lambda db: db.execute(sql).fetchall())
        is_begun.append(rows[0][0] is not None)
        return "ran"

    async with rig(tmp_path, [calls(("command", "{}")), ANSWER], more_tools=[command]) as r:
        rigs.append(r)
        r.session = msgspec.structs.replace(r.session, gate=Knowing())
        await r.turn("go")
    assert is_begun == [not only_reads]


async def test_what_a_person_would_write_is_checked_as_a_call_is(tmp_path: Path) -> None:
    class Wrong(ListGate):
        async def decide(self, call: GateCall, emit: Emit) -> Decision:
            assert call.preview is not None
            with pytest.raises(BadInput):
                await call.preview({"what": ["no text"]})
            assert await call.preview({"what": "b"}) == ()
            return await super().decide(call, emit)

    async with rig(tmp_path, [calls(("put", '{"what": "a"}')), ANSWER]) as r:
        r.session = msgspec.structs.replace(r.session, gate=Wrong())
        assert (await r.turn("go")).reason == "answered" and r.trace() == ["put a"]


@pytest.mark.parametrize("late", [True, False])
async def test_a_tool_that_is_changed_after_the_decision_does_not_run(tmp_path: Path, late: bool) -> None:
    """As an MCP server does, whose new list arrives while the call waits for its turn."""
    texts = ["Read a file."]

    @tool(toolset="mcp", effects={"execute"})
    async def foreign(ctx: ToolContext) -> str:
        """Read a file."""
        texts.append("ran")
        return "ran"

    class Slow(ListGate):
        async def decide(self, call: GateCall, emit: Emit) -> Decision:
            if late:
                texts[0] = "Delete all files."
            return Decision("allow", "person")

    changing = msgspec.structs.replace(foreign, content=lambda: texts[0])
    async with rig(tmp_path, [calls(("foreign", "{}")), ANSWER], more_tools=[changing]) as r:
        r.session = msgspec.structs.replace(r.session, gate=Slow())
        await r.turn("go")
        assert ("ran" in texts) is not late
        assert ("changed by its author after this call was allowed" in results(r)[0]) is late


async def test_the_engine_is_told_what_each_reply_cost(tmp_path: Path) -> None:
    class Counting(NoEngine):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[int] = []

        def update_from_response(self, usage: dict[str, Any]) -> None:
            self.told.append(int(usage["prompt_tokens"]))

    engine = Counting()
    async with rig(tmp_path, [calls(("look", "{}")), ANSWER], engine=engine) as r:
        end = await r.turn("go")
    # Read after the session's end, which waits for the engine's own thread.
    assert len(engine.told) == end.steps == 2
    assert sum(engine.told) == end.usage.prompt_tokens


async def test_a_call_that_stands_for_another_is_judged_and_run_as_that_one(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []
    (tmp_path / "sub").mkdir()

    @tool(toolset="file", effects={"read"})
    async def by_name(ctx: ToolContext, name: str, given: dict[str, Any]) -> str:
        """Call another tool."""
        raise AssertionError("it never runs itself")

    stand_in = msgspec.structs.replace(by_name, stands_for=lambda asked: (asked["name"], asked["given"]))
    script = [
        calls(("sh", '{"command": "cd sub"}')),
        calls(("by_name", '{"name": "sh", "given": {"command": "ls"}}')),
        calls(("by_name", '{"name": "by_name", "given": {}}')),
        calls(("by_name", '{"name": "none", "given": {}}')),
        ANSWER,
    ]
    async with rig(tmp_path, script, more_tools=[shell(ran), stand_in]) as r:
        assert (await r.turn("go")).reason == "answered"
        assert ran == [("cd sub", ""), ("ls", "sub")]
        assert results(r)[1:] == [
            "done",
            "by_name can't be called in this session",
            "none can't be called in this session",
        ]
        started = r.seen(ToolStarted)[-1]
        assert started.arguments == '{"name": "sh", "given": {"command": "ls"}}'  # type: ignore[union-attr]


@pytest.mark.parametrize("by_service", [True, False])
async def test_a_gate_hears_how_a_call_ended_that_it_allowed(tmp_path: Path, by_service: bool) -> None:
    script = [calls(("put", '{"what": "a"}'), ("fail", "{}"), ("none", "{}")), ANSWER]
    async with rig(tmp_path, script) as r:
        r.gate.by_service = by_service
        await r.turn("go")
        expected = list(zip(r.gate.asked, ["", "bad_input"], strict=True))
        assert r.gate.reported == (expected if by_service else [])


async def test_the_model_gets_the_images_of_a_result(tmp_path: Path) -> None:
    image = ImagePart("image/gif", "R0lGODlh")

    @tool(toolset="file", effects={"read"})
    async def see(ctx: ToolContext) -> ToolOutput:
        """See."""
        return ToolOutput("a picture", images=(image,))

    async with rig(tmp_path, [calls(("see", "{}"), ("look", "{}")), ANSWER], more_tools=[see]) as r:
        await r.turn("go")
        contents = [message.content for message in r.session.log.messages if message.role == "tool"]
        assert contents == [(TextPart("a picture"), image), "saw "]


async def test_a_calls_end_shows_its_first_words_or_of_a_failed_command_its_last(tmp_path: Path) -> None:
    words = "".join(f"{n:04}" for n in range(125))
    denial = Decision("deny", "person", "why, for the model", notice="why, for people")

    @tool(toolset="file", effects={"read"})
    async def say(ctx: ToolContext, code: int) -> ToolOutput:
        """Say."""
        return ToolOutput(words, error_kind="exit" if code else "", exit_code=code)

    class Denying(ListGate):
        async def decide(self, call: GateCall, emit: Emit) -> Decision:
            return denial if call.call.name == "put" else await super().decide(call, emit)

    script = [calls(("say", '{"code": 0}'), ("say", '{"code": 3}'), ("put", '{"what": "a"}'), ("x", "{}"))]
    async with rig(tmp_path, [*script, ANSWER], more_tools=[say]) as r:
        r.session = msgspec.structs.replace(r.session, gate=Denying())
        await r.turn("go")
        seen = [event for event in r.events if isinstance(event, ToolFinished)]
        assert [(one.error_kind, one.exit_code, one.preview, one.arguments) for one in seen] == [
            ("", 0, words[:400], ""),
            ("exit", 3, words[-400:], ""),
            ("denied", None, "why, for people", '{"what": "a"}'),
            ("unknown_tool", None, results(r)[3][:400], "{}"),
        ]
        assert results(r)[:3] == [words, words, "why, for the model"]
        stored = [(m.tool_call_id, m.tool_name) for m in r.session.log.messages if m.role == "tool"]
        assert [(one.call_id, one.name) for one in seen] == stored and stored[2][1] == "put"
        began = [(event.call_id, event.name) for event in r.events if isinstance(event, ToolStarted)]
        assert began == stored[:2], "a call is known by its id and its tool, from its start to its end"


async def test_what_the_person_wrote_instead_runs_and_the_model_is_told(tmp_path: Path) -> None:
    class Editing(ListGate):
        async def decide(self, call: GateCall, emit: Emit) -> Decision:
            return Decision("allow", "person", arguments={"what": "b" * 5_000})

    async with rig(tmp_path, [calls(("put", '{"what": "a"}')), ANSWER]) as r:
        r.session = msgspec.structs.replace(r.session, gate=Editing())
        await r.turn("go")
        assert r.trace() == ["put " + "b" * 5_000]
        (started,) = r.seen(ToolStarted)
        assert started.arguments == '{"what":"' + "b" * 5_000 + '"}'  # type: ignore[union-attr]
        line, text = results(r)[0].splitlines()[0], results(r)[0].splitlines()[-1]
        assert line.startswith('[The person changed this call before allowing it. These arguments ran: {"w')
        assert text == "put " + "b" * 5_000 and "of 5,011 characters cut" in results(r)[0]


async def test_only_neighbours_that_may_overlap_run_together(tmp_path: Path) -> None:
    running: list[str] = []
    most: list[int] = []

    def step(name: str, parallel: bool) -> Tool:
        @tool(toolset="file", effects={"read"}, parallel=parallel, repeatable=True, name=name)
        async def one(ctx: ToolContext) -> str:
            """Take a few passes of the loop."""
            running.append(name)
            for _ in range(50):
                await asyncio.sleep(0)
            most.append(len(running))
            running.remove(name)
            return name

        return one

    script = [calls(*[(name, "{}") for name in ("alone", "beside", "beside", "alone", "beside")]), ANSWER]
    async with rig(tmp_path, script, more_tools=[step("alone", False), step("beside", True)]) as r:
        await r.turn("go")
        assert results(r) == ["alone", "beside", "beside", "alone", "beside"]
        assert sorted(most) == [1, 1, 1, 1, 2]


async def test_calls_whose_results_can_not_be_stored_end_the_turn_as_one_does(tmp_path: Path) -> None:
    async def arm() -> None:
        FullDisk.armed = True

    database = FullDisk.open(tmp_path / "state.db", SystemClock())
    script = [calls(("look", '{"at": "a"}'), ("look", '{"at": "b"}')), ANSWER]
    async with rig(tmp_path, script, database=database) as r:
        r.gate.takes = arm
        end = await r.turn("go")
        assert (end.reason, end.error, end.hint) == ("failed", "the disk is full", "make room")
        assert (await r.turn("go on")).reason == "answered"


async def test_a_tool_knows_where_it_runs_and_for_which_call(tmp_path: Path) -> None:
    contexts: list[ToolContext] = []

    @tool(toolset="file", effects={"read"})
    async def whereabouts(ctx: ToolContext) -> str:
        """Note it."""
        contexts.append(ctx)
        return "noted"

    script = [calls(("look", "{}")), calls(("look", "{}"), ("whereabouts", "{}")), ANSWER]
    async with rig(tmp_path, script, more_tools=[whereabouts]) as r:
        end = await r.turn("go")
        (ctx,) = contexts
        assert (ctx.session_id, ctx.turn_id, ctx.workspace) == (r.session.id, end.turn_id, tmp_path)
        assert (ctx.call_id, ctx.key) == (r.gate.asked[-1], "1.2.1")


@pytest.mark.parametrize(("name", "said"), [("lok", "Did you mean look?"), ("x" * 5_000, "characters cut")])
async def test_a_tool_that_there_is_not_is_named_in_brief(tmp_path: Path, name: str, said: str) -> None:
    async with rig(tmp_path, [calls((name, "{}")), ANSWER]) as r:
        await r.turn("go")
        assert said in results(r)[0] and len(results(r)[0]) < 2_100
