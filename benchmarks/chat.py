"""The terminal chat: CPU until it can be typed at, what a key costs after a long paste, what an answer draws.

The chat is `whet` at a pseudo-terminal; its CPU is read from /proc. A key's time is counted from its write to
the moment at which its letter has been drawn, so it holds all that a person waits for.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cli.running import Tty, flags

from benchmarks.measure import clean_environment, median
from benchmarks.recorder import cpu_of, resident_mb
from benchmarks.table import Row
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

COMMAND = "python -m benchmarks chat"
# Each key is another letter, so that what is drawn for one is not taken for another.
_KEYS = "".join(map(chr, range(0x400, 0x43C)))
_PASTE = "".join(f"line {number} of what was pasted, as wide as a line of text is\r" for number in range(200))
_PLAIN = "a text of many words without any mark around it, " * 1_160
_ANSWER_LINES = 3_000
_TURNS, _TURNS_SHORT = 10_000, 600
_ERASES_THE_SCREEN = re.compile(r"\x1b\[[23]J|\x1bc")


def run(runs: int, full: bool) -> list[Row]:
    """Start the chat some times, paste into it, and have it answer at length."""
    starts = [_started() for _ in range(max(runs, 11) + 1)][1:]  # the first may have to compile
    return [
        Row(
            "chat-start",
            "terminal chat: CPU until its prompt is drawn",
            "≤ 0.45 s",
            f"{median(starts):.2f} s ({min(starts):.2f} to {max(starts):.2f})",
            "none",
            median(starts) <= 0.45,
            COMMAND,
        ),
        _typing("chat-paste", "a paste of 200 lines", f"\x1b[200~{_PASTE}\x1b[201~"),
        _typing("chat-plain-paste", f"{len(_PLAIN) / 1000:.0f} kB without paste marks", _PLAIN),
        _scrolling(),
        _growing(_TURNS if full else _TURNS_SHORT, full),
    ]


@contextlib.contextmanager
def _chat(server: PracticeServer) -> Iterator[Tty]:
    """Start a chat in a fresh home; ready once its prompt and the line below it are there."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.mkdir()
        environ = clean_environment(WHET_HOME=f"{folder}/home", TERM="xterm-256color", LANG="C.UTF-8")
        under = ["env", "-i", *(f"{name}={value}" for name, value in environ.items())]
        with Tty(["chat", *flags(server)], work, under=under) as tty:
            tty.wait_for("› ")
            tty.wait_for("ask · practice-echo")
            yield tty


def _started() -> float:
    with PracticeServer() as server, _chat(server) as tty:
        return cpu_of(tty.pid)


def _typing(name: str, what: str, paste: str) -> Row:
    with PracticeServer() as server, _chat(server) as tty:
        began_s = cpu_of(tty.pid)
        tty.type(paste)
        tty.wait_for("[pasted ")
        pasted_s = cpu_of(tty.pid)
        took_ms: list[float] = []
        for key in _KEYS:
            at_s = time.perf_counter()
            tty.type(key)
            tty.wait_for(key)
            took_ms.append((time.perf_counter() - at_s) * 1000)
        cpu_ms = (cpu_of(tty.pid) - pasted_s) * 1000 / len(_KEYS)
    took_ms.sort()
    return Row(
        name,
        f"terminal chat: a key after {what}",
        "≤ 10 ms",
        f"{cpu_ms:.1f} ms of CPU; drawn after {median(took_ms):.1f} ms (least {took_ms[0]:.1f}); "
        f"the paste {(pasted_s - began_s) * 1000:.0f} ms of CPU",
        "none",
        max(cpu_ms, took_ms[0]) <= 10,
        COMMAND,
        details=["Judged by CPU and the least time: beside other work a key also waits for a core."],
    )


def _scrolling() -> Row:
    """Stream a long answer: nothing that was drawn may be erased but the live area, a few rows."""
    text = "".join(
        f"Line {number} of an answer that is long, in words as they come.\n\n"
        for number in range(_ANSWER_LINES)
    )
    with PracticeServer(script=[ScriptedReply(text, pieces=1_000)]) as server, _chat(server) as tty:
        before, cpu_s = len(tty.drawn), cpu_of(tty.pid)
        tty.type("go\r")
        half = tty.wait_for(f"Line {_ANSWER_LINES // 2} ")
        first, first_s = len(tty.drawn) - before, cpu_of(tty.pid) - cpu_s
        rest = tty.wait_for("1 step")
        drawn, cpu_s = tty.drawn[before:], cpu_of(tty.pid) - cpu_s
    erased = len(_ERASES_THE_SCREEN.findall(drawn))
    once = all((half + rest).count(f"Line {number} of") == 1 for number in range(0, _ANSWER_LINES, 100))
    return Row(
        "chat-scroll",
        f"terminal chat: an answer of {_ANSWER_LINES:,} paragraphs",
        "screen never erased, each line drawn once",
        f"{erased} erased, {'each once' if once else 'some drawn twice'}; {len(drawn) / len(text):.1f} bytes "
        f"drawn for one of text; {cpu_s:.1f} s of CPU, {first_s:.1f} for the first half",
        "none",
        erased == 0 and once and first < len(drawn) * 0.6,
        COMMAND,
    )


def _growing(turns: int, full: bool) -> Row:
    """Ask and be answered over and over in one chat: its memory must not grow with the conversation."""
    warm_up = 3_000 if full else 500  # the first compaction comes before the three thousandth
    seen: list[float] = []
    with PracticeServer() as server, _chat(server) as tty:
        began_s = cpu_of(tty.pid)
        for number in range(1, warm_up + turns + 1):
            tty.type(f"question {number}: which of the builds of today failed, and where?\r")
            tty.wait_for("1 step")
            tty.wait_for("› ")
            if number == warm_up:
                began_s = cpu_of(tty.pid)
            if number >= warm_up and (number - warm_up) % (turns // 10) == 0:
                seen.append(resident_mb(tty.pid))
                print(f"  {number} turns, {seen[-1]:.1f} MB", file=sys.stderr, flush=True)
        cpu_ms = (cpu_of(tty.pid) - began_s) * 1000 / turns
    grown = seen[-1] - seen[0]
    return Row(
        "chat-turns" if full else "chat-turns-short",
        f"terminal chat: growth over {turns:,} turns of one conversation",
        "≤ 10 MB",
        f"{grown:+.1f} MB, from {seen[0]:.1f} to {seen[-1]:.1f} MB; {cpu_ms:.1f} ms of CPU a turn",
        "none",
        grown <= 10 if full else None,  # a few turns show nothing about the goal
        COMMAND + (" --full" if full else ""),
        details=[f"Counted after {warm_up:,} turns: {', '.join(f'{mb:.0f}' for mb in seen)} MB."],
    )
