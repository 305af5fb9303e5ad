"""Warm sessions: mining rate and memory, start-up with 50 templates, cache, the gated world, redaction.

The million messages are written straight into the tables, as the store would; everything read is read by the
product's own code. Memory is the peak of a process that does nothing but mine.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec
from tests.config.planted import planted
from tests.warm.stores import SPECS

from benchmarks.measure import ROOT, clean_environment
from benchmarks.table import Row
from whet.agent.loop import run_turn
from whet.app.build import App
from whet.clock import SystemClock
from whet.config.load import load
from whet.config.paths import Home
from whet.config.redact import mask_secrets, redact
from whet.config.schema import Settings
from whet.contract.protocols import NobodyPresent
from whet.store import rows, sessions
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.warm.template import Example, Template, save
from whet_lab.evals.warm_trials import ARMS, Trial, WarmTrialSetup, build_report
from whet_lab.evals.warm_world import build_templates, create_history, draw_numbers, write_depot
from whet_lab.practice.depot import build_question
from whet_lab.practice.server import PracticeServer

COMMAND = "python -m benchmarks warm"
_NOISE = "the order lines of the batch are in the expected state\n" * 8


def fill(folder: Path, count: int, messages: int) -> None:
    """Write `count` sessions with `messages` messages in all."""
    database = StateDatabase.open(folder / "state.db", SystemClock())
    each, rng = messages // count, random.Random(1)
    tools = msgspec.json.encode(SPECS).decode()

    def work(connection: apsw.Connection, begin: int) -> None:
        for number in range(begin, min(begin + 500, count)):
            new = NewSession(id=f"s{number:06d}", model="m", workspace=f"/w/{number % 20}", tools_json=tools)
            sessions.create(connection, new, "2026-11-21T09:00:00Z")
            key = sessions.key_of(connection, new.id)
            _session(connection, key, each, rng)

    for begin in range(0, count, 500):
        database.write_now(lambda connection, begin=begin: work(connection, begin))
    database.close()


def _session(connection: apsw.Connection, key: int, each: int, rng: random.Random) -> None:
    at = 1_780_000_000_000
    messages: list[tuple[apsw.SQLiteValue, ...]] = [
        (rows.row_id(key, 1), 1, 0, at, f"go through batch {key}", None)
    ]
    calls: list[tuple[apsw.SQLiteValue, ...]] = []
    for seq in range(2, each, 2):
        name, arguments = _call(rng)
        failed = rng.random() < 0.06
        call = {"id": f"c{seq}", "name": name, "arguments": json.dumps(arguments)}
        asked = json.dumps({"c": [call]}, separators=(",", ":"))
        answer = json.dumps(
            {"i": f"c{seq}", "n": name} | ({"e": True} if failed else {}), separators=(",", ":")
        )
        messages.append((rows.row_id(key, seq), 1, 1, at + seq, "", asked))
        messages.append(
            (rows.row_id(key, seq + 1), 1, 2, at + seq, "no such file" if failed else _NOISE, answer)
        )
        code = (2 if failed else 0) if name == "terminal" else None
        kind = ("exit" if code is not None else "failed") if failed else ""
        calls.append((key, seq + 1, 0, 1, seq, f"c{seq}", name, "rule", kind, code))
    connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", messages)
    connection.executemany(
        "INSERT INTO tool_calls (session, seq, position, turn, step, call_id, name, decided_by, error_kind,"
        " exit_code) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        calls,
    )
    connection.execute(
        "INSERT INTO turns (session, number, id, started, ended, reason)"
        " VALUES (?, 1, ?, 'x', 'y', 'answered')",
        (key, f"t{key}"),
    )
    connection.execute(
        "UPDATE sessions SET turns = 1, messages = ?, tool_calls = ? WHERE key = ?",
        (len(messages), len(calls), key),
    )


def _call(rng: random.Random) -> tuple[str, dict[str, object]]:
    number = rng.randint(1, 9_999)
    return rng.choice(
        (
            ("read_file", {"path": f"src/part{number % 90}/mod{number}.py"}),
            ("terminal", {"command": f"grep -n value{number} src/part{number % 90}"}),
            (
                "terminal",
                {"command": f"sed -n {number},{number + 20}p log{number % 7}.txt | head -{number % 30}"},
            ),
            ("search_files", {"pattern": f"value{number}", "path": "src"}),
        )
    )


_MINE = """
import sys, time
from pathlib import Path
from whet.clock import SystemClock
from whet.store.database import StateDatabase
from whet.warm.mine import MiningScope, mine
from benchmarks.loops.peak import peak_mb
database = StateDatabase.open(Path(sys.argv[1]) / "state.db", SystemClock())
began, cpu = time.perf_counter(), time.process_time()
found = database.read_now(lambda db: mine(db, MiningScope(), lambda done, total: None))
print(found.messages, time.perf_counter() - began, time.process_time() - cpu,
      peak_mb())
