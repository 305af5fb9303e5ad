"""A key from its press until it is drawn, in Whet, Claude Code and Codex, and long texts page by page.

    python -m benchmarks keystrokes

Each program runs at a pseudo terminal of 120 columns and 40 rows, all at once; keys are typed in one after
the other, in turns of twenty, 50 ms apart. Peers come from npm. A diff of 3,000 lines is opened from its
question, and an output of 5,000 by Ctrl-O; both are paged to their end in `less`, 60 lines a page.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import sys
import tempfile
import time
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

from tests.cli.running import Tty

from benchmarks.measure import clean_environment, median
from benchmarks.peers import install_npm, npm_program, npm_version
from benchmarks.table import Row
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

COMMAND = "python -m benchmarks keystrokes"
_COLUMNS, _ROWS, _TURNS, _GAP_S, _QUIET_S, _LOST_S = 120, 40, 3, 0.05, 1.5, 2.0
_KEYS = "".join(map(chr, range(0x410, 0x44C)))
_PAGE_LINES, _STALL_MS, _DRAWN_S = 60, 100.0, 0.01
_DIFF_LINES, _OUTPUT_LINES = 3_000, 5_000
_PEERS = {"claude-code": "@anthropic-ai/claude-code", "codex": "@openai/codex"}
_ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


class Screen:
    """A program at a pseudo terminal that answers its questions."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.drawn = b""
        self._home = f"HOME={environment['HOME']}".encode()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        ioctl(self._fd, TIOCSWINSZ, pack("HHHH", _ROWS, _COLUMNS, 0, 0))

    def read(self, wait_s: float) -> bool:
        """Read what is drawn within that time; False if nothing is."""
        if not select.select([self._fd], [], [], wait_s)[0]:
            return False
        data = os.read(self._fd, 65_536)
        for question, answer in _ANSWERS.items():
            os.write(self._fd, answer * data.count(question))
        self.drawn += data
        return True

    def settle(self) -> None:
        """Wait until nothing has been drawn for a while."""
        while self.read(_QUIET_S):
            pass

    def press(self, key: str) -> float:
        """Type a key and return the seconds until it is drawn."""
        data, self.drawn = key.encode(), b""
        began_s = time.perf_counter()
        os.write(self._fd, data)
        while data not in self.drawn:
            if time.perf_counter() - began_s > _LOST_S:
                raise RuntimeError(f"a key was not drawn: {self.drawn[-300:]!r}")
            self.read(_LOST_S)
        took_s = time.perf_counter() - began_s
        rest_s = time.perf_counter() + _GAP_S
        while (left_s := rest_s - time.perf_counter()) > 0:
            self.read(left_s)
        return took_s

    def cpu_s(self) -> float:
        """Return the CPU seconds of the program with all that it started."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(path.parent.name))
        waiting, used_ns = [self.pid], 0
        while waiting:
            pid = waiting.pop()
            waiting += children.get(pid, [])
            used_ns += sum(
                int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
            )
        return used_ns / 1e9

    def close(self) -> None:
        """End the program, and what it left behind in the background with the same HOME."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self._home in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)


def run(_runs: int, _full: bool) -> list[Row]:
    """Measure the keys of all programs in one run, then Whet's long texts."""
    return [_keys(), _long_texts()]


def _keys() -> Row:
    peers = [name for name, package in _PEERS.items() if install_npm(package)]
    took_ms: dict[str, list[float]] = {name: [] for name in ("Whet", *peers)}
    cpu_ms: dict[str, list[float]] = {name: [] for name in took_ms}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, PracticeServer() as server:
        screens = {name: _start(name, Path(folder, name), server.base_url) for name in took_ms}
        try:
            for screen in screens.values():
                screen.settle()
            for turn in range(_TURNS):
                keys = _KEYS[turn * 20 : turn * 20 + 20]
                for name, screen in screens.items():
                    before_s = screen.cpu_s()
                    took_ms[name] += [screen.press(key) * 1000 for key in keys]
                    cpu_ms[name].append((screen.cpu_s() - before_s) * 1000 / len(keys))
        finally:
            for screen in screens.values():
                screen.close()
    texts = {
        name: f"p50 {median(times):.1f}, p95 {_p95(times):.1f} ms, {median(cpu_ms[name]):.1f} ms of CPU"
        for name, times in took_ms.items()
    }
    best_ms = min((_p95(took_ms[name]) for name in peers), default=0.0)
    versions = {name: f"{name} {npm_version(_PEERS[name])}" for name in peers}
    return Row(
        "keystrokes",
        f"terminal chat: a key until it is drawn, {len(_KEYS)} keys, beside two peers in the same run",
        "p95 ≤ both",
        texts["Whet"],
        "; ".join(f"{versions[name]}: {texts[name]}" for name in peers) or "none measured",
        _p95(took_ms["Whet"]) <= best_ms if peers else None,
        COMMAND,
    )


