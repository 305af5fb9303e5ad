"""When a person sees something at the terminal: `python -m benchmarks paint`.

The chat runs at a pseudo terminal. Counted are the time until its input line is drawn, the time from the
moment at which the model's server sent a piece until its text is drawn, and a key's while an answer comes.
Beside other work everything also waits for a core: the least of some runs counts for the start.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from tests.cli.running import Tty

from benchmarks.measure import clean_environment, median
from benchmarks.recorder import cpu_of
from benchmarks.table import Row
from benchmarks.timed_server import Reply, TimedServer

COMMAND = "python -m benchmarks paint"
_START_MS, _FIRST_MS, _PIECE_MS, _PIECE_P95_MS, _KEY_MS = 150.0, 10.0, 8.0, 20.0, 3.0
_PIECES, _GAP_S, _TURNS = 60, 0.02, 6
_KEYS = "".join(map(chr, range(0x400, 0x43C)))


def run(runs: int, full: bool) -> list[Row]:
    """Start the chat some times, and watch answers come."""
    return [_start(max(runs, 7)), *_streams()]


@contextlib.contextmanager
def _chat(server: TimedServer) -> Generator[Tty]:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.mkdir()
        environ = clean_environment(WHET_HOME=f"{folder}/home", TERM="xterm-256color", LANG="C.UTF-8")
        under = ["env", "-i", *(f"{name}={value}" for name, value in environ.items())]
        flags = ["--provider", "practice", "--base-url", server.base_url, "--model", "timed"]
        with Tty(["chat", *flags], work, under=under) as tty:
            yield tty


def _start(runs: int) -> Row:
    """Start the chat, in turn with a bare interpreter; then wait until it takes keys."""
    took_ms: list[float] = []
    ready_ms: list[float] = []
    cpu_ms: list[float] = []
    bare_ms: list[float] = []
    for number in range(runs + 1):
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare_ms.append((time.perf_counter() - began_s) * 1000)
        with TimedServer([]) as server:
            began_s = time.perf_counter()
            with _chat(server) as tty:
                tty.wait_for("› ")
                drawn_ms, used_ms = (time.perf_counter() - began_s) * 1000, cpu_of(tty.pid) * 1000
                tty.type("Ж")
                tty.wait_for("Ж")
                if number:  # the first may have to compile
                    took_ms.append(drawn_ms)
                    cpu_ms.append(used_ms)
                    ready_ms.append((time.perf_counter() - began_s) * 1000)
    return Row(
        "paint-start",
        "terminal chat: until its input line is drawn",
        f"≤ {_START_MS:.0f} ms",
        f"{min(took_ms):.0f} ms (median {median(took_ms):.0f}), {median(cpu_ms):.0f} ms of CPU;"
        f" a key is drawn at {min(ready_ms):.0f} ms (median {median(ready_ms):.0f})",
        f"bare interpreter {min(bare_ms):.0f} ms (median {median(bare_ms):.0f})",
        min(took_ms) <= _START_MS,
        COMMAND,
    )


def _streams() -> list[Row]:
    """Have answers come in pieces and note when each is drawn; then type while one comes."""
    texts = [[f"w{turn}x{number}y " for number in range(_PIECES)] for turn in range(_TURNS)]
    replies = [Reply(pieces, _GAP_S, 0.5) for pieces in texts]
    first_ms: list[float] = []
    later_ms: list[float] = []
    keys_ms: list[float] = []
    replies.append(Reply([f"z{number} " for number in range(200)], _GAP_S, 0.5))
    with TimedServer(replies) as server, _chat(server) as tty:
        tty.wait_for("ask · timed")
        for pieces in texts:
            tty.type("go\r")
            for number, piece in enumerate(pieces):
                tty.wait_for(piece.strip())
                took_ms = (time.perf_counter() - server.sent_s[piece]) * 1000
                (later_ms if number else first_ms).append(took_ms)
            tty.wait_for("1 step")
        tty.type("go\r")
        tty.wait_for("z3 ")
        for key in _KEYS:
            at_s = time.perf_counter()
            tty.type(key)
            tty.wait_for(key)
            keys_ms.append((time.perf_counter() - at_s) * 1000)
            time.sleep(0.013)
    return [
        _row(
            "paint-first",
            "the first piece of an answer, from the server's send until it is drawn",
            f"≤ {_FIRST_MS:.0f} ms",
            f"{median(first_ms):.1f} ms (least {min(first_ms):.1f})",
            median(first_ms) <= _FIRST_MS,
        ),
        _row(
            "paint-piece",
            f"later pieces, {_GAP_S * 1000:.0f} ms apart",
            f"p50 ≤ {_PIECE_MS:.0f}, p95 ≤ {_PIECE_P95_MS:.0f} ms",
            f"p50 {median(later_ms):.1f}, p95 {_p95(later_ms):.1f} ms",
            median(later_ms) <= _PIECE_MS and _p95(later_ms) <= _PIECE_P95_MS,
        ),
        _row(
            "paint-key",
            "a key while an answer comes",
            f"p50 ≤ {_KEY_MS:.0f} ms",
            f"p50 {median(keys_ms):.1f}, p95 {_p95(keys_ms):.1f} ms",
            median(keys_ms) <= _KEY_MS,
        ),
    ]


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def _row(name: str, measure: str, goal: str, text: str, met: bool) -> Row:
    return Row(name, f"terminal chat: {measure}", goal, text, "none measured", met, COMMAND)
