"""What the store's tests share: an open database, a session with a turn, and child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.team.cluster import NO_SERVER
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import ToolOutput
from whet.store import jobs
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import OpenCall, Transcript, TurnRecord

ROOT = Path(__file__).parents[2]
ONLY_SQLITE = pytest.mark.parametrize("db", ["sqlite"], indirect=True)
"""For what is of the home's own file: its pages, triggers, claims of processes."""
ONLY_POSTGRES = pytest.mark.parametrize(
    "db",
    [pytest.param("postgres", marks=pytest.mark.skipif(bool(NO_SERVER), reason=NO_SERVER))],
    indirect=True,
)
"""For what is of a team's database."""
USAGE = Usage(
    prompt_tokens=10, completion_tokens=5, total_tokens=15, input_tokens=10, output_tokens=5, cost_usd=0.5
)


def on(db: StateDatabase, work: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Run a function of the store in a transaction of its own."""
    return db.write_now(lambda connection: work(connection, *args, **more))


def user(text: str) -> Message:
    return Message("user", text)


def answer(text: str) -> Message:
    return Message("assistant", text)


def asking(*names: str, ids: tuple[str, ...] = ()) -> Message:
    ids = ids or tuple(f"call_{i}" for i in range(len(names)))
    calls = tuple(ToolCall(id_, name, '{"x": 1}') for id_, name in zip(ids, names, strict=True))
    return Message("assistant", "", tool_calls=calls)


def result(call: OpenCall, text: str = "done") -> Message:
    return Message("tool", text, tool_call_id=call.call.id, tool_name=call.call.name)


async def finish(log: Transcript, turn: TurnRecord, call: OpenCall, text: str = "done") -> Message:
    message = result(call, text)
    await log.store_call_result(turn, call, message, output=ToolOutput(text), duration_s=0.25)
    return message


async def new_log(db: StateDatabase, clock, id_: str = "s1", **fields) -> Transcript:
    return await Transcript.create(db, NewSession(id=id_, **fields), clock)


async def begin_session(db: StateDatabase, clock, text: str) -> tuple[Transcript, TurnRecord]:
    """A session whose first turn has begun."""
    log = await new_log(db, clock)
    return log, await log.begin_turn(user(text))


async def reply_and_end(log: Transcript, turn: TurnRecord, text: str) -> None:
    await log.append_reply(turn, answer(text), USAGE, "m")
    await log.end_turn(turn, "answered", "")


async def talk(db: StateDatabase, clock, id_: str, *texts: str, **fields) -> Transcript:
    """A session in which each text was a turn of its own, answered with ok."""
    log = await new_log(db, clock, id_, **fields)
    for text in texts:
        await reply_and_end(log, await log.begin_turn(user(text)), "ok")
    return log


def one_job(clock) -> jobs.TransactionWork:
    """What a turn's end does: it queues a job."""
    return lambda c: [jobs.QueuedJob(jobs.enqueue(c, jobs.NewJob("review", "{}"), clock), ("memory",))]


def child(code: str, *args: str, stderr: int = subprocess.STDOUT, **options: Any) -> subprocess.Popen[str]:
    """Start Python on `code` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        **options,
    )


def run_child(code: str, *args: str, **options: Any) -> tuple[int, str]:
    """Run Python on `code` to its end; gives (exit code, output)."""
    process = child(code, *args, **options)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output
