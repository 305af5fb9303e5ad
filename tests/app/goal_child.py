"""A program that pursues the home's goal and kills itself at an event: FOLDER BASE_URL EVENT, 0 for never."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.app.goal_runs import Judge
from tests.app.opened import open_app, practice_model
from whet.config.permission_settings import ApprovalSettings, SandboxSettings
from whet.contract.errors import NotFound
from whet.contract.events import Event
from whet.goals.pursuit import GoalRunner
from whet.goals.text import GoalWish
from whet.store import goals


async def main(folder: Path, base_url: str, at: int) -> None:
    """Pursue the open goal, or begin it."""
    left = at

    def show(event: Event) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async with open_app(
        folder / "home",
        folder / "work",
        practice_model(base_url, "practice-echo"),
        Judge(),
        approval=ApprovalSettings(mode="auto", allow=("terminal",)),
        sandbox=SandboxSettings(mode="off"),
    ) as app:
        runner = GoalRunner(app.sessions, show)
        try:
            row = await app.database.read(lambda db: goals.get(db, ""))
            session = await runner.reopen(row)
        except NotFound:
            row, session = await runner.start(GoalWish("count to three", "sh check.sh"))
        await runner.pursue(row, session)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
