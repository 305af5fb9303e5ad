"""`whet worker` killed with SIGKILL at random points and started again: applied exactly once, never half."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.review.rig import SAID, does, remember, says, use
from tests.stories.program import Program, Running
from tests.support import list_jobs
from whet.clock import SystemClock
from whet.store import ledger, reviews
from whet.store.database import StateDatabase
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

SKILL = """---
name: run-tests
description: Run the tests of this project.
---
1. the tests run with ./check --fast in this project
"""
QUOTE = "the tests run with ./check --fast in this project"
FACT = QUOTE
WRITES = (
    remember(FACT, QUOTE),
    use("skill_manage", action="create", name="run-tests", content=SKILL, evidence=[QUOTE]),
)


def script() -> list[ScriptedReply]:
    """Stateless in effect: what is answered depends on what the request shows."""
    review = "Self-improvement review\\n"
    asked = [
        says("Saved two things.", when='"name":"skill_manage","arguments"'),
        does(WRITES[1], when='"name":"memory","arguments"'),
        does(WRITES[0], use("skills_list"), when=review),
        says("Understood.", when=SAID),
        says("I ran pytest."),
    ]
    return [reply for reply in asked for _ in range(400)]


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which one review waits."""
    return prepare(tmp_path_factory.mktemp("queued"))


def prepare(root: Path) -> Path:
    """Hold a conversation that calls for a review and give its home."""
    with PracticeServer(script=script()) as server:
        program = Program(root, server, environ={"WHET_REVIEW_WORKER": "off"})
        assert program.ask("Run the tests").code == 0
        done = program.ask(SAID, "--continue")
        assert len(done.row["review"]["queued"]) == 1
    return program.home


class Round:
    """One copy of that home, and what is in it."""

    def __init__(self, root: Path, queued: Path, server: PracticeServer) -> None:
        root.mkdir()
        self.program = Program(root, server)
        shutil.copytree(queued, self.program.home)
        self._repoint(server)

    def _repoint(self, server: PracticeServer) -> None:
        """The order names the server that the conversation was held with; this one has another port."""
        db = StateDatabase.open(self.program.home / "state.db", SystemClock())
        [job] = db.read_now(list_jobs)
        old = job.payload.split('"base_url":"')[1].split('"')[0]
        payload = job.payload.replace(old, server.base_url)
        db.write_now(lambda c: c.execute("UPDATE jobs SET payload = ?", (payload,)))
        db.close()

    def start(self) -> Running:
        return self.program.start("worker", "--drain")

    def look(self) -> tuple[str, list[str], str]:
        """The job's state, the states of what was written, and MEMORY.md as it is."""
        with contextlib.closing(StateDatabase.open(self.program.home / "state.db", SystemClock())) as db:
            [job] = db.read_now(list_jobs)
            rows = db.read_now(lambda c: ledger.select(c))
            [review] = db.read_now(reviews.list_reviews)
            assert (review.finished != "") == (job.state == "done")
        memory = self.program.home / "memories" / "MEMORY.md"
        return job.state, [row.state for row in rows], memory.read_text() if memory.exists() else ""

    def assert_whole(self) -> None:
        """All or nothing: in the ledger at any time, in the files never before the ledger."""
        state, rows, memory = self.look()
        if state == "done":
            assert rows == ["active", "active"], rows
        else:
            assert set(rows) <= {"staged"} and FACT not in memory, (state, rows, memory)

    def assert_applied_once(self) -> None:
        state, rows, memory = self.look()
        assert (state, rows) == ("done", ["active", "active"])
        assert memory.count(FACT) == 1
        [skill] = (self.program.home / "skills").glob("*/SKILL.md")
        assert skill.read_text().count("./check") == 2  # its description and its line


def kill_rounds(root: Path, queued: Path, points: int, seed: int) -> list[str]:
    """Kill a worker at random moments of its life; give the state in which each kill left the job."""
    pick = random.Random(seed)
    left: list[str] = []
    with PracticeServer(script=script()) as server:
        whole = Round(root / "whole", queued, server)
        began = time.monotonic()
        assert whole.start().done().code == 0
        lasts_s = time.monotonic() - began
        whole.assert_applied_once()
        asked = len(server.requests)
        for number in range(points):
            one = Round(root / f"kill-{number}", queued, server)
            for _ in range(1 + number % 2):  # every other one dies twice
                running = one.start()
                with contextlib.suppress(TimeoutError):  # `done` kills what has not ended by then
                    running.done(pick.uniform(0.02, lasts_s))
                one.assert_whole()
                left.append(one.look()[0])
            assert one.start().done().code == 0
            one.assert_applied_once()
            shutil.rmtree(root / f"kill-{number}")
        assert asked == 2
        assert not any(request.refused for request in server.requests)
    return left


@pytest.mark.slow
def test_killed_anywhere_a_review_is_applied_exactly_once(tmp_path: Path, queued: Path) -> None:
    left = kill_rounds(tmp_path, queued, 4, seed=os.getpid())
    assert left


@pytest.mark.soak
def test_killed_at_a_hundred_random_points(tmp_path: Path, queued: Path) -> None:
    left = kill_rounds(tmp_path, queued, 100, seed=7)
    assert left.count("running") >= 20, "most kills hit a review at work"


@pytest.mark.slow
def test_a_killed_chat_process_leaves_the_job_to_the_next_at_once(tmp_path: Path, queued: Path) -> None:
    stall = ScriptedReply("x", fault=Fault(stall_after=-1))
    with PracticeServer(script=[does(WRITES[0], use("skills_list")), stall, does(WRITES[1])]) as server:
        one = Round(tmp_path / "one", queued, server)
        running = one.start()
        server.wait_for_stall()
        os.kill(running.pid, signal.SIGKILL)
        assert running.done().code == -signal.SIGKILL
        assert one.look()[:2] == ("running", ["staged"])
        assert one.start().done().code == 0
        one.assert_applied_once()
        bodies = [request.body for request in server.requests]
        assert bodies[1] == bodies[2], (
            "the child was opened again: nothing was paid for twice but the cut call"
        )
