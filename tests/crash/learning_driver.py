"""A process that learns, and is killed at each of its durable steps: database writes and file moves.

Run as: python -m tests.crash.learning_driver FOLDER. For every point it forks a child that kills itself
there, then one that does the same calls again, as a resumed turn does; it prints a JSON line per point.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from whet.clock import SystemClock
from whet.config.schema import MemorySettings, ReviewSettings
from whet.contract.messages import Message
from whet.contract.origin import Origin
from whet.memory.reader import MemoryReader
from whet.memory.requests import MemoryRequest, SkillRequest
from whet.memory.service import LearningService
from whet.store import learned, ledger, sessions
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript

CHECK, DEPLOY = "We run make check before each commit.", "We deploy on Tuesdays only."
SAID = f"{CHECK} {DEPLOY}"
SKILL = "---\nname: commit\ndescription: How we commit.\n---\nRun make check before each commit.\n"
EVENTS = {"os.rename", "os.link", "os.remove", "os.chmod", "os.mkdir", "os.rmdir"}


class Killer:
    """Counts durable steps and ends the process with SIGKILL at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0
        self.armed = False

    def step(self) -> None:
        if self.armed:
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)


class KillingWrites(StateDatabase):
    """A database's writes: each may be killed before, inside or after it."""

    killer: Killer

    def write_now(self, work: Callable[[apsw.Connection], Any]) -> Any:
        def killing(connection: apsw.Connection) -> Any:
            result = work(connection)
            self.killer.step()
            return result

        self.killer.step()
        result = super().write_now(killing)
        self.killer.step()
        return result


class KillingDatabase(KillingWrites):
    """A home's database whose process is killed at a write."""


async def learn(folder: Path, killer: Killer) -> dict[str, Any]:
    database = KillingDatabase.open(folder / "state.db", SystemClock())
    assert isinstance(database, KillingDatabase)
    database.killer = Killer(0)
    learning = LearningService(
        MemoryReader(database, SystemClock(), folder, (MemorySettings(), ReviewSettings()))
    )
    if not database.read_now(lambda db: sessions.count_chats(db)):
        log = await Transcript.create(database, sessions.NewSession(id="s"), SystemClock())
        await log.end_turn(await log.begin_turn(Message("user", SAID)), "answered", "")
        new = sessions.NewSession(id="r", parent_session_id="s", kind="review")
        database.write_now(lambda db: sessions.create(db, new, "2026-11-21T00:00:00.000Z"))
    database.killer = killer
    killer.armed = True
    await learning.submit(
        MemoryRequest("add", content="Deploy on Tuesdays only.", evidence=(DEPLOY,)),
        Origin("foreground", "s", "t", "c1"),
    )
    await learning.submit(
        SkillRequest("create", "commit", content=SKILL, evidence=(SAID,)),
        Origin("foreground", "s", "t", "c2"),
    )
    (folder / "by-hand").touch()
    review = {"session_id": "r", "turn_id": "t", "parent_session_id": "s", "task_id": "job"}
    await learning.submit(
        MemoryRequest("add", content="Run make check before each commit.", evidence=(CHECK,)),
        Origin("review", tool_call_id="c3", **review),
    )
    await learning.submit(
        SkillRequest(
            "patch", "commit", old_string="Run make", new_string="Always run make", evidence=(SAID,)
        ),
        Origin("review", tool_call_id="c4", **review),
    )
    rows = database.write_now(lambda db: learning.settle(db, "job"))
    await learning.apply(rows)
    row = database.read_now(lambda db: ledger.find_by_call(db, "s", "c1"))
    if row is not None and row.state == "active":
        await learning.undo(row.id, Origin("user"))
    killer.armed = False
    return {"steps": killer.count, **state(database, folder)}


def state(database: StateDatabase, folder: Path) -> dict[str, Any]:
    files = database.read_now(lambda db: learned.list_file_states(db, ""))
    rows = database.read_now(lambda db: ledger.select(db))[::-1]
    disagree = [
        file.path
        for file in files
        if file.wanted != file.written
        or (ledger.hash_text((folder / file.path).read_bytes()) if (folder / file.path).exists() else "")
        != file.wanted
    ]
    return {
        "disagree": disagree,
        "rows": [[row.kind, row.action, row.state, row.origin.tool_call_id] for row in rows],
        "memory": (folder / "memories/MEMORY.md").read_text("utf-8"),
        "skill": (folder / "skills/commit/SKILL.md").read_text("utf-8"),
        "litter": sorted(str(p.relative_to(folder)) for p in folder.rglob(".*.new"))
        + sorted(str(p.relative_to(folder)) for p in folder.rglob(".*.before")),
    }


def in_child(folder: Path, at: int, report: Path) -> bool:
    pid = os.fork()
    if pid == 0:
        killer = Killer(at)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event in EVENTS and any(str(folder / part) in str(args[0]) for part in ("memories", "skills")):
                killer.step()

        sys.addaudithook(hook)
        report.write_text(json.dumps(asyncio.run(learn(folder, killer))))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise SystemExit(f"a child failed with {status}")
    return not os.WIFSIGNALED(status)


def main(root: Path, every: int) -> None:
    at = 0
    while True:
        folder = root / str(at)
        folder.mkdir()
        report = folder / "report"
        lived = in_child(folder, at, report)
        if not lived:
            in_child(folder, 0, report)
        print(json.dumps({"at": at, "lived": lived, **json.loads(report.read_text())}), flush=True)
        if lived and at:
            return
        at += every if at else 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
