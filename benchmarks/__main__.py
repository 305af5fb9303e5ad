"""Run the benchmarks: `python -m benchmarks [ROW ...] [--runs N] [--full]`; writes RESULTS.md and a chart.

Figures are kept as each benchmark ends, so that a run which is stopped loses only the one under way.
A benchmark that does not run the shipped settings, and does not say so in `declared.DIFFERS`, is refused.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from benchmarks import (
    api,
    approval,
    chat,
    clients,
    confirm,
    conformance,
    context,
    context_host,
    done,
    felt,
    gateway,
    growth,
    harm,
    instructions,
    keys,
    keystrokes,
    learning,
    learning_gate,
    linked,
    listing,
    mcp,
    moving,
    outcomes,
    overhead,
    page,
    paint,
    plugins,
    programs,
    prompt,
    questions,
    queues,
    reading_path,
    review,
    rewind,
    sandbox,
    search,
    serve_memory,
    shell,
    startup,
    steps,
    store,
    streaming,
    team,
    waiting,
    warm,
    warm_planted,
)
from benchmarks.declared import COMMANDS, DIFFERS
from benchmarks.measure import machine
from benchmarks.provenance import benchmark_of, current_commit, is_changed_since, measured_paths
from benchmarks.shipped import SettingsDiffer, check
from benchmarks.table import PAGE, Row, Stored, format_page, read_stored, save, write_pages

Benchmark = Callable[[int, bool], list[Row]]
BENCHMARKS: dict[str, Benchmark] = {
    "startup": startup.run,
    "chat": chat.run,
    "reading-path": reading_path.run,
    "prompt": prompt.run,
    "overhead": overhead.run,
    "streaming": streaming.run,
    "instructions": instructions.run,
    "programs": programs.run,
    "page": page.run,
    "paint": paint.run,
    "keystrokes": keystrokes.run,
    "steps": steps.run,
    "felt": felt.run,
    "growth": growth.run,
    "shell": shell.run,
    "store": store.run,
    "search": search.run,
    "session-list": listing.run,
    "team": team.run,
    "queues": queues.run,
    "waiting": waiting.run,
    "size": startup.run_size,
    "context": context.run,
    "confirm": confirm.run,
    "outcomes": outcomes.run,
    "harm": harm.run,
    "goals": done.run_goals,
    "wallet": done.run_wallet,
    "forecast": done.run_forecast,
    "helpers": done.run_helpers,
    "warm": warm.run,
    "warm-mining": warm.run_mining,
    "warm-planted": warm_planted.run,
    "warm-world": warm.run_world,
    "context-host": context_host.run,
    "learning": learning.run,
    "learning-long": learning.run_long,
    "learning-project": learning.run_project,
    "gate": learning_gate.run,
    "learning-gate": learning_gate.run_pointed,
    "learning-generated": learning_gate.run_generated,
    "review": review.run,
    "review-kills": review.run_kills,
    "questions": questions.run,
    "sandbox": sandbox.run,
    "rewind": rewind.run,
    "linked": linked.run,
    "moving": moving.run,
    "approval": approval.run,
    "api": api.run,
    "clients": clients.run,
    "serve-memory": serve_memory.run,
    "mcp": mcp.run,
    "mcp-conformance": conformance.run,
    "plugins": plugins.run,
    "gateway": gateway.run,
    "gateway-kills": gateway.run_kills,
    "keys": keys.run,
}


def main() -> int | str:
    """Run the named benchmarks, or all; return 1 where a goal is missed, or what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each command")
    parser.add_argument("--full", action="store_true", help="peers at 1,000 steps too (minutes of CPU)")
    parser.add_argument("--page", action="store_true", help="only write RESULTS.md again; measure nothing")
    parser.add_argument("--check", action="store_true", help="exit 1 if --page would change RESULTS.md")
    options = parser.parse_args()
    if options.check:
        is_current = format_page(read_stored(), is_old) == PAGE.read_text("utf-8")
        return 0 if is_current else "RESULTS.md is not current; run: python -m benchmarks --page"
    if options.page:
        write_pages(read_stored(), is_old)
        return 0
    unknown = set(options.rows) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    try:
        for name in options.rows or BENCHMARKS:
            check_settings(name)
    except SettingsDiffer as error:
        parser.error(str(error))
    benchmarks = {name: BENCHMARKS[name] for name in options.rows or BENCHMARKS}
    source = (machine(), datetime.now(UTC).strftime("%Y-%m-%d"), current_commit())
    try:
        bad = run_all(benchmarks, options.runs, options.full, lambda rows: save(rows, _differs, *source))
    finally:
        write_pages(read_stored(), is_old)
    return 1 if bad else 0


def run_all(
    benchmarks: Mapping[str, Benchmark], runs: int, full: bool, keep: Callable[[list[Row]], object]
) -> list[str]:
    """Run the benchmarks, and keep the rows of each as soon as it ends; return the names of those that missed
    a goal or failed. A failed one doesn't stop the others."""
    bad: dict[str, str] = {}
    began_s = time.perf_counter()
    for number, (name, run) in enumerate(benchmarks.items(), 1):
        row_began_s = time.perf_counter()
        print(f"{name} ({number} of {len(benchmarks)}) ...", file=sys.stderr, flush=True)
        try:
            rows = run(runs, full)
            keep(rows)
        except Exception:  # noqa: BLE001 the others still run
            traceback.print_exc()
            bad[name] = "failed"
            continue
        for row in rows:
            met = {True: "ok  ", False: "MISS", None: "look"}[row.met]
            print(f"{met} {row.measure}: {row.whet} (goal {row.goal}; peers {row.peers})", flush=True)
        if any(row.met is False for row in rows):
            bad[name] = "missed"
        print(f"{name} took {time.perf_counter() - row_began_s:.0f} s", file=sys.stderr, flush=True)
    print(f"all took {(time.perf_counter() - began_s) / 60:.0f} min", file=sys.stderr)
    for name, how in bad.items():
        print(f"{how}: {name}", file=sys.stderr)
    return list(bad)


def _differs(row: Row) -> str:
    return DIFFERS.get(benchmark_of(row.command), "")


def check_settings(name: str) -> None:
    """Raise SettingsDiffer if a benchmark changes a setting that its declaration does not name."""
    check(name, (BENCHMARKS[name].__module__, *COMMANDS.get(name, ())), DIFFERS.get(name, ""))


def is_old(stored: Stored) -> bool:
    """Tell whether the code that a row measures has changed since, or cannot be compared."""
    name = benchmark_of(stored.row.command)
    run = BENCHMARKS.get(name)
    return not run or is_changed_since(stored.commit, measured_paths(name, run))


if __name__ == "__main__":
    sys.exit(main())
