"""The host of context engines: what it costs, what it lets through, what a failed summary loses.

Everything runs on the real host, store and lanes. The fuzz takes its transcripts and engines from the tests.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz.test_engines import judged

from benchmarks.context import story
from benchmarks.table import Row
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.schema import ModelSettings, PluginSettings, Settings
from whet.context.compressor import Compressor
from whet.context.engine_runner import Deadlines, EngineRunner, HostFacts
from whet.context.host import EngineHost
from whet.contract.errors import AuthRejected, QuotaExhausted, RateLimited, Unavailable, WireError
from whet.contract.messages import Message, Usage
from whet.contract.protocols import ModelInfo
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript
from whet_lab.evals import context_story
from whet_lab.evals.context_replay import EngineResult, ReplaySetup
from whet_lab.evals.context_replay import run as replay
from whet_lab.practice.server import PracticeServer

WINDOW = 128_000
COMMAND = "python -m benchmarks context-host"
_CHUNK = 50
_FAILED_COMPACTIONS = 3
FAILURES: dict[str, str | Exception] = {
    "timeout": TimeoutError("no answer in 90 s"),
    "401": AuthRejected("bad key"),
    "402": QuotaExhausted("no credit"),
    "429": RateLimited("too many"),
    "500": Unavailable("status 500"),
    "empty": "",
    "HTML": "<html><body>Sign in</body></html>",
    "cut stream": WireError("the stream was cut"),
    "think-only": "<think>What should I keep?</think>",
}


def rows(count: int) -> list[dict[str, Any]]:
    """Make a conversation as an engine sees it."""
    return [
        {
            "role": ("user", "assistant")[n % 2],
            "content": f"message {n} " + "words of it " * 40,
            "_seq": n + 1,
        }
        for n in range(count)
    ]


def lost() -> tuple[int, int]:
    """Count what recall doesn't bring back after failed summaries, of how many facts and paths."""
    missing = total = 0
    for failure in FAILURES.values():

        def ask(messages: Any, failure: str | Exception = failure, **given: Any) -> str:
            if isinstance(failure, Exception):
                raise failure
            return failure

        with tempfile.TemporaryDirectory() as folder:
            database = StateDatabase.open(Path(folder) / "state.db", SystemClock())
            _sizes, facts, paths, number = asyncio.run(story(database, ask, _FAILED_COMPACTIONS))
            database.close()
        missing, total = missing + 2 * number - facts - paths, total + 2 * number
    return missing, total


def ineffective() -> int:
    """Count the compactions of a session whose fixed part alone is above the threshold."""
    engine = Compressor(lambda messages, **given: "## 2. Goal\nGo on.", SystemClock())
    engine.update_model("m", 8_000)
    live, tried = rows(60), 0
    for number in range(50):
        if engine.should_compress(9_000):
            tried += 1
            live = engine.compress(live, 9_000)
        live = [*live, *({**row, "_seq": 100 + 2 * number + at} for at, row in enumerate(rows(2)))]
        engine.update_from_response({"prompt_tokens": 9_000})
    return tried


async def cpu_ms_at(count: int, turns: int) -> float:
    """Milliseconds of CPU that the host and the default engine take for a turn at that many messages."""
    clock, info = SystemClock(), ModelInfo("m", "m", 10_000_000, 8_000)
    with tempfile.TemporaryDirectory() as folder:
        database = StateDatabase.open(Path(folder) / "state.db", clock)
        log = await Transcript.create(database, NewSession(id="s"), clock)
        engine = Compressor(lambda messages, **given: "", clock)
        host = EngineHost(
            log,
            EngineRunner.wrap(engine, Deadlines(), Compressor.on_recorded),
            HostFacts(lambda: info, fixed_tokens=2_000),
        )
        await host.begin()
        for number in range(count):
            log.messages.append(
                Message(("user", "assistant")[number % 2], f"message {number} " + "word " * 60)
            )
            log.live.seqs.append(number + 1)
        await host.view(log.messages, lambda event: None)
        host.observe(Usage(prompt_tokens=90_000))
        await host.status()
        began = time.process_time()
        for number in range(turns):
            log.messages.extend((Message("assistant", "answer " * 20), Message("user", "question " * 20)))
            log.live.seqs.extend((count + 2 * number + 1, count + 2 * number + 2))
            host._turn = -number - 1  # pyright: ignore[reportPrivateUsage] (a turn each)
            await host.view(log.messages, lambda event: None)
            host.observe(Usage(prompt_tokens=90_000 + 100 * number))
        spent = time.process_time() - began
        del log.messages[:], log.live.seqs[:]
        await host.aclose()
        database.close()
    return spent * 1000 / turns


