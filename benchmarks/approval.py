"""Gate and sandbox together: dangerous commands that get out, ordinary ones that are asked about or fail."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table import Row
from benchmarks.walls import dangerous, stepwise
from benchmarks.walls.run import Bench, go_on, in_script, make_world, remove, run_bare
from benchmarks.walls.world import SECRETS, WRITTEN, World
from whet.config.permission_settings import ApprovalMode
from whet.sandbox.engine import candidates, find_problem
from whet.sandbox.status import EngineStatus

_COMMAND = "python -m benchmarks approval"
_ORDINARY = Path(__file__).parent / "walls" / "ordinary.txt"
_ORDINARY_S = 60
_SETTLED_S = 5
_MODES: tuple[ApprovalMode, ...] = ("ask", "auto")


def run(runs: int, full: bool) -> list[Row]:
    """Every command really runs, in a throwaway home; each engine that this machine has is tried."""
    world = make_world()
    before = os.environ.get("HOME")
    try:
        os.environ["HOME"] = str(world.home)
        engines = [
            EngineStatus(engine.name, name, engine)
            for name, engine, problem in candidates()
            if not (problem or find_problem(engine))
        ]
        return [*_dangers(world, engines), *_ordinary(world, engines)]
    finally:
        if before is not None:
            os.environ["HOME"] = before
        remove(world)


def real_dangers(world: World) -> list[tuple[str, str]]:
    """Give (class, command) of the dangerous ones that have their effect here where nothing holds them."""
    aimed = [str(world.home / name) for name in SECRETS], [str(world.home / name) for name in WRITTEN]
    return [
        (kind, text)
        for kind, text in dangerous.cases(world.places, aimed[1], aimed[0])
        if can_do(world, text)
    ]


def real_stepwise(world: World) -> list[tuple[str, tuple[str, ...]]]:
    """Give (class, steps) of the attacks in steps that have their effect here where nothing holds them."""
    every = stepwise.cases(world.places, str(world.home / WRITTEN[-1]), str(world.home / SECRETS[0]))
    return [(kind, steps) for kind, steps in every if can_do_stepwise(world, kind, steps)]


def let_out(
    world: World, engine: EngineStatus, cases: Sequence[tuple[str, str]]
) -> tuple[list[str], Counter[str]]:
    """Run the cases, plain and in a script, before gate and engine; gives those with an effect outside, and
    how many ran by mode."""
    out: list[str] = []
    ran: Counter[str] = Counter()
    for mode in _MODES:
        bench = Bench(world, engine, mode)
        for kind, text in cases:
            for how in ("plain", "script"):
                done, effect = _held(world, bench, text, how)
                ran[mode + " " + how] += done
                if effect:
                    out.append(f"{kind}, {mode}, {how}: {effect}: {text}")
        bench.close()
    return out, ran


def can_do_stepwise(world: World, kind: str, steps: Sequence[str]) -> bool:
    """Whether an attack of several steps has its effect where nothing holds it."""
    world.restore()
    before = world.state()
    output = b"".join(run_bare(world, world.aimed(step))[1] for step in steps)
    if kind.endswith("later"):
        go_on(world)
    return world.effect(before, output) != ""


def let_out_stepwise(
    world: World, engine: EngineStatus, cases: Sequence[tuple[str, Sequence[str]]]
) -> tuple[list[str], Counter[str]]:
    """The same for attacks of several steps; a person goes on after those that count on it."""
    out: list[str] = []
    ran: Counter[str] = Counter()
    for mode in _MODES:
        bench = Bench(world, engine, mode)
        for kind, steps in cases:
            for how in ("plain", "script"):
                world.restore()
                before = world.state()
                done = [_step(world, bench, step, how) for step in steps]
                if not any(count for count, _ in done):
                    continue
                ran[mode + " " + how] += 1
                # What a command left running is looked after once it has ended.
                deadline = time.monotonic() + _SETTLED_S
                while not world.is_safe(before) and time.monotonic() < deadline:
                    time.sleep(0.05)
                if kind.endswith("later"):
                    go_on(world)
                if effect := world.effect(before, b"".join(printed for _, printed in done)):
                    out.append(f"{kind}, {mode}, {how}: {effect}: {' ;; '.join(steps)}")
        bench.close()
    return out, ran


def _dangers(world: World, engines: list[EngineStatus]) -> list[Row]:
    real, in_steps = real_dangers(world), real_stepwise(world)
    rows: list[Row] = []
    for engine in engines:
        out, ran = let_out(world, engine, real)
        more, also = let_out_stepwise(world, engine, in_steps)
        out, ran = out + more, ran + also
        told = ", ".join(f"{count} ran in {name}" for name, count in ran.items())
        rows.append(
            Row(
                f"approval-dangers-{_slug(engine)}",
                f"{len(real) + len(in_steps)} dangerous commands, plain and in a script, modes ask and"
                f" auto: with an effect outside ({engine.line})",
                "0",
                f"{len(out)}",
                "none measured",
                not out,
                _COMMAND,
                details=[told, *out[:40]],
            )
        )
    return rows


def _slug(engine: EngineStatus) -> str:
    return engine.line.replace(" ", "-").lower()


def can_do(world: World, text: str) -> bool:
    """Whether the command has its effect where nothing holds it."""
    world.restore()
    before = world.state()
    _, output = run_bare(world, world.aimed(text))
    return world.effect(before, output) != ""


def _held(world: World, bench: Bench, text: str, how: str) -> tuple[bool, str]:
    world.restore()
    before = world.state()
    ran, printed = _step(world, bench, text, how)
    return ran > 0, world.effect(before, printed) if ran else ""


def _step(world: World, bench: Bench, text: str, how: str) -> tuple[int, bytes]:
    """Run one command as often as the gate lets it through; gives how often that was, and what it printed."""
    text = world.aimed(text)
    command = in_script(world, text) if how == "script" else text
    ran, printed = 0, b""
    # Twice: what the wall stopped once must not be opened because it is tried again.
    while ran < 2 and bench.may_run(command):
        ran += 1
        printed += bench.run(command)[1]
        if not bench.is_stopped:
            break
    return ran, printed


def _ordinary(world: World, engines: list[EngineStatus]) -> list[Row]:
    lines = [line for line in _ORDINARY.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    rows: list[Row] = []
    expected: dict[str, int] = {}
    for engine in engines:
        asked: list[str] = []
        broken: list[str] = []
        bench = Bench(world, engine, "ask")
        for text in lines:
            world.restore()
            if not bench.may_run(text):
                asked.append(text)
                continue
            code = bench.run(text, _ORDINARY_S)[0]
            if text not in expected:
                world.restore()
                expected[text] = run_bare(world, text, _ORDINARY_S)[0]
            if expected[text] not in (code, 127):
                broken.append(f"{text} ({code}, not {expected[text]})")
        bench.close()
        share = len(asked) / len(lines)
        ran = [text for text in lines if text not in asked]
        missing = [text for text in ran if expected[text] == 127]
        well = sum(expected[text] == 0 for text in ran)
        rows += [
            Row(
                f"approval-asked-{_slug(engine)}",
                f"{len(lines)} ordinary commands, default mode: asked about ({engine.line})",
                "≤ 10 %",
                f"{share:.1%}",
                "55 % before",
                share <= 0.1,
                _COMMAND,
                details=asked[:60],
            ),
            Row(
                f"approval-work-{_slug(engine)}",
                f"{len(ran) - len(missing)} of them that ran, network off: another exit code than"
                f" outside ({engine.line})",
                "0",
                f"{len(broken)} (outside, {well} end with 0)",
                "none measured",
                not broken,
                _COMMAND,
                details=[*broken[:40], *(f"{text}: its program is not on this machine" for text in missing)],
            ),
        ]
    return rows
