"""`whet eval learning --tasks FILE`: the person's own tasks on the person's own model."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from whet.cli.launch import ChatOptions, load_settings
from whet.cli.main import run_on_loop
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import NotFound
from whet.stats import Interval
from whet.terminal.output import Column, ProgressLine, emit_json, table
from whet.terminal.wording import clip, printable
from whet_lab.evals import own_report
from whet_lab.evals.own_report import ArmResult, ItemUplift
from whet_lab.evals.own_run import ARMS, Label, OwnTaskSetup, TaskOutcome
from whet_lab.evals.own_tasks import read_tasks

_MAX_ITEMS = 20


class OwnOptions(msgspec.Struct, frozen=True):
    """The options of an evaluation on own tasks."""

    tasks: Path
    out: Path | None
    repeats: int = 3
    arms: tuple[str, ...] = ARMS
    leave_one_out: bool = False
    fresh: bool = False
    as_json: bool = False


def run(home: Home, options: OwnOptions) -> None:
    """Run the missing trials, write the report, show it."""
    unknown = [arm for arm in options.arms if arm not in ARMS]
    if unknown:
        raise NotFound(f"there is no arm {unknown[0]!r}", hint=f"for own tasks: {', '.join(ARMS)}")
    settings = load_settings(ChatOptions(home), None)
    tasks = read_tasks(options.tasks)
    folder = (options.out or home.root / "evals" / f"tasks-{options.tasks.stem}").absolute()
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    bench = OwnTaskSetup(
        tasks, options.tasks.absolute().parent, folder, settings, load_secrets(home, os.environ)
    )
    uplifts = run_on_loop(_run_all(bench, options))
    outcomes = [row for row in bench.read_outcomes() if row.arm in options.arms]
    outcomes.sort(key=lambda row: (ARMS.index(row.arm), row.repeat))
    arms = own_report.summarise_arms(outcomes)
    model = f"{settings.model.model or 'default'} ({settings.model.provider or settings.model.base_url})"
    (folder / "report.md").write_text(own_report.format_report(arms, outcomes, uplifts, model), "utf-8")
    facts = {
        "folder": str(folder),
        "model": model,
        "arms": [{**msgspec.to_builtins(row), "finding": row.finding} for row in arms],
        "items": [{**msgspec.to_builtins(row), "finding": row.finding} for row in uplifts],
        "outcomes": outcomes,
    }
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1))
    if options.as_json:
        return emit_json(facts)
    _show(arms, uplifts, folder)


async def _run_all(bench: OwnTaskSetup, options: OwnOptions) -> list[ItemUplift]:
    progress = ProgressLine("tasks", SystemClock())
    total = len(bench.tasks) * len(options.arms) * options.repeats

    def show_progress(label: str) -> None:
        progress.update(f"{len(bench.read_outcomes())} of {total}, {clip(label, 40)}")

    try:
        for repeat in range(1, options.repeats + 1):
            for arm in options.arms:
                await bench.run(arm, repeat, show_progress)
        if options.leave_one_out and "all" in options.arms:
            return await _leave_out(bench, options.repeats, show_progress)
        return []
    except (KeyboardInterrupt, asyncio.CancelledError):
        progress.finish()
        click.echo("stopped; the same command goes on where it is", err=True)
        raise
    finally:
        progress.finish()


async def _leave_out(
    bench: OwnTaskSetup, repeats: int, show_progress: Callable[[str], None]
) -> list[ItemUplift]:
    """Run all tasks with the items that the last run of `all` learned, then without each item in turn."""
    learned = bench.home("all", repeats)
    items = (await bench.list_items(learned))[:_MAX_ITEMS]
    base = await _run_without_learning(bench, learned, "everything", repeats, show_progress)
    uplifts: list[ItemUplift] = []
    for item in items:
        name = f"without-{item.kind}-{item.name}"
        copy = bench.home(name, 0)
        await bench.copy_home_without(item, learned, copy)
        lacking = await _run_without_learning(bench, copy, name, repeats, show_progress)
        uplifts.append(own_report.measure_uplift(item, base, lacking))
    return uplifts


async def _run_without_learning(
    bench: OwnTaskSetup, home: Home, name: str, repeats: int, show_progress: Callable[[str], None]
) -> list[TaskOutcome]:
    runs = [
        await bench.run_on(home, Label(name, "all", repeat, learns=False), show_progress)
        for repeat in range(1, repeats + 1)
    ]
    return [outcome for outcomes in runs for outcome in outcomes]


def _show(arms: list[ArmResult], uplifts: list[ItemUplift], folder: Path) -> None:
    columns: list[Column[ArmResult]] = [
        Column("arm", lambda row: row.arm),
        Column("success", lambda row: f"{row.succeeded} of {row.tasks}", right=True),
        Column("gain over off", lambda row: _gap(row.gain), rank=1),
        Column("p", lambda row: "-" if row.p_value is None else f"{row.p_value:.3f}", right=True, rank=4),
        Column("finding", lambda row: row.finding),
        Column("tokens a task", lambda row: f"{row.tokens_per_task:,.0f}", right=True, rank=2),
        Column("cost a success", _success_cost, right=True, rank=3),
        Column("leaks", lambda row: str(row.leaks), right=True, rank=5),
    ]
    click.echo(table(arms, columns))
    for row in uplifts:
        click.echo(f"{row.finding:<12} {_gap(row.gain):<20} {printable(row.item.label or row.item.name)}")
    click.echo(f"\nreport: {folder / 'report.md'}")


def _gap(gap: Interval | None) -> str:
    return "-" if gap is None else gap.format("+.0%")


def _success_cost(result: ArmResult) -> str:
    return "-" if result.cost_per_success is None else f"{result.cost_per_success:,.0f}"
