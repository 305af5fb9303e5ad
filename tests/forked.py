"""Runs `whet` as a process of its own without the interpreter's start and the imports (see nursery.py)."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def row(self) -> dict[str, Any]:
        """The one object of --json; standard output holds nothing else."""
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), (
            f"not one object: {self.out!r} {self.err}"
        )
        return json.loads(self.out)

    def assert_error(self, *words: str, code: int = 1, hint: bool = True) -> None:
        """One `error: ...` line that holds `words`, a hint line, and no stack."""
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert self.code == code, self
        assert len(errors) == 1 and "Traceback" not in self.err, self.err
        assert not hint or any(line.startswith("hint: ") for line in lines), f"no hint: {self.err}"
        assert len(lines) <= 3, f"more than an error and its hint: {self.err}"
        for word in words:
            assert word.lower() in self.err.lower(), f"{word!r} is not in: {self.err}"


class Nursery:
    """The process that runs are forked from; started at the first run, one for all tests of a process."""

    _only: Nursery | None = None

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        self._count = 0
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._buffer = b""
        atexit.register(self.close)

    @classmethod
    def get(cls) -> Nursery:
        """Give the one that runs."""
        if cls._only is None:
            cls._only = Nursery()
        return cls._only

    def start(self, order: dict[str, Any]) -> tuple[int, int]:
        """Start a run and give its number and process id."""
        self._count += 1
        number = self._count
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order | {"id": number}).encode() + b"\n")
        self._process.stdin.flush()
        self._read_until(lambda: number in self._pids, 30.0)
        return number, self._pids[number]

    def wait(self, number: int, timeout_s: float) -> int:
        """Wait for a run's end and give its exit code, the negative number of a signal that killed it."""
        self._read_until(lambda: number in self._codes, timeout_s)
        return self._codes[number]

    def close(self) -> None:
        """End it; what still runs is left alone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def _read_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while not condition():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
                raise TimeoutError(f"a run did not end within {timeout_s:g} s")
            data = os.read(fd, 65_536)
            assert data, "the nursery died"
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                row = json.loads(line)
                if "pid" in row:
                    self._pids[row["id"]] = row["pid"]
                else:
                    self._codes[row["id"]] = row["code"]


class Running:
    """A started run; its output goes to files in `folder`."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._number, self.pid = Nursery.get().start(order)

    @property
    def out(self) -> str:
        """What it wrote to standard output until now."""
        return Path(self._order["stdout"]).read_text()

    def done(self, timeout_s: float = 60.0) -> Done:
        """Wait for its end; one that does not end is killed."""
        try:
            code = Nursery.get().wait(self._number, timeout_s)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        return Done(code, self.out, Path(self._order["stderr"]).read_text())


def run(
    arguments: Sequence[str], folder: Path, given: bytes | None = None, environ: dict[str, str] | None = None
) -> Done:
    """Run `whet` with these arguments in `folder` to its end."""
    with tempfile.TemporaryDirectory() as directory:
        if given is not None:
            Path(directory, "in").write_bytes(given)
        order = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environ": {**os.environ, **(environ or {})},
            "stdin": "/dev/null" if given is None else f"{directory}/in",
            "stdout": f"{directory}/out",
            "stderr": f"{directory}/err",
        }
        return Running(order).done()
