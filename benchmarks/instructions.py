"""What a model call and a one-shot cost in instructions of the processor, which a busy machine leaves alone.

Counted by valgrind (cachegrind without its caches), in user mode: what the kernel does for a commit or a
packet is not in them. Per call: a long run less a short one, so that start and end fall out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ROOT, clean_environment
from benchmarks.overhead import practice_server
from benchmarks.startup import WHET
from benchmarks.streaming import CLIENTS
from benchmarks.table import Row

COMMAND = "python -m benchmarks instructions"
_SHORT, _LONG = 20, 60
_SHAPE = "paced-30-0"
_CLIENTS = {client: kind for client, kind in CLIENTS.items() if kind != "httpx2"}


def run(_runs: int, _full: bool) -> list[Row]:
    """One row for a burst call, one for a one-shot; none where valgrind is not installed."""
    if shutil.which("valgrind") is None:
        print("  valgrind is not installed: nothing was counted", file=sys.stderr)
        return []
    with practice_server("paced_server") as base_url:
        calls = {client: _per_call(kind, base_url) / 1e6 for client, kind in _CLIENTS.items()}
        once = _one_shot(base_url) / 1e6
    ours = calls["Whet"]
    bare = _counted([sys.executable, "-c", "pass"]) / 1e6
    return [
        Row(
            "instructions-burst",
            "a model call, durable, whose answer comes in 30 pieces at once, in user mode",
            "for comparison",
            f"{ours:.2f} million instructions, {ours / calls['http.client']:.2f} x http.client",
            ", ".join(f"{client} {count:.2f}" for client, count in calls.items() if client != "Whet"),
            None,
            COMMAND,
            bars=calls,
            unit="million instructions",
        ),
        Row(
            "instructions-one-shot",
            "`whet chat -q hi` in a home that is there, whole, in user mode",
            "for comparison",
            f"{once:.0f} million instructions",
            f"bare interpreter {bare:.0f}",
            None,
            COMMAND,
        ),
    ]


def _per_call(kind: str, base_url: str) -> float:
    client = [sys.executable, "-m", "benchmarks.loops.paced_client", kind, base_url, _SHAPE]
    # uncounted: a module that the shorter run compiles would be taken off each call
    subprocess.run([*client, "1"], env=clean_environment(), cwd=ROOT, check=True, capture_output=True)
    short, long = (_counted([*client, str(calls)]) for calls in (_SHORT, _LONG))
    return (long - short) / (_LONG - _SHORT)


def _one_shot(base_url: str) -> int:
    command = [sys.executable, WHET, "chat", "-q", "hi", "--provider", "bench"]
    command += ["--base-url", base_url, "--model", f"{_SHAPE}-0"]
    with tempfile.TemporaryDirectory() as folder:
        environ = clean_environment(WHET_HOME=f"{folder}/home")
        subprocess.run(
            command, env=environ, cwd=ROOT, check=True, capture_output=True, stdin=subprocess.DEVNULL
        )
        return _counted(command, WHET_HOME=f"{folder}/home")


def _counted(command: list[str], **environment: str) -> int:
    """Give the instructions of a command, all its threads together. Raises where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counts"
        counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out}"]
        done = subprocess.run(
            [*counter, *command],
            env=clean_environment(PYTHONHASHSEED="0", **environment),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    found = re.search(r"I +refs: +([\d,]+)", done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"{' '.join(command)} exited {done.returncode}: {done.stderr[-500:]}")
    return int(found[1].replace(",", ""))