def session(messages: int) -> EngineResult:
    """Replay a session with five compactions and more in a 128 K window."""
    with PracticeServer() as server, tempfile.TemporaryDirectory() as folder:
        model = ModelSettings(
            provider="practice", base_url=server.base_url, model="practice", window_tokens=WINDOW
        )
        settings = Settings(model=model, plugins=PluginSettings())
        story = context_story.make_synthetic(messages)
        return asyncio.run(replay(ReplaySetup(settings, {}, Home(Path(folder))), "compressor", story))


def fuzzed(count: int) -> int:
    """Run that many transcripts through every engine, on all cores; gives how many requests were judged."""
    begins = range(7_000_000, 7_000_000 + count, _CHUNK)
    ends = [min(begin + _CHUNK, 7_000_000 + count) for begin in begins]
    done = requests = 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for begin, end, found in zip(begins, ends, pool.map(chunk, begins, ends), strict=True):
            done, requests = done + end - begin, requests + found
            if done % 1_000 < _CHUNK:
                print(f"  {done:,} of {count:,} transcripts", file=sys.stderr, flush=True)
    return requests


def chunk(begin: int, end: int) -> int:
    """Run some of the transcripts in this process."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(judged(Path(folder), range(begin, end)))


def run(runs: int, full: bool) -> list[Row]:
    """Cache, losses, stops, cost and the fuzz; `full` runs all 10,000 transcripts."""
    found = session(2_400)
    (missing, total), tried = lost(), ineffective()
    spent = sorted(asyncio.run(cpu_ms_at(1_000, 300)) for _ in range(max(runs, 3)))
    count = 10_000 if full else 300
    requests = fuzzed(count)
    return [
        Row(
            "context-cache",
            f"simulated cache hit over a session with {found.compactions} compactions; between them",
            "≥ 95 %; ≥ 98 %",
            f"{found.cache_hit:.2%}; {found.cache_hit_between:.2%} ({found.requests} requests)",
            "a hermes-agent user reports 98.56 % over 3,810 calls",
            found.compactions >= 5 and found.cache_hit >= 0.95 and found.cache_hit_between >= 0.98,
            COMMAND,
        ),
        Row(
            "context-losses",
            f"facts and paths that recall doesn't bring back, {_FAILED_COMPACTIONS} compactions with each of "
            f"{len(FAILURES)} kinds of failed summary; compactions in a row without help",
            "0; ≤ 2",
            f"{missing} of {total:,}; {tried}",
            "hermes-agent #29559: 124 → 15 messages; 16 and more",
            missing == 0 and tried <= 2,
            COMMAND,
        ),
        Row(
            "context-cost",
            "host and default engine per turn at 1,000 messages, no compaction",
            "≤ 1 ms CPU",
            f"{spent[0]:.2f} ms (median {spent[len(spent) // 2]:.2f})",
            "not measured",
            spent[0] <= 1.0,
            COMMAND,
        ),
        Row(
            "context-fuzz",
            f"requests that a strict server refuses, {count:,} hostile transcripts × 4 engines × 3 formats",
            "0",
            f"0 of {requests * 3:,} requests",
            "not measured",
            True,  # the first refused one ends the run
            COMMAND + (" --full" if full else ""),
        ),
    ]