def _start(name: str, home: Path, base_url: str) -> Screen:
    work = home / "work"
    work.mkdir(parents=True)
    more = {"HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor"}
    if name == "Whet":
        flags = ["--provider", "practice", "--base-url", base_url, "--model", "practice-echo"]
        command = [sys.executable, "-m", "whet", "chat", *flags]
        more["WHET_HOME"] = str(home / ".whet")
    elif name == "codex":
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(
            'model = "practice-echo"\nmodel_provider = "bench"\ncheck_for_update_on_startup = false\n'
            f'[model_providers.bench]\nname = "bench"\nbase_url = "{base_url}"\nwire_api = "responses"\n'
            f'[analytics]\nenabled = false\n[projects."{work}"]\ntrust_level = "trusted"\n'
        )
        command = [npm_program("codex")]
    else:
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        settings = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": ["0123456789abcdefghij"], "rejected": []},
            "projects": {str(work): project},
        }
        (home / ".claude.json").write_text(json.dumps(settings))
        command = [npm_program("claude")]
        more |= {
            "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "bench-0123456789abcdefghij",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
    return Screen(command, work, clean_environment(**more))


def _long_texts() -> Row:
    """Open a diff from its question and an output by Ctrl-O, and page both to the end."""
    lines = "".join(f"line {number} of the file\n" for number in range(_DIFF_LINES))
    write = PracticeCall("write_file", json.dumps({"path": "long.txt", "content": lines}))
    output = PracticeCall("terminal", json.dumps({"command": f"seq 1 {_OUTPUT_LINES}"}))
    script = [
        ScriptedReply(tool_calls=(write,)),
        ScriptedReply(tool_calls=(output,)),
        ScriptedReply("All done."),
    ]
    with tempfile.TemporaryDirectory() as folder, PracticeServer(script=script) as server:
        work = Path(folder, "work")
        work.mkdir()
        more = {"WHET_HOME": f"{folder}/home", "PAGER": "less", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        under = ["env", "-i", *(f"{name}={text}" for name, text in clean_environment(**more).items())]
        flags = ["--provider", "practice", "--base-url", server.base_url, "--model", "practice-echo"]
        with Tty(["chat", *flags], work, columns=_COLUMNS, under=under) as tty:
            tty.resize(_COLUMNS, _PAGE_LINES + 1)
            tty.wait_for("Ctrl-D")
            tty.type("go\r")
            tty.wait_for("Enter alone is no:")
            diff = _page_through(tty, "v\r", _DIFF_LINES)
            tty.wait_for("Enter alone is no:")
            tty.type("1\r")
            tty.wait_for("All done.")
            tty.wait_for("› ")
            shown = _page_through(tty, "\x0f", _OUTPUT_LINES)
    texts = [
        f"{name}: open {opened:.0f} ms, a page p50 {median(pages):.1f}, p95 {_p95(pages):.1f} ms"
        for name, (opened, pages) in {"diff": diff, "output": shown}.items()
    ]
    return Row(
        "keystrokes-long",
        f"terminal chat: a diff of {_DIFF_LINES:,} lines and an output of {_OUTPUT_LINES:,} to the end",
        f"{_PAGE_LINES} lines a page, p95 ≤ {_STALL_MS:.0f} ms",
        "; ".join(texts),
        "none measured",
        max(_p95(diff[1]), _p95(shown[1])) <= _STALL_MS,
        COMMAND,
    )


def _page_through(tty: Tty, key: str, lines: int) -> tuple[float, list[float]]:
    """Open a text of so many lines by a key, and page to its end. Return the milliseconds until it was shown,
    and those of each page."""
    began_s = time.perf_counter()
    tty.type(key)
    tty.wait_for("q leaves")
    opened_ms = (time.perf_counter() - began_s) * 1000
    pages_ms: list[float] = []
    for _ in range(lines // _PAGE_LINES - 1):
        while tty.count_later_bytes(_DRAWN_S):
            pass
        tty.seen = ""
        began_s = time.perf_counter()
        tty.type(" ")
        tty.wait_for("q leaves")
        pages_ms.append((time.perf_counter() - began_s) * 1000)
    tty.type("G")
    tty.wait_for("(end)")
    tty.type("q")
    return opened_ms, pages_ms


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]
