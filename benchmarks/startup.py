"""What it costs to start: `--version`, a one-shot until its first request, and the installed size."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ROOT, clean_environment, in_turn, median
from benchmarks.recorder import Recorder
from benchmarks.table import Row

WHET = str(Path(sys.executable).parent / "whet")


def run(runs: int, full: bool) -> list[Row]:
    """`whet --version` beside a bare interpreter, and CPU until the first model request."""
    samples = in_turn({"python": [sys.executable, "-c", "pass"], "whet": [WHET, "--version"]}, max(runs, 5))
    bare = median([s.cpu_s for s in samples["python"]])
    ours = median([s.cpu_s for s in samples["whet"]])
    first_request(["hi"])  # unmeasured: after an update it would measure the compiler
    firsts = [first_request(["hi"]).cpu_s for _ in range(max(runs, 15))]
    first = median(firsts)
    return [
        Row(
            "version",
            "`whet --version`, CPU",
            "≤ 0.12 s",
            f"{ours:.3f} s",
            f"bare interpreter {bare:.3f} s; hermes-agent 0.51 (published run)",
            ours <= 0.12,
            "python -m benchmarks startup",
        ),
        Row(
            "first-request",
            "one-shot: CPU until the first model request",
            "≤ 0.35 s",
            f"{first:.2f} s ({min(firsts):.2f} to {max(firsts):.2f})",
            "hermes-agent 4.0 (published run)",
            first <= 0.35,
            "python -m benchmarks startup",
        ),
    ]


def first_request(words: list[str], *options: str) -> Recorder:
    """Run a one-shot against a recorder and give it, with the first body and the CPU until then."""
    with tempfile.TemporaryDirectory() as folder, Recorder() as recorder:
        command = [WHET, "chat", "-q", *words, "--provider", "bench", "--base-url", recorder.base_url]
        process = subprocess.Popen(
            [*command, "--model", "m", *options],
            env=clean_environment(WHET_HOME=f"{folder}/home"),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        recorder.client_pid = process.pid
        out, err = process.communicate(timeout=60)
        if process.returncode or b"hello" not in out:
            raise RuntimeError(f"the one-shot failed: {err.decode()[-500:]}")
        return recorder


def run_size(runs: int, full: bool) -> list[Row]:
    """Install the core into an empty environment and add up its files."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        target = next(Path(folder).glob("lib/python3*/site-packages"))
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
        ]
        subprocess.run([*pip, "--target", str(target), str(ROOT)], check=True, env=clean_environment())
        sizes: dict[str, float] = {}
        for path in target.rglob("*"):
            if path.is_file():
                name = path.relative_to(target).parts[0].split("-")[0]
                sizes[name] = sizes.get(name, 0) + path.stat().st_size / 1e6
    total = sum(sizes.values())
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:8]
    return [
        Row(
            "size",
            "installed size of the core",
            "≤ 60 MB",
            f"{total:.0f} MB",
            "hermes-agent 228, pi 204, llm 46 (published run)",
            total <= 60,
            "python -m benchmarks size",
            details=["Largest: " + ", ".join(f"{name} {size:.1f} MB" for name, size in largest) + "."],
        )
    ]