"""


def mining(count: int, messages: int) -> Row:
    """Mine a store in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), count, messages)
        done = subprocess.run(
            [sys.executable, "-c", _MINE, name], capture_output=True, text=True, check=True, cwd=ROOT
        )
        began_s = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "whet", "warm", "build", "bench", "--json"],
            env=clean_environment(WHET_HOME=name),
            capture_output=True,
            check=True,
        )
        build_s = time.perf_counter() - began_s
    read, wall_s, cpu_s, peak_mb = (float(part) for part in done.stdout.split())
    rate = read / cpu_s
    return Row(
        "warm-mining",
        f"mining {int(read):,} messages of {count:,} sessions: messages per second of CPU, peak memory;"
        " the whole of `whet warm build`",
        "≥ 50,000/s, ≤ 150 MB; ≤ 30 s",
        f"{rate:,.0f}/s, {peak_mb:.0f} MB ({wall_s:.1f} s); {build_s:.1f} s",
        "no peer mines its store",
        rate >= 50_000 and peak_mb <= 150 and build_s <= 30,
        f"{COMMAND}-mining",
    )


def _settings(server: PracticeServer) -> Settings:
    given = {
        "model.provider": "practice",
        "model.model": "practice",
        "model.base_url": server.base_url,
        "approval.mode": "auto",
    }
    return load(Home(Path("/nonexistent")), given, environ={}).settings


def _template(number: int) -> Template:
    examples = tuple(
        Example(
            tool_name="terminal",
            arguments={"command": f"grep -n topic{number} part{n}.txt"},
            result_summary="x" * 400,
            context_hint=f"look for topic{number} in the records",
        )
        for n in range(8)
    )
    return Template(
        name=f"t{number}", examples=examples, imported_at="x", description=f"records of topic{number}"
    )


_START = """
import asyncio, sys, time
from pathlib import Path
from whet.agent.loop import run_turn
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.protocols import NobodyPresent
home = Home(Path(sys.argv[1]))
flags = {"model.provider": "practice", "model.model": "practice-echo", "model.base_url": sys.argv[2]}
settings = load(home, flags, environ={}).settings
async def main():
    app = await App.start(home, settings, {}, NobodyPresent(), Path(sys.argv[1]))
    session = await app.new_session(warm=sys.argv[3])
    await run_turn(session, session.user_message("look for topic7 in the records"), lambda event: None)
    await app.aclose()
asyncio.run(main())
print(time.process_time())
"""


def starting(runs: int) -> Row:
    """CPU of a whole process that asks one question, cold and with --warm auto over 50 templates."""
    with tempfile.TemporaryDirectory() as name, PracticeServer() as server:
        home = Home(Path(name))
        for number in range(50):
            save(home, _template(number))
        times: dict[str, list[float]] = {"off": [], "auto": []}
        for _ in range(max(runs, 3)):
            for mode in times:
                command = [sys.executable, "-c", _START, name, server.base_url, mode]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                times[mode].append(float(done.stdout) * 1000)
    more = min(times["auto"]) - min(times["off"])
    return Row(
        "warm-start",
        "session start with --warm auto and 50 templates: CPU more than cold, imports included",
        "≤ 15 ms",
        f"{more:.1f} ms (cold {min(times['off']):.0f} ms in all)",
        "-",
        more <= 15,
        COMMAND,
    )


async def _cached(folder: Path, settings: Settings) -> tuple[float, float, float]:
    """Give the hit ratio of a second request cold and warm, and of a second session's first request."""
    home = Home(folder / "home")
    save(home, _template(7))
    app = await App.start(home, settings, {}, NobodyPresent(), folder)
    ratios: list[float] = []
    for mode in ("off", "t7", "t7"):
        session = await app.new_session(warm=mode)
        await run_turn(session, session.user_message("hello"), lambda event: None)
        first = session.usage
        await run_turn(session, session.user_message("hello again"), lambda event: None)
        second = session.usage
        ratios.append(
            (second.cache_read_tokens - first.cache_read_tokens)
            / (second.prompt_tokens - first.prompt_tokens)
        )
        ratios.append(first.cache_hit_ratio)
    await app.aclose()
    return ratios[0], ratios[2], ratios[5]


