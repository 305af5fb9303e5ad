"""The store: appends that are on disk when they return, disk per byte of text, search at a million messages.

The raw rate is what this machine's disk gives a bare SQLite connection with the same settings and one row
per commit, measured in the same run before and after each figure, because it differs by more than ten between
machines and drifts on one. Every figure has a file of its own: what a session said is indexed for search
behind its turn, and that work of one figure must not fall into the next.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from benchmarks.table import Row
from whet.clock import SystemClock
from whet.contract.messages import Message, Usage
from whet.store.database import StateDatabase
from whet.store.search import find_now
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

TEXT = "The build of the orders service failed at step 7: missing header in src/price.c, line 212. " * 4
SECONDS = 2.0


def raw_rate(folder: Path) -> float:
    """One-row commits a second of a bare connection: WAL, synchronous FULL."""
    connection = apsw.Connection(str(folder / f"raw{time.monotonic_ns()}.db"))
    connection.execute("pragma journal_mode=wal; pragma synchronous=full")
    connection.execute("create table rows (id integer primary key, body text)")
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        connection.execute("insert into rows (body) values (?)", (TEXT,))
        count += 1
    rate = count / (time.perf_counter() - began)
    connection.close()
    return rate


def own_rate(folder: Path, writers: int) -> float:
    """Messages a second that `writers` sessions append to a new store."""
    database = StateDatabase.open(folder / f"state{writers}.db", SystemClock())
    rate = asyncio.run(append_rate(database, writers))
    database.close()
    return rate


async def append_rate(database: StateDatabase, writers: int) -> float:
    """Messages a second that `writers` sessions append, each waiting for its own to be durable."""
    clock = SystemClock()
    logs: list[Transcript] = []
    for _ in range(writers):
        logs.append(await Transcript.create(database, NewSession(id=clock.new_id()), clock))
    turns = [await log.begin_turn(Message(role="user", content="go")) for log in logs]
    began = time.perf_counter()

    async def one(index: int) -> int:
        count = 0
        while time.perf_counter() - began < SECONDS:
            await logs[index].append_user(turns[index], Message(role="user", content=TEXT))
            count += 1
        return count

    total = sum(await asyncio.gather(*(one(index) for index in range(writers))))
    rate = total / (time.perf_counter() - began)
    for log, turn in zip(logs, turns, strict=True):
        await log.end_turn(turn, "answered", "")
    return rate


def run(runs: int, full: bool) -> list[Row]:
    """Appends alone and from 8 sessions at once, beside the raw rate of the same run."""
    alone: list[float] = []
    together: list[float] = []
    raws: list[float] = []
    for _ in range(max(3, runs)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            before = raw_rate(folder)
            one_rate = own_rate(folder, 1)
            between = raw_rate(folder)
            eight_rate = own_rate(folder, 8)
            after = raw_rate(folder)
        alone.append(2 * one_rate / (before + between))
        together.append(2 * eight_rate / (between + after))
        raws.append(between)
    one, eight, raw = statistics.median(alone), statistics.median(together), statistics.median(raws)
    return [
        Row(
            "append",
            "append, fsync durable, 1 / 8 sessions at once",
            "≥ 0.8 / ≥ 3 times the raw one-row commit rate",
            f"{one:.2f} / {eight:.2f} times raw ({one * raw:,.0f}/s, {eight * raw:,.0f}/s; raw {raw:,.0f}/s)",
            "hermes-agent 735/s, 676/s where raw was about 2,600/s (published run)",
            one >= 0.8 and eight >= 3,
            "python -m benchmarks store",
        ),
        disk_row(),
    ]


def prose(rng: random.Random, words: list[str], length: int) -> str:
    """Text with a natural skew: few words everywhere, most words rare."""
    picked = (words[min(int(rng.paretovariate(0.7)) - 1, len(words) - 1)] for _ in range(length))
    return " ".join(picked)


def vocabulary(rng: random.Random) -> list[str]:
    """40,000 made-up words of natural length, some of them identifiers."""
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "in")]
    words = ["the", "error"]
    while len(words) < 40_000:
        word = "".join(rng.choice(syllables) for _ in range(rng.randrange(1, 5)))
        words.append(f"{word}_{rng.choice(syllables)}.py" if rng.random() < 0.05 else word)
    return words


CJK = "数据库会话订单价格错误修复测试部署服务器日志缓存索引搜索消息工具结果文件目录"


def messages(count: int, seed: int = 7) -> Iterator[Message]:
    """Deterministic messages: prose of 20 to 120 words, one in ten Chinese."""
    rng = random.Random(seed)
    words = vocabulary(rng)
    for number in range(count):
        if number % 10 == 9:
            text = "".join(rng.choice(CJK) for _ in range(rng.randrange(20, 120)))
        else:
            text = "the " + prose(rng, words, rng.randrange(20, 120))
        yield Message(role="user" if number % 2 else "assistant", content=text)


def fill(database: StateDatabase, count: int) -> int:
    """Store `count` messages through the store's own door, in sessions of 200; gives the bytes of text."""
    size = 0

    async def write() -> None:
        nonlocal size
        clock = SystemClock()
        batch: list[Message] = []

        async def session(rows: list[Message]) -> None:
            log = await Transcript.create(database, NewSession(id=clock.new_id()), clock)
            turn = await log.begin_turn(rows[0])
            for row in rows[1:]:
                if row.role == "user":
                    await log.append_user(turn, row)
                else:
                    await log.append_reply(turn, row, Usage(), "m")
            await log.end_turn(turn, "answered", "")

        waiting: list[list[Message]] = []
        for message in messages(count):
            size += len(message.text.encode())
            batch.append(message)
            if len(batch) == 200:
                waiting.append(batch)
                batch = []
            if len(waiting) == 64:
                await asyncio.gather(*(session(rows) for rows in waiting))
                waiting = []
        await asyncio.gather(*(session(rows) for rows in [*waiting, batch] if rows))

    asyncio.run(write())
    return size


def index_all(database: StateDatabase) -> None:
    """Let the index catch up with everything stored."""
    find_now(database, "nothing")


def disk_row() -> Row:
    """Bytes on disk per byte of text, index included, at 20,000 messages."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "state.db"
        database = StateDatabase.open(path, SystemClock())
        text = fill(database, 20_000)
        index_all(database)
        database.close()
        size = sum(file.stat().st_size for file in path.parent.glob("state.db*"))
    return Row(
        "disk",
        "disk per byte of text, full-text index included",
        "≤ 2.5",
        f"{size / text:.2f}",
        "hermes-agent 6.2 (published run)",
        size / text <= 2.5,
        "python -m benchmarks store",
    )
