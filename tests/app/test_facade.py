"""The synchronous face, on the practice server and a real home."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import whet
from tests.agent.rig import calls
from whet.clock import SystemClock
from whet.contract.events import ToolFinished, TurnEnd
from whet.contract.origin import Origin
from whet.store import ledger
from whet.store.database import StateDatabase
from whet.store.ledger import NewRow
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer


def settings(server: PracticeServer) -> dict[str, object]:
    return {"model.provider": "practice", "model.base_url": server.base_url, "approval.mode": "auto"}


def test_a_program_runs_turns_and_reads_events(tmp_path: Path) -> None:
    script = [
        calls(("read_file", '{"path":"a.txt"}')),
        ScriptedReply("It says hello."),
        ScriptedReply("Bye."),
    ]
    (tmp_path / "a.txt").write_text("hello")
    with (
        PracticeServer(script=script) as server,
        whet.Agent(settings=settings(server), workspace=tmp_path) as agent,
    ):
        events = list(agent.stream("read a.txt"))
        assert isinstance(events[-1], TurnEnd) and events[-1].text == "It says hello."
        assert [event.ok for event in events if isinstance(event, ToolFinished)] == [True]
        assert agent.run("bye").text == "Bye."
        session_id = agent.session_id
    with (
        PracticeServer(script=[ScriptedReply("Yes.")]) as server,
        whet.Agent(settings=settings(server), workspace=tmp_path, session_id=session_id) as agent,
    ):
        assert agent.run("still there?").text == "Yes."
        assert len(agent.messages) == 8


def test_a_home_and_a_folder_may_be_texts(tmp_path: Path) -> None:
    folder, home = str(tmp_path), str(tmp_path / "home of its own")
    with (
        PracticeServer(script=[ScriptedReply("Yes.")]) as server,
        whet.Agent(settings=settings(server), workspace=folder, home=home) as agent,
    ):
        assert agent.run("are you there?").text == "Yes."
    assert (tmp_path / "home of its own" / "state.db").is_file()


def test_what_reviews_learned_meanwhile_is_told_once(home: Path, tmp_path: Path) -> None:
    with PracticeServer() as server:
        with whet.Agent(settings=settings(server), workspace=tmp_path) as agent:
            agent.run("hello")
        database = StateDatabase.open(home / "state.db", SystemClock())
        for number, state in enumerate(("active", "refused", "refused")):
            origin = Origin("review", tool_call_id=f"c{number}")
            row = NewRow("memory", "memory", "add", state, origin, after=f"fact {number}", reason="because")
            database.write_now(lambda db, row=row: ledger.insert_row(db, row, "2026-01-02T00:00:00.000Z"))
        database.close()
        with whet.Agent(settings=settings(server), workspace=tmp_path) as agent:
            news = agent.learned()
            assert news.line == "since you left: learned 1, refused 2 (whet review inbox)"
            assert agent.learned() == whet.LearningNews(until=news.until)


def test_leaving_a_stream_early_cancels_the_turn(tmp_path: Path) -> None:
    slow = ScriptedReply("a b c d", pieces=4, fault=Fault(stall_after=2))
    with (
        PracticeServer(script=[slow, ScriptedReply("Again.")]) as server,
        whet.Agent(settings=settings(server), workspace=tmp_path) as agent,
    ):
        for _ in agent.stream("go"):
            break
        assert agent.run("again").text == "Again."


async def test_it_refuses_to_block_an_event_loop_and_names_what_does_not(tmp_path: Path) -> None:
    with pytest.raises(whet.WhetError) as refused:
        whet.Agent()
    assert "whet.AsyncAgent" in refused.value.hint


def test_an_argument_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    misspelled: dict[str, object] = {"provider": "practice"}
    with pytest.raises(TypeError, match="no argument 'provider'; it takes settings, session_id"):
        whet.AsyncAgent(home=tmp_path, **misspelled)  # type: ignore[typeddict-item]
    with pytest.raises(TypeError, match="no argument 'effect'; it takes name"):
        whet.tool(**{"effect": {"send"}})  # type: ignore[typeddict-item]


def test_turns_of_one_agent_run_one_after_another(tmp_path: Path) -> None:
    async def main(server: PracticeServer) -> list[str]:
        async with whet.AsyncAgent(settings=settings(server), workspace=tmp_path) as agent:
            first, second = await asyncio.gather(agent.run("one"), agent.run("two"))
            return [first.text, second.text, *(m.text for m in agent.messages if m.role == "user")]

    with PracticeServer(script=[ScriptedReply("1"), ScriptedReply("2")]) as server:
        assert asyncio.run(main(server)) == ["1", "2", "one", "two"]


@pytest.mark.slow
async def test_a_left_stream_a_cancel_and_a_cancelled_task_each_end_the_turn(tmp_path: Path) -> None:
    slow = ScriptedReply("a b c d", pieces=4, fault=Fault(stall_after=2))
    last = ScriptedReply(
        "Again.", when="still there?"
    )  # however many of the turns before had reached the server
    with PracticeServer(script=[last, slow, slow, slow]) as server:
        async with whet.AsyncAgent(settings=settings(server), workspace=tmp_path) as agent:
            assert not agent.cancel()
            with pytest.raises(whet.WhetError, match="no turn"):
                agent.steer("left")
            async for _ in agent.stream("left"):
                break
            async for event in agent.stream("cancelled"):
                if isinstance(event, whet.TextDelta):
                    assert agent.cancel()
            assert isinstance(event, whet.TurnEnd) and event.reason == "cancelled"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await agent.run("too slow")
            assert (await agent.run("still there?")).text == "Again."
        with pytest.raises(whet.WhetError, match="not open"):
            await agent.run("closed")
        await agent.aclose()


def test_a_turn_is_steered_from_another_thread_and_what_is_read_is_told(tmp_path: Path) -> None:
    script = [calls(("wait", "{}")), ScriptedReply("Brief.")]
    with PracticeServer(script=script) as server:

        def wait() -> str:
            """Wait for the person."""
            agent.steer("Be brief.")
            return "waited"

        with whet.Agent(settings=settings(server), workspace=tmp_path, tools=[wait]) as agent:
            events = list(agent.stream("go"))
            assert [event.text for event in events if isinstance(event, whet.Steered)] == ["Be brief."]
            assert agent.usage.total_tokens > 0 and not agent.cancel()


def test_a_programs_tools_are_there_when_its_session_is_opened_again(tmp_path: Path) -> None:
    def double(ctx: whet.ToolContext, number: int) -> dict[str, int]:
        """Double a number."""
        return {"twice": number * 2, "calls": len(ctx.session_id) and 1}

    use = calls(("double", '{"number":"21"}'))
    texts: list[str] = []
    session_id = ""
    for script in ([use, ScriptedReply("42.")], [use, ScriptedReply("42 again.")]):
        with (
            PracticeServer(script=script) as server,
            whet.Agent(
                settings=settings(server), workspace=tmp_path, tools=[double], session_id=session_id
            ) as agent,
        ):
            agent.run("double it")
            session_id = agent.session_id
            texts = [message.text for message in agent.messages if message.role == "tool"]
    assert texts == ['{"twice":42,"calls":1}'] * 2


def test_a_programs_tool_can_be_denied_by_rule_and_must_have_a_name_of_its_own(tmp_path: Path) -> None:
    def wipe() -> str:
        """Wipe all."""
        raise AssertionError("it ran")

    @whet.tool(name="read_file")
    def other() -> str:
        """Read."""
        return ""

    with PracticeServer(script=[calls(("wipe", "{}")), ScriptedReply("No.")]) as server:
        given = settings(server) | {"approval.deny": ["wipe"]}
        with whet.Agent(settings=given, workspace=tmp_path, tools=[wipe]) as agent:
            events = list(agent.stream("wipe"))
            assert [e.error_kind for e in events if isinstance(e, whet.ToolFinished)] == ["denied"]
        with pytest.raises(whet.ConfigError, match="a tool named read_file already"):
            whet.Agent(settings=given, workspace=tmp_path, tools=[other])
    assert other() == ""  # the decorated function is the program's as before


def test_exported_names_are_what_can_be_imported() -> None:
    assert all(getattr(whet, name) is not None for name in whet.__all__)
    assert set(dir(whet)) == set(whet.__all__)
    tree = ast.parse(Path(whet.__file__).read_text("utf-8"))
    typed = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
    assert typed - {"annotations", "TYPE_CHECKING"} == set(whet.__all__) - {"__version__"}
    with pytest.raises(AttributeError):
        whet.nothing_of_the_kind  # noqa: B018  the access is the test
    code = "import sys, whet; assert not {'asyncio', 'msgspec', 'httpx2', 'apsw'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
