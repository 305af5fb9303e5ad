"""Whole programs, Whet and those of others from npm, against one paced model server: what one job costs each.

Each runs as its users run it, without a person: one question, and a job of commands (`true`), whose answers
come in pieces a millisecond apart. CPU of the program and of all that it starts. A peer that can't be
installed here, or does not do the job, is named and left out.

Where uv is installed, a second job reads, searches, edits, tests and shows a diff by turns, in a repository
of 300 files with a virtual environment of uv's. The floor is the same commands run by `sh` alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.loops.paced_shapes import work_command
from benchmarks.measure import Sample, clean_environment, median, run_in
from benchmarks.overhead import practice_server
from benchmarks.peers import install_npm, npm_program, npm_version
from benchmarks.table import Row

COMMAND = "python -m benchmarks programs"
_PIECES, _GAP_MS, _STEPS = 30, 1, 20
_GOAL_PI = 1.8
_WORKERS = ("Whet", "pi", "codex", "claude-code")
_GOALS_WORK_MS = {20: (115, 86), 80: (92, 76)}
"""By steps of a job: the goal of a step, and the floor where it was set. Elsewhere the difference counts."""
_GOAL_ONE_SHOT_S = 0.20
_CODEX_S = 0.42
"""What codex took for the question where the goal in seconds was set; elsewhere the ratio counts."""


class Invocation(NamedTuple):
    """A program's command and the environment that it has besides a home of its own."""

    command: list[str]
    environment: dict[str, str]


class Program(NamedTuple):
    """A program: its npm package, "" for Whet, and how it is called with (home, base URL, model)."""

    package: str
    invoke: Callable[[Path, str, str], Invocation]


def _whet(home: Path, base_url: str, model: str) -> Invocation:
    whet = str(Path(sys.executable).parent / "whet")
    command = [whet, "chat", "-q", "go", "--provider", "bench", "--base-url", base_url, "--model", model]
    return Invocation(command, {"WHET_HOME": str(home / ".whet")})


def _unconfined(home: Path, base_url: str, model: str) -> Invocation:
    _write(home / ".whet" / "config.yaml", {"sandbox": {"mode": "off"}})
    return _whet(home, base_url, model)


def _pi(home: Path, base_url: str, model: str) -> Invocation:
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    one = {"id": model, "name": model, "reasoning": False, "input": ["text"], "cost": cost}
    models = [{**one, "contextWindow": 128_000, "maxTokens": 4096}]
    bench = {"baseUrl": base_url, "api": "openai-completions", "apiKey": "bench", "models": models}
    _write(home / ".pi" / "agent" / "models.json", {"providers": {"bench": bench}})
    return Invocation(
        [npm_program("pi"), "--provider", "bench", "--model", model, "-p", "go"], {"PI_OFFLINE": "1"}
    )


def _opencode(home: Path, base_url: str, model: str) -> Invocation:
    limit = {"context": 128_000, "output": 4096}
    bench = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": base_url, "apiKey": "bench"},
        "models": {model: {"limit": limit, "tool_call": True}},
    }
    chosen = f"bench/{model}"
    config = {"provider": {"bench": bench}, "model": chosen, "small_model": chosen, "autoupdate": False}
    _write(home / ".config" / "opencode" / "opencode.json", config)
    return Invocation([npm_program("opencode"), "run", "-m", chosen, "go"], {})


def _codex(home: Path, base_url: str, model: str) -> Invocation:
    where = f'model_providers.bench={{name="bench",base_url="{base_url}",wire_api="responses"}}'
    command = [
        npm_program("codex"),
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
    ]
    return Invocation([*command, "-c", 'model_provider="bench"', "-c", where, "-m", model, "go"], {})


