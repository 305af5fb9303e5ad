"""A home with schedules, a store and a clock that stands still, and the model's replies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec

from tests.support import FixedClock
from whet.clock import iso
from whet.config.paths import Home
from whet.schedules import timing
from whet.schedules.worker import FinishedRun, ScheduleWorker
from whet.store import schedules
from whet.store.database import StateDatabase
from whet.store.schedules import Schedule, ScheduleRun
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

MINUTE_S, HOUR_S = 60, 3600


class Bench:
    """A home with a store, a clock that stands still, and workers."""

    def __init__(self, home: Path, work: Path, server: PracticeServer) -> None:
        self.home, self.work, self.clock = Home(home), work, FixedClock()
        self.home.ensure()
        model = {"provider": "practice", "base_url": server.base_url, "model": "practice", "max_retries": 0}
        rules = {"allow": ["terminal(echo *)"]}
        self.home.config.write_text(json.dumps({"model": model, "approval": rules}))
        self.database = StateDatabase.open(self.home.database, self.clock)
        self.told: list[FinishedRun] = []

    def worker(
        self, catch_up_s: float = 12 * HOUR_S, database: StateDatabase | None = None
    ) -> ScheduleWorker:
        return ScheduleWorker(self.home, database or self.database, self.clock, catch_up_s, self.told.append)

    def add(self, expression: str = "*/10 * * * *", **more: Any) -> Schedule:
        made = Schedule(
            self.clock.new_id(), "reports", iso(self.clock.now()), expression, "", "UTC", "say hello",
            workspace=str(self.work),
        )  # fmt: skip
        made = msgspec.structs.replace(made, **more)
        due = made.at or iso(timing.next_after(made, self.clock.now()))
        self.database.write_now(lambda db: schedules.add(db, made, due, self.clock))
        return made

    def drain(self, worker: ScheduleWorker | None = None) -> list[ScheduleRun]:
        before = len(self.told)
        asyncio.run((worker or self.worker()).drain())
        return [finished.run for finished in self.told[before:]]

    def after(self, seconds: float = 10 * MINUTE_S) -> list[ScheduleRun]:
        """Do what is due when some time has passed."""
        self.clock.advance(seconds)
        return self.drain()

    def runs(self, schedule: Schedule) -> list[ScheduleRun]:
        return self.database.read_now(lambda db: schedules.list_runs(db, schedule.id))

    def next(self, schedule: Schedule) -> str:
        return self.database.read_now(lambda db: schedules.find_next_due(db, schedule.id))


def says(text: str, **more: Any) -> ScriptedReply:
    return ScriptedReply(text, **more)


def does(tool: str, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(tool_calls=(PracticeCall(tool, json.dumps(arguments)),))
