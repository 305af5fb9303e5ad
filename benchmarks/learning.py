"""What learning carries to the point of use: the knowledge-gated world, 20 seeds; all arms with --full.

Without it only the arms that the goals need: about three minutes of CPU, all arms about eight. What was run
is kept in the temporary folder under a digest of the source, and the next run goes on there.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, clean_environment
from benchmarks.table import Row

SEEDS, SESSIONS = 20, 40
_NEEDED = "off,conversation,ours,oracle"
_LONG, _LONG_SEEDS = 120, 4
_PROJECT, _PROJECT_SEEDS = 40, 10
_LONG_ARMS = "off,conversation,ours"
_COMMAND = "python -m benchmarks learning --full"


def run(runs: int, full: bool) -> list[Row]:
    """All arms on the same worlds; the rates have bootstrap intervals over seeds."""
    shape = ("--seeds", str(SEEDS), "--sessions", str(SESSIONS))
    found, report = _evaluate(*shape, *([] if full else ["--arms", _NEEDED]))
    arms: dict[str, Any] = {arm["arm"]: arm for arm in found["arms"]}
    ours = arms["ours"]
    where = f"knowledge-gated world, {SEEDS} seeds, {SESSIONS} sessions"
    # The first lines of the report are its title and its picture.
    details = [line for line in report[2:] if not line.startswith("![")]
    return [
        Row(
            "learning-reach",
            f"{where}: learnable facts that reach the point of use",
            "≥ 97 %",
            _interval(ours["reached"]),
            _others(arms, lambda arm: _interval(arm["reached"])),
            ours["reached"]["estimate"] >= 0.97,
            _COMMAND,
            details=[line.replace("## ", "### ") for line in details],
        ),
        Row(
            "learning-harm",
            f"{where}: tasks lost in the end relative to no memory",
            "≤ 1 %",
            _interval(ours["harm_end"]),
            _others(arms, lambda arm: _interval(arm["harm_end"]) if arm["harm_end"] else "-"),
            ours["harm_end"]["estimate"] <= 0.01,
            _COMMAND,
        ),
        Row(
            "learning-first",
            f"{where}: tasks right at the first try, the learning phase included",
            "above off",
            _interval(ours["first_try"]),
            _others(arms, lambda arm: _interval(arm["first_try"])),
            ours["gain"]["low"] > 0,
            _COMMAND,
            bars={
                name.replace("ours", "Whet"): 100 * arm["first_try"]["estimate"] for name, arm in arms.items()
            },
            unit="% of tasks",
        ),
        Row(
            "learning-last-third",
            f"{where}: tasks of the last third right at the first try; {ours['knowable'][-1]:.0%} of them "
            "need only what had been shown before",
            "≥ 60 %",
            f"{ours['stages'][-1]:.1%}",
            _others(arms, lambda arm: f"{arm['stages'][-1]:.1%}"),
            ours["stages"][-1] >= 0.6,
            _COMMAND,
        ),
        Row(
            "learning-cost",
            f"{where}: reviews' share of the cost",
            "≤ 8 %",
            f"{ours['review_cost_share']:.1%}",
            "none measured",
            ours["review_cost_share"] <= 0.08,
            _COMMAND,
        ),
        Row(
            "learning-leaks",
            f"{where}: requests with another person's or a private session's facts; poisoned sessions; "
            "invented facts kept",
            "0; 0; 0",
            f"{ours['leaks']}; {ours['poisoned']}; {ours['false_kept']} (of {ours['requests']} requests, "
            f"{ours['planted']} plantings)",
            _others(arms, lambda arm: f"{arm['leaks']}; {arm['poisoned']}; {arm['false_kept']}"),
            not (ours["leaks"] or ours["poisoned"] or ours["false_kept"]),
            _COMMAND,
        ),
    ]


def run_long(runs: int, full: bool) -> list[Row]:
    """Worlds of many sessions: what a task takes, beside the whole conversation and no memory."""
    return [
        _compare(
            "learning-long",
            f"knowledge-gated world of short outputs, {_LONG_SEEDS} seeds, {_LONG} sessions",
            ["--seeds", str(_LONG_SEEDS), "--sessions", str(_LONG)],
        )
    ]


def run_project(runs: int, full: bool) -> list[Row]:
    """The same tasks with outputs of the size of daily work: four real commands before each."""
    return [
        _compare(
            "learning-project",
            "the same world with four real commands before each task (git, sed, grep, ls, doctest, compile "
            f"in a repository of Python's own modules), {_PROJECT_SEEDS} seeds, {_PROJECT} sessions",
            ["--project", "--seeds", str(_PROJECT_SEEDS), "--sessions", str(_PROJECT)],
        )
    ]


def _compare(name: str, where: str, arguments: list[str]) -> Row:
    """Return a row on first tries and tokens beside the whole conversation's."""
    report, _ = _evaluate(*arguments, "--arms", _LONG_ARMS)
    arms: dict[str, Any] = {arm["arm"]: arm for arm in report["arms"]}
    ours, whole = arms["ours"], arms["conversation"]

    def show(arm: dict[str, Any]) -> str:
        shares = "; ".join(
            f"{tokens:,.0f} ({tokens / whole['tokens_by_length'][length]:.0%}) over {length}"
            for length, tokens in arm["tokens_by_length"].items()
        )
        return f"{_interval(arm['first_try'])}, last third {arm['stages'][-1]:.0%}; {shares}"

    off = arms["off"]["tokens_per_task"] / whole["tokens_per_task"]
    return Row(
        name,
        f"{where}: right at the first try; tokens a task over the first sessions (share of the whole "
        "conversation's)",
        "≥ the conversation; ≤ 10 % at the end",
        show(ours),
        _others(arms, show),
        ours["first_try"]["estimate"] >= whole["first_try"]["estimate"]
        and ours["tokens_per_task"] <= 0.1 * whole["tokens_per_task"],
        f"python -m benchmarks {name}",
        details=[
            f"without any memory a task takes {off:.0%} of the whole conversation's: prompt and tools are"
            " sent with every request, and no memory takes less"
        ],
    )


def _evaluate(*arguments: str) -> tuple[dict[str, Any], list[str]]:
    """Run `whet eval learning` with these arguments; give its object and the lines of its report."""
    with tempfile.TemporaryDirectory(prefix="whet-bench-learning-") as place:
        name = hashlib.sha256(" ".join(arguments).encode()).hexdigest()[:6]
        out = Path(tempfile.gettempdir()) / f"whet-bench-learning-{_source()}-{name}"
        done = subprocess.run(
            [sys.executable, "-m", "whet", "eval", "learning", "--json", "--out", str(out), *arguments],
            cwd=ROOT,
            env=clean_environment(WHET_HOME=str(Path(place) / "home")),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return json.loads(done.stdout), (out / "report.md").read_text("utf-8").splitlines()


def _source() -> str:
    """Give a digest of the program: outcomes of two versions are not to be mixed."""
    found = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _interval(found: dict[str, float]) -> str:
    return f"{found['estimate']:.1%} [{found['low']:.1%}, {found['high']:.1%}]"


def _others(arms: dict[str, Any], show: Callable[[dict[str, Any]], str]) -> str:
    return "; ".join(f"{name} {show(arm)}" for name, arm in arms.items() if name != "ours")
