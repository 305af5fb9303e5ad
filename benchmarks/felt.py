"""What must not grow with a home or a project: `python -m benchmarks felt`.

Each row is a ratio within one run, or CPU of one call: a hundred hooks beside one, 5,000 skills beside 10,
lists beside 100,000 sessions, the first rows after `@` beside 100,000 files, the gate's part of an edit and
of a git command in a linked working tree, and a search with and without ripgrep.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from benchmarks.measure import median, run_in
from benchmarks.table import Row
from benchmarks.timed_server import Reply, TimedServer
from whet.approval.repository import find_risky_settings
from whet.clock import SystemClock
from whet.config.permission_settings import HookSettings, SandboxSettings
from whet.hooks.shell import ShellHooks
from whet.late import LatePart
from whet.sandbox.confinement import Confinement, ConfinementSettings
from whet.sandbox.system_folders import starts_programs
from whet.store import api, forks, reviews, sessions
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.terminal.prompt import InputCompleter
from whet.tools.paths import resolve
from whet.tools.search import Query, search

COMMAND = "python -m benchmarks felt"
_SESSIONS, _FILES, _SKILLS, _HOOKS = 100_000, 100_000, (10, 5_000), (1, 100)
_READS = 40
_LIST_MS, _ROWS_MS, _GATE_MS, _SEARCH_MS = 5.0, 150.0, 0.5, 16.0


def run(runs: int, full: bool) -> list[Row]:
    """Measure each part in folders of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            _hooks(folder, max(runs, 3)),
            _skills(folder, max(runs, 3)),
            _lists(folder, max(runs, 5)),
            _first_rows(folder),
            _gate(folder, max(runs, 5)),
            _search(folder, max(runs, 9)),
        ]


def _hooks(folder: Path, runs: int) -> Row:
    """Run hooks that each wait .3 s: one, and a hundred of the same event."""
    took: dict[int, list[float]] = {count: [] for count in _HOOKS}
    cpu: dict[int, list[float]] = {count: [] for count in _HOOKS}
    hook = HookSettings(event="PreToolUse", command="sleep 0.3")
    settings = ConfinementSettings(SandboxSettings().mode, folder / "home")
    confinement = LatePart(lambda: Confinement(settings))
    workspace = folder / "work"
    workspace.mkdir()
    for _ in range(runs):
        for count in _HOOKS:
            hooks = ShellHooks({str(at): hook for at in range(count)}, workspace, "s", confinement)
            began, began_cpu = time.perf_counter(), os.times()
            verdict = asyncio.run(hooks.run("PreToolUse", "terminal"))
            assert not verdict.block_reason, verdict
            took[count].append(time.perf_counter() - began)
            cpu[count].append(sum(os.times()[:4]) - sum(began_cpu[:4]))
    confinement.get().close()
    one, many = (median(took[count]) for count in _HOOKS)
    return _row(
        "felt-hooks",
        "100 hooks of one event that each wait .3 s, beside one",
        "≤ 2 times one",
        f"{many / one:.1f} times; CPU {median(cpu[100]) * 10:.1f} ms a hook",
        many / one <= 2,
    )


