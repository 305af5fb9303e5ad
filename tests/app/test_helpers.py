"""Helpers: what they come to reaches their parent once, their edits are merged or conflict, kills lose none."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.app.helper_runs import helper, mind, process, program, shell, steps
from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.contract.answers import misfit
from whet.contract.events import Event, Notice
from whet.contract.messages import Message, ToolCall, Usage
from whet.practice.server import PracticeServer
from whet.store import helpers, wallet
from whet.store.helpers import HelperRow

Work = Callable[[App, Session], Coroutine[Any, Any, None]]


def run(folder: Path, work: Work, **options: Any) -> None:
    """Do `work` with a new session of a program in `folder`."""

    async def main(base_url: str) -> None:
        async with program(folder, base_url, **options) as app:
            await work(app, await app.new_session())

    with PracticeServer(mind=mind) as server:
        asyncio.run(main(server.base_url))


def repository(folder: Path, text: str = "".join(f"{n}\n" for n in range(1, 10))) -> Path:
    """Make a repository with one file in `folder`/work."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "a.txt").write_text(text)
    git = "git -c user.name=n -c user.email=n@localhost"
    subprocess.run(f"git init -q && git add . && {git} commit -qm a", shell=True, cwd=work, check=True)
    return work


async def turn(session: Session, text: str, seen: list[Event] | None = None) -> list[Message]:
    """Run a turn; gives the messages that it added."""
    before = len(session.log.messages)
    end = await run_turn(session, session.user_message(text), (seen if seen is not None else []).append)
    assert end.reason == "answered", end
    return session.log.messages[before:]


def rows(app: App, session: Session) -> list[HelperRow]:
    return app.database.read_now(lambda db: helpers.of_parent(db, session.id))


def results(messages: list[Message]) -> list[str]:
    return [one.text for one in messages if one.role == "tool"]


def arrived(messages: list[Message]) -> list[str]:
    return [one.text for one in messages if one.role == "user" and one.text.startswith("<helper ")]


def test_a_helper_in_the_background_is_waited_for_and_its_result_comes_once(tmp_path: Path) -> None:
    async def work(app: App, session: Session) -> None:
        seen: list[Event] = []
        task = helper(steps([shell("echo dug > hole.txt")], answer="Dug."), background=True)
        said = await turn(session, steps([task], [process("wait", "helper-1")]), seen)
        assert "works in the background" in results(said)[0]
        assert "helper-1 has ended: answered" in results(said)[1]
        assert [("\nDug.\n" in one) for one in arrived(said)] == [True]
        assert any(isinstance(one, Notice) and "helper-1 has ended" in one.text for one in seen)
        assert arrived(await turn(session, steps())) == []
        assert (tmp_path / "work" / "hole.txt").read_text() == "dug\n"

    run(tmp_path, work)


def test_a_result_that_comes_after_the_turn_is_in_the_next_one(tmp_path: Path) -> None:
    async def work(app: App, session: Session) -> None:
        await turn(session, steps([helper(steps(answer="Late."), background=True)]))
        entry = await app.helpers.next_arrival(session.id)
        assert entry is not None
        said = await turn(session, steps(answer="Again."))
        assert len(arrived(said)) == 1 and "Late." in arrived(said)[0]
        assert await app.helpers.next_arrival(session.id) is None

    run(tmp_path, work)


def test_a_helper_can_be_steered_and_stopped(tmp_path: Path) -> None:
    async def work(app: App, session: Session) -> None:
        waits = "until [ -e go ]; do sleep 0.05; done"
        tasks = [helper(steps([shell(waits)], answer="first"), background=True) for _ in range(2)]
        await turn(session, steps(tasks))
        first, second = rows(app, session)
        context = await _looking(app, session)
        await _until(lambda: "terminal" in str(app.helpers.line(first)) or _has_begun(app, first, second))
        told = await app.helpers.steer(context, first.name, steps(answer="steered"))
        assert "reads it" in told.text
        stopped = await app.helpers.stop(context, second.name)
        assert "stopped" in stopped.text
        (tmp_path / "work" / "go").touch()
        await app.helpers.look(context, first.name, 60)
        assert [(one.reason, one.answer) for one in rows(app, session)] == [
            ("answered", "steered"),
            ("stopped", ""),
        ]

    run(tmp_path, work)


async def _looking(app: App, session: Session) -> Any:
    from whet.contract.tools import ToolContext

    async def nobody(_question: str, _choices: object) -> None:
        return None

    return ToolContext(session.id, "", "", app.workspace, lambda _text: None, nobody)


def _has_begun(app: App, *found: HelperRow) -> bool:
    count = "SELECT count(*) FROM tool_calls WHERE started IS NOT NULL AND session IN (SELECT key FROM sessions WHERE id = ?)"
    return all(
        app.database.read_now(lambda db, one=one: next(db.execute(count, (one.session,)))[0]) for one in found
    )


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")