def caching() -> Row:
    """The simulated prefix cache on real requests."""
    with tempfile.TemporaryDirectory() as name, PracticeServer() as server:
        cold, warm, next_session = asyncio.run(_cached(Path(name), _settings(server)))
    return Row(
        "warm-cache",
        "prefix cache: second request cold, warm; first request of a second session with the template",
        "warm as cold; template part cached",
        f"{cold:.1%}, {warm:.1%}; {next_session:.1%}",
        "-",
        warm >= cold - 0.005 and next_session >= 0.9,
        COMMAND,
    )


async def run_seeds(
    folder: Path, settings: Settings, seeds: Sequence[int], *, pitfalls: bool = True, sessions: int = 8
) -> list[Trial]:
    """Evaluate each seed: write the depot, create its history, build templates, and ask a new question of
    every kind under each arm."""
    trials: list[Trial] = []
    for seed in seeds:
        depot = write_depot(folder, seed, pitfalls=pitfalls)
        await create_history(depot, settings, sessions)
        templates = build_templates(depot, SystemClock().now())
        bench = WarmTrialSetup(folder / f"trials-{depot.path.name}", settings, {}, templates)
        text = build_question(draw_numbers(random.Random(f"new questions {seed}")))
        for arm in ARMS:
            trials.append(await bench.run_prompt(f"{depot.path.name}-0", text, arm, seed, depot.path))
    return trials


def world(seeds: int) -> list[Row]:
    """The depot, with and without something to learn."""
    made: list[Row] = []
    for pitfalls in (True, False):
        with tempfile.TemporaryDirectory() as name, PracticeServer() as server:
            trials = asyncio.run(
                run_seeds(Path(name), _settings(server), range(1, seeds + 1), pitfalls=pitfalls, sessions=6)
            )
        found = build_report(trials)
        text = "; ".join(
            f"against {one.against} {one.fewer_errors.estimate * 100:+.0f} points "
            f"({one.fewer_errors.low * 100:+.0f} to {one.fewer_errors.high * 100:+.0f})"
            for one in found.comparisons
        )
        arms = ", ".join(f"{arm.arm} {arm.failed}/{arm.calls}" for arm in found.arms)
        good = all(one.fewer_errors.low > 0 for one in found.comparisons)
        if not pitfalls:
            good = all(one.fewer_errors.estimate >= -0.01 for one in found.comparisons)
        made.append(
            Row(
                f"warm-world-{'gated' if pitfalls else 'open'}",
                f"{seeds} depots {'with' if pitfalls else 'without'} pitfalls: errors in the first 10 calls",
                "fewer, interval clear of zero" if pitfalls else "no worse than cold and placebo + 1 %",
                f"{arms}; fewer {text}",
                "-",
                good,
                f"{COMMAND}-world",
            )
        )
    return made


def redaction() -> Row:
    """Planted secrets that survive, and ordinary lines that are changed."""
    secrets = planted()
    left = sum(secret in redact(text) for _, text, secret in secrets)
    lines = [
        line
        for path in sorted(Path("src/whet").rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if line.strip()
    ]
    changed = sum(mask_secrets(line) != line for line in lines)
    return Row(
        "warm-secrets",
        f"{len(secrets)} planted secrets in {len({kind for kind, _, _ in secrets})} formats; lines changed",
        "0; ≤ 1 %",
        f"{left}; {changed / len(lines):.2%} of {len(lines):,}",
        "-",
        left == 0 and changed <= 0.01 * len(lines),
        COMMAND,
    )


def run(runs: int, full: bool) -> list[Row]:
    """What takes seconds."""
    return [starting(runs), caching(), redaction()]


def run_mining(runs: int, full: bool) -> list[Row]:
    """A million messages: about a minute to write them, less to mine them."""
    return [mining(10_000, 1_000_000)]


def run_world(runs: int, full: bool) -> list[Row]:
    """Twenty depots with something to learn and twenty without."""
    return world(20)
