"""`whet serve` in a process of its own, for the rows that measure what it spends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import ROOT, clean_environment

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Serving(NamedTuple):
    """A server that runs: its process id, its address, and its owner's token."""

    pid: int
    url: str
    token: str

    def cpu_s(self) -> float:
        """Give what its process has spent so far, in ticks of 10 ms."""
        return cpu_s(self.pid)


def cpu_s(pid: int) -> float:
    """Give the CPU seconds of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


@contextlib.contextmanager
def serving(folder: Path, model_url: str, *options: str) -> Iterator[Serving]:
    """Start the API before a model server, its home in `folder`, and end it."""
    work = folder / "work"
    work.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "serve", *options, "--port", "0", "--provider", "practice",
         "--base-url", model_url, "--model", "practice", "--workspace", str(work)],
        env=clean_environment(WHET_HOME=str(folder / "home"), WHET_REVIEW_WRITES="off"),
        stdout=subprocess.PIPE, cwd=ROOT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        url = ""
        for line in process.stdout:
            if line.startswith("OpenAI base URL"):
                url = line.split()[3].removesuffix("/v1")
            if line.startswith("made a first token"):
                break
        else:
            raise RuntimeError("whet serve ended")
        yield Serving(process.pid, url, (folder / "home" / "serve" / "owner.token").read_text().strip())
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout:
            process.stdout.close()
