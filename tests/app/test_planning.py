"""Plan mode wherever one talks: only reading, steps that a person changes, what was done for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.app.helper_runs import mind, program, shell, steps
from tests.app.opened import ask
from whet.agent.session import Session
from whet.app import modes, planning
from whet.app.build import App
from whet.contract.errors import ConfigError
from whet_lab.practice.server import PracticeServer

Work = Callable[[App, Session, PracticeServer], Coroutine[Any, Any, None]]


def run(folder: Path, work: Work) -> None:
    async def main(server: PracticeServer) -> None:
        async with program(folder, server.base_url) as app:
            await work(app, await app.new_session(), server)

    with PracticeServer(responder=mind) as server:
        asyncio.run(main(server))


def todo(*items: tuple[str, str]) -> tuple[str, dict[str, Any]]:
    """Give a call that writes the list down."""
    return "todo", {
        "items": [{"id": str(n), "content": text, "status": how} for n, (text, how) in enumerate(items, 1)]
    }


async def say(session: Session, text: str) -> list[str]:
    """Run a turn; gives the results of its calls."""
    before = len(session.log.messages)
    await ask(session, text)
    return [message.text for message in session.log.messages[before:] if message.role == "tool"]


def test_a_session_that_plans_reads_only_and_is_told_so(tmp_path: Path) -> None:
    async def work(app: App, session: Session, server: PracticeServer) -> None:
        begun = await planning.run_command(app.services, session.id, "mend it")
        assert begun.message == "mend it" and "only reads" in begun.text
        plan = todo(("look", "pending"), ("mend", "pending"))
        texts = await say(session, steps([shell("touch x"), plan]))
        assert "plans and only reads" in texts[0] and not (tmp_path / "work" / "x").exists()
        assert b"Plan mode" in server.requests[-1].body
        shown = await planning.run_command(app.services, session.id, "")
        assert "1. [ ] look" in shown.text and "2. [ ] mend" in shown.text and "(planning" in shown.text

    run(tmp_path, work)


@pytest.mark.slow
def test_background_commands_that_run_on_are_named_when_planning_begins(tmp_path: Path) -> None:
    async def work(app: App, session: Session, server: PracticeServer) -> None:
        assert await modes.set_mode(app.services, session.id, "plan") == []
        await modes.set_mode(app.services, session.id, "auto")
        await say(session, steps([("terminal", {"command": "sleep 60", "background": True})]))
        line = "p1 still runs and may change files (/jobs stop p1 ends it): sleep 60"
        assert await modes.set_mode(app.services, session.id, "plan") == [line]
        await modes.set_mode(app.services, session.id, "ask")
        begun = await planning.run_command(app.services, session.id, "mend it")
        assert line in begun.text

    run(tmp_path, work)


def test_the_person_changes_the_steps_and_approves_them(tmp_path: Path) -> None:
    async def work(app: App, session: Session, server: PracticeServer) -> None:
        await planning.run_command(app.services, session.id, "mend it")
        changed = await planning.run_command(app.services, session.id, "steps\n1. look twice\n- mend\n\n")
        assert "1. [ ] look twice" in changed.text and "2. [ ] mend" in changed.text
        going = await planning.run_command(app.services, session.id, "go")
        assert "approved" in going.message and "1. look twice\n2. mend" in going.message
        assert await say(session, steps([shell("touch x")])) and (tmp_path / "work" / "x").exists()
        assert b"Plan mode" not in server.requests[-1].body
        with pytest.raises(ConfigError, match="no steps"):
            await planning.run_command(app.services, session.id, "steps\n\n")

    run(tmp_path, work)


def test_what_was_done_for_a_step_is_read_from_its_calls(tmp_path: Path) -> None:
    async def work(app: App, session: Session, server: PracticeServer) -> None:
        await say(
            session,
            steps(
                [todo(("look", "in_progress"), ("mend", "pending"))],
                [shell("ls")],
                [todo(("look", "completed"), ("mend", "in_progress"))],
                [("write_file", {"path": "a.txt", "content": "a\n"})],
                [todo(("look", "completed"), ("mend", "completed"))],
                [shell("true")],
            ),
        )
        state = await planning.read_plan(app.services, session.id)
        assert [(step.status, step.effects) for step in state.steps] == [
            ("completed", "1 command"),
            ("completed", "a.txt +1 −0 · no tests ran"),
        ]

    run(tmp_path, work)


async def test_a_session_plans_on_after_a_restart(tmp_path: Path) -> None:
    with PracticeServer(responder=mind) as server:
        async with program(tmp_path, server.base_url) as app:
            session = await app.new_session()
            await say(session, steps())
            await planning.set_planning(app.services, session.id, True)
        async with program(tmp_path, server.base_url) as app:
            again = await app.open_session(session.id)
            assert "plans and only reads" in (await say(again, steps([shell("touch x")])))[0]
            await planning.run_command(app.services, session.id, "off")
        async with program(tmp_path, server.base_url) as app:
            await say(await app.open_session(session.id), steps([shell("touch x")]))
            assert (tmp_path / "work" / "x").exists()


def test_a_session_that_plans_writes_no_skill(tmp_path: Path) -> None:
    async def work(app: App, session: Session, server: PracticeServer) -> None:
        await planning.run_command(app.services, session.id, "mend it")
        text = "---\nname: deploy\ndescription: How to deploy\n---\nRun make.\n"
        skill = {"action": "create", "name": "deploy", "content": text, "evidence": ["Run make."]}
        texts = await say(session, steps([("skill_manage", skill)]))
        assert "plans and only reads" in texts[0]
        assert not list((tmp_path / "home").rglob("deploy/SKILL.md"))

    run(tmp_path, work)
