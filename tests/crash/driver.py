"""A process that runs one turn again and again, and is killed at each of its durable writes in turn.

Run as: python -m tests.crash.driver FOLDER BASE_URL. For every point it forks a child that runs the turn and
kills itself there, then one that opens the session again and goes on; it prints a JSON line per point.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from tests.agent.rig import rig
from whet.agent.loop import run_turn
from whet.agent.session import Session, TurnObserver
from whet.clock import SystemClock
from whet.contract.errors import NotFound
from whet.contract.events import EndReason
from whet.contract.messages import Message
from whet.store import jobs
from whet.store.database import StateDatabase
from whet.store.transcript import TurnRecord

WHEN = ("before", "inside", "after")


class KillingDatabase(StateDatabase):
    """Kills its process with SIGKILL before, inside or after the n-th write."""

    at = 0
    when = ""
    count = 0

    async def append(self, work: Callable[[apsw.Connection], Any], after: Any = None, scope: str = "") -> Any:
        self.count += 1
        if self.count != self.at:
            return await super().append(work, after, scope)
        if self.when == "before":
            die()

        def killing(connection: apsw.Connection) -> Any:
            result = work(connection)
            if self.when == "inside":
                die()
            return result

        return await super().append(killing, lambda result, error: die())


class Address:
    """Where the practice server of another process listens."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class OneJob(TurnObserver):
    """Queues a job at each turn's end."""

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> jobs.TransactionWork:
        job = jobs.NewJob("review", json.dumps({"turn": turn.id, "reason": reason}))
        return lambda connection: [jobs.QueuedJob(jobs.enqueue(connection, job, SystemClock()), ("memory",))]


async def turn(folder: Path, base_url: str, session_id: str, at: int, when: str) -> dict[str, Any]:
    """Run or resume the turn; with `at` it does not return."""
    database = KillingDatabase.open(folder / "state.db", SystemClock())
    server: Any = Address(base_url)
    observers = [OneJob()]
    async with rig(folder, server=server, session_id=session_id, database=database, observers=observers) as r:
        (folder / "session").write_text(r.session.id)
        assert isinstance(database, KillingDatabase)
        database.count, database.at, database.when = 0, at, when
        message = None if session_id else Message("user", "go")
        try:
            end = await run_turn(r.session, message, lambda event: None)
            reason: str = end.reason
        except NotFound:
            reason = "nothing to resume"
        facts = database.read_now(
            lambda db: {
                "turns": db.execute("select count(*), sum(ended <> '') from turns").fetchone(),
                "jobs": db.execute("select count(*) from jobs").fetchone(),
            }
        )
        return {
            **facts,
            "reason": reason,
            "writes": database.count,
            "rows": [
                [m.role, m.text, [c.id for c in m.tool_calls], m.tool_call_id] for m in r.session.log.messages
            ],
            "trace": r.trace(),
        }


def in_child(work: Callable[[], dict[str, Any]], report: Path) -> bool:
    """Run `work` in a fork; give whether it lived to write its report."""
    pid = os.fork()
    if pid == 0:
        report.write_text(json.dumps(work()))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise SystemExit(f"a child failed with {status}")
    return not os.WIFSIGNALED(status)


def main(root: Path, base_url: str) -> None:
    template = root / "template.db"
    StateDatabase.open(template, SystemClock()).close()
    # A child's collector would copy every page of what all of them share.
    gc.collect()
    gc.freeze()
    for when in WHEN:
        at = 1
        while True:
            folder = root / f"{when}-{at}"
            folder.mkdir()
            shutil.copy(template, folder / "state.db")
            report = folder / "report"
            lived = in_child(lambda f=folder, n=at, w=when: asyncio.run(turn(f, base_url, "", n, w)), report)
            session_id = (folder / "session").read_text()
            if not lived:
                in_child(lambda f=folder, s=session_id: asyncio.run(turn(f, base_url, s, 0, "")), report)
            print(
                json.dumps({"when": when, "at": at, "lived": lived, **json.loads(report.read_text())}),
                flush=True,
            )
            if lived:
                break
            at += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
