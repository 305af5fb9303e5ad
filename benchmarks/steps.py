"""What passes between the model's call and the next request, by kind of tool: `python -m benchmarks steps`.

One session of `whet chat -q --yes`: recording, sandbox, durable store. Read, search, edit,
a command and a diff come by turns; the time runs from the end of the model's answer to the next request.
Of sessions of one kind each, the bytes are counted that they write, as the kernel counts them for the whole
process tree; where strace is installed, their syncs too.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import run as run_command

from benchmarks.measure import clean_environment, median
from benchmarks.table import Row
from benchmarks.timed_server import Reply, TimedServer

COMMAND = "python -m benchmarks steps"
Call = tuple[str, dict[str, object]]
_GOALS_MS = {"read": 10.0, "search": 16.0, "edit": 12.0, "diff": 20.0}
_GOALS_SYNCS = {"read": 2, "command that only reads": 2, "command that changes a file": 2}
_GOAL_KB = 50
_ROUNDS, _FILES = 12, 300
_SHORT, _LONG = 25, 45  # a review follows either
_MANY = 85
_TRIES = 3
_LINES = "".join(f"def function_{number}():\n    return {number}\n\n\n" for number in range(40))


def run(runs: int, full: bool) -> list[Row]:
    """Run one session with rounds of all kinds, and one row for each kind; then the rows of syncs."""
    took_ms: dict[str, list[float]] = {}
    calls = [call for number in range(max(runs, _ROUNDS)) for call in _calls(number)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a worker writes after a session
        server = _run_session(Path(folder), [call[1:] for call in calls])
    for (kind, _, _), ended_s, came_s in zip(calls, server.ended_s, server.came_s[1:], strict=False):
        took_ms.setdefault(kind, []).append((came_s - ended_s) * 1000)
    rows = [_row(kind, values[2:]) for kind, values in took_ms.items()]  # the first ones start what is kept
    rows += [_count_bytes(kind) for kind in _GOALS_SYNCS]
    return [*rows, *(_count_syncs(kind) for kind in _GOALS_SYNCS if shutil.which("strace"))]


def _run_session(folder: Path, calls: Sequence[Call], *wrapper: str) -> TimedServer:
    """Run a session whose model makes these calls, one in each answer; return its server."""
    work = folder / "work"
    _make_project(work)
    replies = [Reply(["on "], tool=tool, arguments=arguments) for tool, arguments in calls]
    with TimedServer([*replies, Reply(["done"])]) as server:
        whet = [*wrapper, str(Path(sys.executable).parent / "whet"), "chat", "-q", "go", "--yes"]
        options = ["--provider", "bench", "--base-url", server.base_url, "--model", "timed"]
        environment = clean_environment(WHET_HOME=f"{folder}/home")
        run_command([*whet, *options], cwd=work, env=environment, check=True, capture_output=True)
    return server


def _count_bytes(kind: str) -> Row:
    """Return what a step writes: a long session without a short one, each the least of some, because a page
    that the system writes in between counts again."""
    written_kb = [min(_write_kb(kind, steps) for _ in range(_TRIES)) for steps in (_SHORT, _MANY)]
    step_kb = (written_kb[1] - written_kb[0]) / (_MANY - _SHORT)
    return Row(
        f"steps-bytes-{kind}",
        f"bytes that a step writes ({kind}), over {_MANY - _SHORT} steps",
        f"≤ {_GOAL_KB} kB",
        f"{step_kb:.0f} kB; the first {_SHORT} with the home {written_kb[0]:,.0f} kB",
        "none measured",
        step_kb <= _GOAL_KB if step_kb else None,  # a file system in memory writes nothing
        COMMAND,
    )


def _write_kb(kind: str, steps: int) -> float:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock
        _run_session(Path(folder), [_step_call(kind, number) for number in range(steps)])
        return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock - before) * 512 / 1000


def _count_syncs(kind: str) -> Row:
    """Return the syncs of a step: those of a long session without those of a short one, each the least of
    some, because a busy machine begins a record before the first step."""
    counts = [min(_trace_syncs(kind, steps) for _ in range(_TRIES)) for steps in (_SHORT, _LONG)]
    syncs = (counts[1] - counts[0]) / (_LONG - _SHORT)
    goal = _GOALS_SYNCS[kind]
    return Row(
        f"steps-syncs-{kind}",
        f"syncs of the disk for a step ({kind}), over {_LONG - _SHORT} steps",
        f"≤ {goal}",
        f"{syncs:.1f}",
        "none measured",
        syncs <= goal,
        COMMAND,
    )


def _trace_syncs(kind: str, steps: int) -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a worker writes after a session
        trace = Path(folder, "trace")
        calls = [_step_call(kind, number) for number in range(steps)]
        _run_session(Path(folder), calls, "strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(trace))
        return trace.read_text().count("sync(")


def _step_call(kind: str, number: int) -> Call:
    if kind == "read":
        return "read_file", {"path": f"package0/module{number % 20}.py"}
    if kind == "command that only reads":
        return "terminal", {"command": f"true {number}"}
    return "terminal", {"command": f"echo {number} > changed.txt"}


def _make_project(work: Path) -> None:
    work.mkdir()
    for number in range(_FILES):
        path = work / f"package{number // 20}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_LINES)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        run_command([*git, *command], cwd=work, check=True)


def _calls(number: int) -> list[tuple[str, str, dict[str, object]]]:
    path = f"package0/module{number}.py"
    edit: dict[str, object] = {
        "path": path,
        "old_text": f"return {number}\n\n",
        "new_text": f"return {number}0\n\n",
    }
    return [
        ("read", "read_file", {"path": path}),
        ("search", "search_files", {"pattern": f"function_{number}\\b"}),
        ("edit", "patch", edit),
        ("command", "terminal", {"command": f"true {number}"}),
        ("diff", "terminal", {"command": f"git diff {path}"}),
    ]


def _row(kind: str, took_ms: list[float]) -> Row:
    goal_ms = _GOALS_MS.get(kind)
    return Row(
        f"steps-{kind}",
        f"from the model's call ({kind}) to the next request, {_FILES} files",
        f"≤ {goal_ms:.0f} ms" if goal_ms else "for comparison",
        f"{median(took_ms):.1f} ms (least {min(took_ms):.1f})",
        "none measured",
        median(took_ms) <= goal_ms if goal_ms else None,
        COMMAND,
    )
