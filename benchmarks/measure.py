"""Run commands as whole processes and read what the operating system says they used.

Every figure in RESULTS.md comes from here: CPU seconds (user + system) and peak memory of the finished
child, several runs after a warm-up, peer and Whet in turn so that a drifting machine hits both alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_S = 1.0
_LIMIT_S = 300.0


@dataclass
class Sample:
    """One run: CPU and wall seconds, peak resident megabytes, and what it printed as its last JSON line."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    printed: dict[str, float] = field(default_factory=dict)


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment without keys and proxies, with bytecode caching on as a user has it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(("_API_KEY", "_BASE_URL", "_PROXY", "_proxy"))
        and not name.startswith(("WHET_", "PYTHON"))
    }
    return {**kept, "NO_PROXY": "*", **extra}


def run(command: list[str], **environment: str) -> Sample:
    """Run `command` in the checkout, as `run_in` does."""
    return run_in(ROOT, command, **environment)


def run_in(folder: Path, command: list[str], **environment: str) -> Sample:
    """Run `command` in `folder` to its end and measure it, with all that it started and that ended within a
    second: what a sandbox runs is not waited for by the program. Raises RuntimeError if it fails, also if it
    does not end in five minutes, as a peer does that has answered and then waits."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = _children()
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=clean_environment(**environment),
        cwd=folder,
        text=True,
        start_new_session=True,
    )
    limit = threading.Timer(_LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    out, err = "", ""
    assert process.stdout and process.stderr
    out = process.stdout.read()
    err = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    limit.cancel()
    process.stdout.close()
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited {process.returncode}: {err.strip()[-800:]}")
    cpu_s = usage.ru_utime + usage.ru_stime + _reap_orphans(before)
    printed: dict[str, float] = {}
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if lines:
        printed = json.loads(lines[-1])
    return Sample(cpu_s, wall_s, usage.ru_maxrss / 1024, printed)


def _children() -> set[int]:
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # that thread has ended
            pids |= {int(pid) for pid in path.read_text().split()}
    return pids


def _reap_orphans(before: set[int]) -> float:
    """Wait for the children that were not there before, and return the CPU seconds of those that ended."""
    cpu_s, until_s = 0.0, time.monotonic() + _ORPHANS_S
    while (orphans := _children() - before) and time.monotonic() < until_s:
        for pid in orphans:
            ended, _, usage = os.wait4(pid, os.WNOHANG)
            cpu_s += usage.ru_utime + usage.ru_stime if ended else 0.0
        time.sleep(0.01)
    return cpu_s


def in_turn(commands: dict[str, list[str]], runs: int, **environment: str) -> dict[str, list[Sample]]:
    """Run each command once unmeasured, then all in turn `runs` times."""
    for command in commands.values():
        run(command, **environment)
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            samples[name].append(run(command, **environment))
    return samples


def median(values: list[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def machine() -> str:
    """One line on where this ran."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            if line.startswith("model name")
        ),
        "unknown processor",
    )
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory_gb:.0f} GB, Python {sys.version.split()[0]}"


def own_cpu_s() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
