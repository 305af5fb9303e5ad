"""A program whose session has helpers, and that kills itself at a write: FOLDER URL HELPERS AT WHEN.

AT 0 is never; WHEN is before, inside or after that write. It goes on where the one before it was killed, and
ends when every result is in the session.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import apsw

from tests.app.helper_runs import helper, process, program, shell, steps
from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.contract.errors import NotFound
from whet.contract.events import Event


def asked(count: int) -> str:
    """Give the message that has the model ask for helpers, half of them in working trees of their own."""
    tasks = [
        helper(
            steps([shell(f"echo {n} >> log{n}.txt")], answer=f"result {n}"),
            background=True,
            worktree=n % 2 == 0,
        )
        for n in range(count)
    ]
    waits = [[process("wait", f"helper-{n + 1}")] for n in range(count)]
    return steps(tasks, *waits)


def kill_at(app: App, at: int, when: str) -> None:
    """Have the process killed at the n-th write from now on."""
    whole, count = app.database.append, 0

    async def append(work: Any, after: Any = None, scope: str = "") -> Any:
        nonlocal count
        count += 1
        if count != at:
            return await whole(work, after, scope)
        if when == "before":
            _die()

        def inside(connection: apsw.Connection) -> Any:
            work(connection)
            _die()

        if when == "inside" and callable(work):
            return await whole(inside, after, scope)
        return await whole(work, lambda result, error: _die(), scope)

    app.database.append = append  # pyright: ignore[reportAttributeAccessIssue] - this program only


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(folder: Path, base_url: str, count: int, at: int, when: str) -> None:
    """Run until every result is there, or the kill."""
    async with program(folder, base_url, parallel=8) as app:
        kill_at(app, at, when)
        path = folder / "session"
        if path.exists():
            session = await app.open_session(path.read_text())
            try:
                await run_turn(session, None, _ignore)
            except NotFound:
                if not session.log.messages:
                    await _begin(session, count)
        else:
            session = await app.new_session()
            path.write_text(session.id)
            await _begin(session, count)
        while (entry := await app.helpers.wait_for_result(session.id)) is not None:
            await run_turn(session, entry.message, _ignore, on_stored=entry.on_stored)


async def _begin(session: Session, count: int) -> None:
    await run_turn(session, session.user_message(asked(count)), _ignore)


def _ignore(event: Event) -> None:
    del event


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