def _skills(folder: Path, runs: int) -> Row:
    """Run sessions whose home has 10 or 5,000 skills: one without a step, and one of many that read."""
    workspace = folder / "reading"
    workspace.mkdir()
    (workspace / "a.txt").write_text("line\n" * 100)
    for count in _SKILLS:
        for number in range(count):
            path = folder / f"home-{count}" / "skills" / f"skill-{number}"
            path.mkdir(parents=True)
            (path / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: How.\n---\nSteps.\n")
        _session_ms(workspace, folder / f"home-{count}", 1)
    whole: dict[int, list[float]] = {count: [] for count in _SKILLS}
    steps: dict[int, list[float]] = {count: [] for count in _SKILLS}
    for _ in range(runs):
        for count in _SKILLS:
            home = folder / f"home-{count}"
            whole[count].append(_session_ms(workspace, home, 0))
            steps[count].append(_session_ms(workspace, home, _READS))
    few, many = ((min(steps[count]) - min(whole[count])) / _READS for count in _SKILLS)
    starts = " → ".join(f"{min(whole[count]):.0f}" for count in _SKILLS)
    return _row(
        "felt-skills",
        "a step of a session with 5,000 skills, beside one with 10, CPU",
        "≤ 1.2 times",
        f"{many / few:.2f} times ({few:.1f} → {many:.1f} ms); a whole question {starts} ms",
        many / few <= 1.2,
    )


def _session_ms(workspace: Path, home: Path, steps: int) -> float:
    """Return the CPU of a one-shot whose model reads a file `steps` times."""
    calls = [Reply(tool="read_file", arguments={"path": "a.txt", "offset": at + 1}) for at in range(steps)]
    with TimedServer([*calls, Reply(["done"])]) as server:
        whet = [str(Path(sys.executable).parent / "whet"), "chat", "-q", "go"]
        options = ["--provider", "bench", "--base-url", server.base_url, "--model", "timed"]
        return run_in(workspace, [*whet, *options], WHET_HOME=str(home)).cpu_s * 1000


def _lists(folder: Path, runs: int) -> Row:
    """Read lists of a store with 100,000 sessions that hold few rows of them."""
    database = StateDatabase.open(folder / "state.db", SystemClock())
    try:
        database.write_now(_fill)
        lists: dict[str, Callable[[apsw.Connection], object]] = {
            "of a program": lambda db: sessions.list_sessions(db, 50, token="other"),
            "of a folder": lambda db: sessions.list_sessions(db, 50, workspace="/elsewhere"),
            "archived": lambda db: sessions.list_sessions(db, 50, archived=True),
            "a family": lambda db: forks.list_family(db, "s000050000"),
            "a session's reviews": lambda db: reviews.list_reviews(db, 20, session_id="s000050000"),
            "reviews": lambda db: reviews.list_reviews(db, 100),
        }
        took = {
            name: median([_cpu_ms(lambda work=work: database.read_now(work)) for _ in range(runs)])
            for name, work in lists.items()
        }
    finally:
        database.close()
    return _row(
        "felt-lists",
        "lists of few rows beside 100,000 sessions, forks and reviews, CPU ms",
        f"≤ {_LIST_MS:.0f} ms",
        ", ".join(f"{name} {ms:.2f}" for name, ms in took.items()),
        max(took.values()) <= _LIST_MS,
    )


def _fill(connection: apsw.Connection) -> None:
    for number in range(_SESSIONS):
        at = f"2026-11-{1 + number * 20 // _SESSIONS:02}T00:00:00.{number % 1000:03}Z"
        sessions.create(connection, NewSession(id=f"s{number:09}", workspace="/work"), at)
        api.set_owner(connection, f"s{number:09}", "one")
    connection.execute("INSERT INTO forks SELECT key, 's000000005', 1 FROM sessions WHERE key % 10 = 0")
    connection.execute(
        "INSERT INTO jobs (id, kind, payload, state, created, run_after)"
        " SELECT 'j' || key, 'review', '{}', 'done', started, started FROM sessions"
    )
    connection.execute("INSERT INTO reviews (job, session) SELECT 'j' || key, key FROM sessions")


def _first_rows(folder: Path) -> Row:
    """Type `@` and letters in a tree that was not read yet, until the first row and until the last."""
    tree = folder / "tree"
    for number in range(_FILES // 100):
        path = tree / f"package{number}"
        path.mkdir(parents=True)
        for file in range(100):
            (path / f"module{file}.py").touch()
    completer = InputCompleter(lambda: [], lambda: tree)

    async def first_ms() -> float:
        began = time.process_time()
        rows = completer.get_completions_async(Document("see @odule1"), CompleteEvent())
        await anext(rows)
        took_ms = (time.process_time() - began) * 1000
        await rows.aclose()
        return took_ms

    took_ms = asyncio.run(first_ms())
    return _row(
        "felt-at",
        "the first row after `@` and letters in a tree of 100,000 files that was not read yet",
        f"≤ {_ROWS_MS:.0f} ms of CPU",
        f"{took_ms:.0f} ms",
        took_ms <= _ROWS_MS,
    )


def _gate(folder: Path, runs: int) -> Row:
    """Judge the path of an edit, and a git command in a linked working tree."""
    main, tree = folder / "main", folder / "linked"
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (
        ("init", "-q", str(main)),
        ("-C", str(main), *author, "commit", "-q", "--allow-empty", "-m", "x"),
        ("-C", str(main), "worktree", "add", "-q", str(tree)),
    ):
        subprocess.run(["git", *arguments], check=True)
    edit_ms = median([_cpu_ms(lambda: starts_programs(main / "src/a.py", main)) for _ in range(runs * 20)])
    git_ms = median([_cpu_ms(lambda: find_risky_settings(str(tree), "commit")) for _ in range(runs * 20)])
    return _row(
        "felt-gate",
        "the gate's look at an edit's path, and at a git command in a linked working tree, CPU",
        f"≤ {_GATE_MS} ms each",
        f"{edit_ms:.2f} and {git_ms:.2f} ms",
        max(edit_ms, git_ms) <= _GATE_MS,
    )


def _search(folder: Path, runs: int) -> Row:
    """Search 300 files with ripgrep, if it is installed, and without; the first search without it starts a
    process."""
    tree = folder / "searched"
    for number in range(300):
        path = tree / f"package{number // 20}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"def function_{line}():\n    return {line}\n\n\n" for line in range(40)))
    target = resolve(".", tree)
    query = Query("return 39", False, "", 100, 0)
    took_ms: dict[str | None, list[float]] = {"rg": [], None: []}

    async def measure() -> None:
        for _ in range(runs + 1):
            for program, times in took_ms.items():
                began = time.perf_counter()
                assert "300 matches" in await search(target, query, program)
                times.append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(0.3)  # as long as a model needs at least

    asyncio.run(measure())
    with_ms, without_ms = (median(times[1:]) for times in took_ms.values())
    return _row(
        "felt-search",
        "`search_files` over 300 files, with ripgrep; without it, beside the first such search",
        f"≤ {_SEARCH_MS:.0f} ms",
        f"{with_ms:.1f} ms; {without_ms:.1f} ms, the first {took_ms[None][0]:.1f}",
        without_ms <= _SEARCH_MS,
    )


def _cpu_ms(work: Callable[[], object]) -> float:
    """Return the CPU of a call in this process and in the processes that it waited for."""
    began = os.times()
    before = time.process_time()
    work()
    ended = os.times()
    children = ended.children_user + ended.children_system - began.children_user - began.children_system
    return (time.process_time() - before + children) * 1000


def _row(name: str, measure: str, goal: str, text: str, met: bool) -> Row:
    return Row(name, measure, goal, text, "none measured", met, COMMAND)
