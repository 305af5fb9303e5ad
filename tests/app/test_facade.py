"""The synchronous face, on the practice server and a real home."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import whet
from tests.agent.rig import calls
from whet.contract.events import ToolFinished, TurnEnd
from whet.practice.script import Fault, ScriptedReply
from whet.practice.server import PracticeServer


def settings(server: PracticeServer) -> dict[str, object]:
    return {"model.provider": "practice", "model.base_url": server.base_url, "approval.mode": "auto"}


def test_a_program_runs_turns_and_reads_events(tmp_path: Path) -> None:
    script = [
        calls(("read_file", '{"path":"a.txt"}')),
        ScriptedReply(text="It says hello."),
        ScriptedReply(text="Bye."),
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
        session_id = agent.session.id
    with (
        PracticeServer(script=[ScriptedReply(text="Yes.")]) as server,
        whet.Agent(settings=settings(server), workspace=tmp_path, session_id=session_id) as agent,
    ):
        assert agent.run("still there?").text == "Yes."
        assert len(agent.session.log.messages) == 8


def test_leaving_a_stream_early_cancels_the_turn(tmp_path: Path) -> None:
    slow = ScriptedReply(text="a b c d", pieces=4, fault=Fault(stall_after=2))
    with (
        PracticeServer(script=[slow, ScriptedReply(text="Again.")]) as server,
        whet.Agent(settings=settings(server), workspace=tmp_path) as agent,
    ):
        for _ in agent.stream("go"):
            break
        assert agent.run("again").text == "Again."


def test_it_refuses_to_block_an_event_loop(tmp_path: Path) -> None:
    async def main() -> None:
        whet.Agent()

    with pytest.raises(whet.WhetError):
        asyncio.run(main())


def test_exported_names_are_what_can_be_imported() -> None:
    assert all(getattr(whet, name) is not None for name in whet.__all__)
    assert set(dir(whet)) == set(whet.__all__)
    with pytest.raises(AttributeError):
        whet.nothing_of_the_kind  # noqa: B018  the access is the test
    code = "import sys, whet; assert not {'asyncio', 'msgspec', 'httpx2', 'apsw'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
