"""Four helpers that edit one file of one repository at once, some of them the same lines."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path

from tests.app.helper_runs import helper, program, shell, steps
from whet.agent.loop import run_turn
from whet.contract.messages import Message
from whet.store import helper_rows


def edit_together(folder: Path, base_url: str, seed: int) -> int:
    """Have four helpers edit a file; gives how many conflicted. Raises AssertionError where an edit is in the
    file without having been merged, or is lost without having been shown."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "a.txt").write_text("".join(f"line {n}\n" for n in range(40)))
    git = "git -c user.name=n -c user.email=n@localhost"
    subprocess.run(f"git init -q && git add . && {git} commit -qm a", shell=True, cwd=work, check=True)
    chance = random.Random(seed)
    places = [chance.randint(1, 40) for _ in range(4)]
    conflicts, texts = asyncio.run(_edited(folder, base_url, places))
    text = (work / "a.txt").read_text()
    for number, at in enumerate(places):
        is_there = f"by {number}, line {at - 1}\n" in text
        assert is_there != (number in conflicts), (seed, number, at)
        assert number not in conflicts or f"by {number}, line" in texts[number]
    return len(conflicts)


async def _edited(folder: Path, base_url: str, places: list[int]) -> tuple[set[int], list[str]]:
    tasks = [
        helper(steps([shell(f"sed -i '{at}s/^/by {number}, /' a.txt")]), worktree=True)
        for number, at in enumerate(places)
    ]
    async with program(folder, base_url) as app:
        session = await app.new_session()
        message: Message = session.user_message(steps(tasks))
        await run_turn(session, message, lambda _event: None)
        rows = app.database.read_now(lambda db: helper_rows.list_helpers(db, session.id))
        by_call = sorted(rows, key=lambda row: int(row.call.rpartition(".")[2]))
        failed = [
            (helper_row.name, helper_row.error) for helper_row in by_call if helper_row.reason != "answered"
        ]
        assert not failed, failed
        call = {n for n, row in enumerate(by_call) if row.merge is not None and row.merge.conflicts}
        texts = [one.text for one in session.log.messages if one.role == "tool"]
        return call, texts
