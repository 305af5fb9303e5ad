"""What confinement costs a command, and whether anything gets out of it: each engine, in one run."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from pathlib import Path

from tests.sandbox.attempts import attempts
from tests.sandbox.world import World

from benchmarks.measure import median
from benchmarks.table import Row
from whet.sandbox.engine import candidates, find_problem
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.status import Engine
from whet.sandbox.system_folders import default_policy

_COMMANDS = 200
_GOALS_MS = {"bubblewrap": 8.0, "landlock": 2.0}


def run(runs: int, full: bool) -> list[Row]:
    """CPU that a confined `true` costs more than a plain one, and every attempt to get out."""
    engines = [
        (name, engine) for name, engine, problem in candidates() if not (problem or find_problem(engine))
    ]
    bare: list[float] = []
    found = {name: list[tuple[float, float]]() for name, _ in engines}
    for _ in range(max(3, runs)):  # in turns, so that what else the machine does meets all of them
        bare.append(_plain())
        for name, engine in engines:
            found[name].append(_confined(engine))
    rows: list[Row] = []
    for name, engine in engines:
        costs, starts = [cost for cost, _ in found[name]], [start for _, start in found[name]]
        added = median(costs) - median(bare)
        goal = _GOALS_MS[engine.name]
        rows.append(
            Row(
                f"sandbox-{name.replace(' ', '-').lower()}",
                f"CPU that {name} adds to a command",
                f"≤ {goal:g} ms",
                f"{added:+.2f} ms ({median(costs):.2f} ms, {median(costs) / median(bare):.1f} x;"
                f" started once a session: {median(starts):.0f} ms)",
                f"unconfined {median(bare):.2f} ms",
                added <= goal,
                "python -m benchmarks sandbox",
            )
        )
    rows.append(_escapes(engines))
    return rows


def _escapes(engines: list[tuple[str, Engine]]) -> Row:
    every = attempts()
    groups = len({one.group for one in every})
    out: dict[str, list[str]] = {}
    for name, engine in engines:
        with tempfile.TemporaryDirectory() as folder, World(Path(folder) / "world") as world:
            out[name] = world.attack(engine, every)
    return Row(
        "sandbox-escapes",
        "ways out of the sandbox that worked",
        "0 of at least 200 in 15 classes, every engine",
        "; ".join(f"{name} {len(found)}" for name, found in out.items())
        + f" of {len(every)} in {groups} classes",
        "-",
        not any(out.values()),
        "python -m benchmarks sandbox",
        details=[f"- {name}: {line}" for name, found in out.items() for line in found],
    )


def _spent(root: int = 0) -> float:
    """Give the CPU seconds of this process and of what it waited for, and of the living ones below `root`."""
    ours, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ours.ru_utime + ours.ru_stime + theirs.ru_utime + theirs.ru_stime
    return total + (_tree_s(root) if root else 0.0)


def _tree_s(root: int) -> float:
    """Add up a process and all below it: what bubblewrap's own parts do not wait for is counted too."""
    facts: dict[int, tuple[int, float]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks = sum(map(int, fields[11:15]))
            facts[int(name)] = (int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))
    below = {root}
    while more := {pid for pid, (parent, _) in facts.items() if parent in below} - below:
        below |= more
    return sum(facts[pid][1] for pid in below if pid in facts)


def _plain() -> float:
    before = _spent()
    for _ in range(_COMMANDS):
        subprocess.run(["/bin/true"], stdin=subprocess.DEVNULL, check=True, start_new_session=True)
    return (_spent() - before) * 1000 / _COMMANDS


def _confined(engine: Engine) -> tuple[float, float]:
    """Give CPU milliseconds per command, and of a jail's start; in a fresh repository, where most work is."""
    with tempfile.TemporaryDirectory() as folder:
        place, scratch = Path(folder).resolve(), Scratch()
        subprocess.run(["git", "init", "-q", str(place)], check=True)
        jail = Jail(JailPlan(engine, default_policy(place, place / "whet", os.environ), scratch, Path.home()))
        null = os.open(os.devnull, os.O_RDWR)
        try:
            before = _spent()
            jail.open()
            launcher = jail.launcher_pid
            started = _spent(launcher)
            inside = jail.environment(os.environ)
            for _ in range(_COMMANDS):
                jail.spawn(JailedCommand(["/bin/true"], inside, place), (null, null, null)).wait()
            return (_spent(launcher) - started) * 1000 / _COMMANDS, (started - before) * 1000
        finally:
            os.close(null)
            jail.close()
            scratch.close()
