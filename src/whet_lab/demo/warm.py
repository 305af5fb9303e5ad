"""The demo's chapter on warm sessions: thirty sessions of a practice user, a build, a task cold and warm.

Every session is a real run of the agent against the practice server; every claim is counted from the
database. The practice model answers from its request alone.
"""

from __future__ import annotations

import time

import msgspec

from whet.cli import stored
from whet.cli.main import run_on_loop
from whet.cli.warm import interval
from whet.clock import SystemClock
from whet.config.load import load
from whet.config.schema import Settings
from whet.contract.messages import Usage
from whet.stats import Interval, wilson
from whet.store import sessions
from whet_lab.demo.run import DemoRun
from whet_lab.evals.warm_trials import Trial, WarmTrialSetup, compare
from whet_lab.evals.warm_world import NAME, Depot, build_templates, create_history, write_depot
from whet_lab.practice.depot import build_question

_SEED = 4
_SESSIONS = 30
_PAIRS = 8
_TASK = build_question({"count": 31, "price": 32, "lost": 33})


def run_chapter(run: DemoRun) -> None:
    """Run the chapter."""
    stage = run.stage
    stage.title("whet demo: warm sessions")
    stage.say(
        "The model is the practice model, a scripted stand-in: it knows what its request shows, and else "
        "looks where a newcomer would. Sessions, tools, files, database and the mining are real."
    )
    depot = write_depot(run.world.folder, _SEED)
    depot = msgspec.structs.replace(depot, home=run.world.home)
    run.world.project = depot.path
    settings = load(run.world.home, {}, environ={}).settings
    _run_sessions(run, depot, settings)
    _build_template(run)
    _compare(run, depot, settings)


def _run_sessions(run: DemoRun, depot: Depot, settings: Settings) -> None:
    run.stage.title("1  Thirty sessions of work")
    run.stage.say(
        f"A depot keeps its records where nobody would look first. A practice user asks for them in "
        f"{_SESSIONS} sessions of three turns; half of the sessions need records. This takes a few seconds."
    )
    began_s = time.monotonic()
    run_on_loop(create_history(depot, settings, _SESSIONS))
    total = stored.read(run.world.home, sessions.read_stats)
    run.measured |= {
        "sessions": total.sessions,
        "calls": total.tool_calls,
        "failed_calls": total.failed_calls,
    }
    run.check("thirty_sessions", total.sessions == _SESSIONS, str(total.sessions))
    run.check("calls_failed", total.failed_calls > 0, str(total.failed_calls))
    run.conclude(
        f"{total.sessions} sessions, {total.tool_calls} tool calls, {total.failed_calls} of them failed, "
        f"in {time.monotonic() - began_s:.0f} s. Each failure was followed by a search and the right call: "
        "that is what can be learned."
    )


def _build_template(run: DemoRun) -> None:
    stage = run.stage
    stage.title("2  Mining them")
    for command in (["warm", "build", NAME], ["warm", "show", NAME, "--why"]):
        stage.command("whet " + " ".join(command))
        process = run.world.whet(command)
        text, complaint = process.communicate(timeout=120)
        stage.block(text.rstrip())
        run.check(f"{command[1]}_works", process.returncode == 0, complaint.strip()[:200])
    run.conclude(
        "The template holds the calls that mended a failure, with a line on what had failed before; of "
        "results only the outline. Nothing that wrote, needed a yes, failed or was private is in it."
    )


def _compare(run: DemoRun, depot: Depot, settings: Settings) -> None:
    stage = run.stage
    stage.title("3  The same new task, cold and warm")
    cold = run.chat(["-q", _TASK, "--warm", "off"])
    warm = run.chat(["-q", _TASK, "--warm", NAME])
    failed = [sum(not call.ok for call in turn.calls) for turn in (cold, warm)]
    run.check("cold_errs", failed[0] > 0, str(failed[0]))
    run.check("warm_errs_less", failed[1] < failed[0], f"{failed[1]} against {failed[0]}")
    stage.say(f"One task proves little. {_PAIRS} more, each cold, warm, and with a placebo of the same size:")
    trials = run_on_loop(_run_trials(run, depot, settings))
    rows: list[tuple[str, str]] = []
    for arm in ("cold", "warm", "placebo"):
        arm_trials = [trial for trial in trials if trial.arm == arm]
        counts = sum(trial.failed for trial in arm_trials), sum(trial.calls for trial in arm_trials)
        tokens = sum((trial.usage for trial in arm_trials), Usage()).prompt_tokens
        text = f"{counts[0]} of {counts[1]} calls failed, {_rate_text(wilson(*counts))}; {tokens:,} tokens"
        rows.append((arm, text))
        run.measured[f"{arm}_errors"] = list(counts)
    stage.table(rows)
    for other in ("cold", "placebo"):
        comparison = compare(trials, other)
        run.measured[f"against_{other}"] = comparison
        run.check(
            f"fewer_errors_than_{other}", comparison.fewer_errors.low > 0, interval(comparison.fewer_errors)
        )
    gap = compare(trials, "cold").fewer_errors
    run.conclude(
        f"Warm, {interval(gap)} points fewer of the first calls fail than cold: the range in brackets is "
        "where the true difference lies with 95 % confidence, and it does not reach zero. In use, Whet holds "
        "one in ten warm starts back and shows the same figure for your model in `whet warm list`."
    )


async def _run_trials(run: DemoRun, depot: Depot, settings: Settings) -> list[Trial]:
    bench = WarmTrialSetup(
        run.world.folder / "trials", settings, {}, build_templates(depot, SystemClock().now())
    )
    trials: list[Trial] = []
    for number in range(1, _PAIRS + 1):
        text = build_question({"count": 20 + number, "price": 10 + number, "lost": 40 + number})
        for arm in ("cold", "warm", "placebo"):
            trials.append(await bench.run_prompt(f"task{number}", text, arm, 1, depot.path))
    return trials


def _rate_text(rate: Interval) -> str:
    return f"{rate.estimate:.0%} ({rate.low:.0%} to {rate.high:.0%})"