def _claude(home: Path, base_url: str, model: str) -> Invocation:
    environment = {
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "bench",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return Invocation(
        [npm_program("claude"), "-p", "go", "--model", model, "--allowedTools", "Bash"], environment
    )


PROGRAMS: dict[str, Program] = {
    "Whet": Program("", _whet),
    "Whet, unconfined": Program("", _unconfined),
    "pi": Program("@mariozechner/pi-coding-agent", _pi),
    "opencode": Program("opencode-ai", _opencode),
    "codex": Program("@openai/codex", _codex),
    "claude-code": Program("@anthropic-ai/claude-code", _claude),
}


def run(runs: int, full: bool) -> list[Row]:
    """CPU of a question, and of a step of a job with twenty of them; every program in turn. `full`: a job of
    80 steps of work, too."""
    left_out = [
        name for name, program in PROGRAMS.items() if program.package and not install_npm(program.package)
    ]
    samples: dict[str, dict[int, list[float]]] = {
        name: {0: [], _STEPS: []} for name in PROGRAMS if name not in left_out
    }
    with practice_server("paced_server") as base_url:
        for number in range(runs + 1):
            for name in tuple(samples):
                try:
                    for steps, found in samples[name].items():
                        spent = _spent(PROGRAMS[name], base_url, steps)
                        if number:  # the first run fills caches
                            found.append(spent.cpu_s)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    if not PROGRAMS[name].package:
                        raise
                    print(f"  {name} is left out: {error}", file=sys.stderr)
                    left_out.append(name)
                    del samples[name]
        work_rows = _measure_work(base_url, [name for name in _WORKERS if name in samples], runs, full=full)
    whole = {name: median(found[0]) for name, found in samples.items()}
    step = {
        name: 1000 * median([job - one for job, one in zip(found[_STEPS], found[0], strict=True)]) / _STEPS
        for name, found in samples.items()
    }
    versions = ", ".join(
        f"{name} {npm_version(PROGRAMS[name].package)}" for name in samples if PROGRAMS[name].package
    )
    missing = f" Left out: {', '.join(left_out)}." if left_out else ""
    details = [f"{_PIECES} pieces {_GAP_MS} ms apart an answer. {versions}.{missing}"]
    ahead = step.get("pi", 0.0) / step["Whet, unconfined"]
    beside = whole["Whet"] / whole["codex"] if "codex" in whole else 0.0
    return [
        Row(
            "programs-question",
            "a question, the whole program, CPU",
            f"≤ {_GOAL_ONE_SHOT_S:.2f} s beside {_CODEX_S} of codex: ≤ {_GOAL_ONE_SHOT_S / _CODEX_S:.2f} x",
            f"{whole['Whet']:.2f} s" + (f", {beside:.2f} x codex" if beside else ""),
            ", ".join(f"{name} {cpu_s:.2f} s" for name, cpu_s in whole.items() if name != "Whet"),
            beside <= _GOAL_ONE_SHOT_S / _CODEX_S if beside else None,
            COMMAND,
            bars=whole,
            unit="CPU s",
            details=details,
        ),
        Row(
            "programs-step",
            "a step of a job: the model's answer and the command `true`, CPU with the command's",
            f"pi ≥ {_GOAL_PI} x",
            f"{step['Whet, unconfined']:.1f} ms unconfined, {step['Whet']:.1f} ms in the sandbox",
            ", ".join(f"{name} {ms:.1f} ms" for name, ms in step.items() if PROGRAMS[name].package)
            + (f" (pi {ahead:.1f} x)" if ahead else ""),
            ahead >= _GOAL_PI if ahead else None,
            COMMAND,
            bars=step,
            unit="CPU ms",
            details=[f"The others run commands unconfined; Whet is durable at each step. {details[0]}"],
        ),
        *work_rows,
    ]


def _measure_work(base_url: str, names: list[str], runs: int, *, full: bool) -> list[Row]:
    """CPU of a step of work, a row for each length of a job; none without uv."""
    if not shutil.which("uv"):
        return []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # links don't lead to another file system
        project = Path(folder, "project")
        _make_project(project)
        rows: list[Row] = []
        for steps in (20, 80) if full else (20,):
            spent_ms: dict[str, list[float]] = {name: [] for name in ("floor", *names)}
            for number in range(runs + 1):
                for name in tuple(spent_ms):
                    try:
                        cpu_s = _work(name, project, base_url, steps) - _work(name, project, base_url, 0)
                    except RuntimeError as error:
                        if name not in PROGRAMS or not PROGRAMS[name].package:
                            raise
                        print(f"  {name} is left out of {steps} steps: {error}", file=sys.stderr)
                        del spent_ms[name]
                        continue
                    if number:  # the first run fills caches
                        spent_ms[name].append(1000 * cpu_s / steps)
            rows.append(_work_row(steps, {name: median(values) for name, values in spent_ms.items()}))
    return rows


def _work_row(steps: int, step_ms: dict[str, float]) -> Row:
    goal_ms, floor_ms = _GOALS_WORK_MS[steps]
    more_ms = step_ms["Whet"] - step_ms["floor"]
    versions = ", ".join(
        f"{name} {npm_version(PROGRAMS[name].package)}"
        for name in step_ms
        if name in PROGRAMS and PROGRAMS[name].package
    )
    return Row(
        f"programs-work-{steps}",
        f"a step of {steps} that read, search, edit, test and show a diff by turns, CPU with the commands'",
        f"≤ {goal_ms} ms where the commands alone take {floor_ms}: ≤ {goal_ms - floor_ms} ms more",
        f"{step_ms['Whet']:.0f} ms in the sandbox, {more_ms:.0f} ms more than the commands alone",
        ", ".join(f"{name} {ms:.0f} ms" for name, ms in step_ms.items() if name != "Whet"),
        more_ms <= goal_ms - floor_ms,
        COMMAND,
        bars=step_ms,
        unit="CPU ms",
        details=[f"300 files in git, a virtual environment of uv's with pytest. {versions}."],
    )


def _work(name: str, project: Path, base_url: str, steps: int) -> float:
    """Run a job of so many steps of work in a copy of the project; return its CPU seconds."""
    with tempfile.TemporaryDirectory(dir=project.parent) as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        shutil.copytree(project, work, symlinks=True, copy_function=_link_package)
        environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
        if name == "floor":
            commands = "; ".join(work_command(step + 1) for step in range(steps))
            return run_in(work, ["sh", "-c", commands or "true"], **environment).cpu_s
        call = PROGRAMS[name].invoke(home, base_url, f"work-{_PIECES}-{_GAP_MS}-{steps}")
        return run_in(work, call.command, **environment, **call.environment).cpu_s


def _link_package(source: str, target: str) -> None:
    """Copy a file, or link one of a package, as uv does."""
    if "/site-packages/" in source and "/__pycache__/" not in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _make_project(work: Path) -> None:
    """Make a repository of 300 files with tests, and a virtual environment in which they have run."""
    lines = "".join(f"def function_{number}():\n    return {number}\n\n\n" for number in range(40))
    for number in range(300):
        path = work / f"package{number % 15}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines)
    (work / "tests").mkdir()
    for number in range(16):
        (work / "tests" / f"test_{number}.py").write_text("def test_it():\n    assert 1 + 1 == 2\n")
    (work / "pytest.ini").write_text("[pytest]\n")
    (work / ".gitignore").write_text(".venv\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], cwd=work, check=True)
    for command in (["venv", "-q"], ["pip", "install", "-q", "--link-mode", "hardlink", "pytest"]):
        subprocess.run(["uv", *command], cwd=work, check=True, env=clean_environment())
    run_in(work, ["sh", "-c", work_command(4)])


def _spent(program: Program, base_url: str, steps: int) -> Sample:
    """Run a job of so many commands in a home and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        work.mkdir()
        home.mkdir()
        call = program.invoke(home, base_url, f"paced-{_PIECES}-{_GAP_MS}-{steps}")
        return run_in(
            work, call.command, HOME=str(home), XDG_CONFIG_HOME=str(home / ".config"), **call.environment
        )


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
