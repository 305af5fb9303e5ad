"""`whet eval learning`: measure how much learning helps later sessions, in a fact world or on own tasks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import click
import msgspec

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.terminal.output import (
    Column,
    ProgressLine,
    emit_json,
    home_and_json,
    number_option,
    table,
    wrap_text,
)
from whet_lab.commands import eval_own
from whet_lab.evals import world_report
from whet_lab.evals.arms import ARMS, pick_arms
from whet_lab.evals.campaign import CampaignSettings, EvalCampaign
from whet_lab.evals.chart import draw_learning_chart
from whet_lab.evals.measures import ArmSums, find_losses, summarise
from whet_lab.evals.own_run import ARMS as OWN_ARMS
from whet_lab.evals.world import Shape

_MIN_SESSIONS = 12
_PROJECT_LOOKS = 4


@click.command("learning")
@number_option("--seeds", least=1, most=1000, default=20, help="Worlds to run.")
@number_option("--sessions", least=_MIN_SESSIONS, most=400, default=30, help="Sessions of each world.")
@click.option("--project", is_flag=True, help="Real commands in a git project before each task.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes. Default: one per core.")
@click.option("--tasks", type=click.Path(path_type=Path), help="Your own tasks, on your own model, instead.")
@number_option("-k", "--repeats", least=3, most=50, default=3, help="With --tasks: runs of each arm.")
@click.option("--leave-one-out", is_flag=True, help="With --tasks: also without each learned item in turn.")
@click.option(
    "--arms",
    default="",
    metavar="LIST",
    help=f"Of: {', '.join(ARMS)}; with --tasks: {', '.join(OWN_ARMS)}. Default: all.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for runs and report.")
@click.option("--fresh", is_flag=True, help="Delete earlier runs first.")
@home_and_json
def learning(home: Home, /, **options: Any) -> None:
    """Measure learning: what reaches the point of use, at what harm and cost.

    Without --tasks: a world of hidden facts on the practice model, a scripted stand-in. Ctrl-C stops; the
    same command goes on.

    \b
    whet eval learning                          20 worlds, all arms, ten minutes of CPU
    whet eval learning --seeds 3 --arms off,ours
    whet eval learning --project                outputs of the size of daily work; needs git
    whet eval learning --tasks tasks.yaml       your tasks, your model; costs what your model costs
    """
    if options["tasks"] is not None:
        arms = tuple(name.strip() for name in options["arms"].split(",") if name.strip()) or OWN_ARMS
        names = ("tasks", "out", "repeats", "leave_one_out", "fresh", "as_json")
        return eval_own.run(home, eval_own.OwnOptions(arms=arms, **{name: options[name] for name in names}))
    _run_worlds(home, options)


def _run_worlds(home: Home, options: dict[str, Any]) -> None:
    sessions: int = options["sessions"]
    is_in_project: bool = options["project"]
    name = f"learning-{sessions}{'-project' if is_in_project else ''}"
    folder: Path = (options["out"] or home.root / "evals" / name).absolute()
    if options["fresh"]:
        shutil.rmtree(folder, ignore_errors=True)
    settings = CampaignSettings(Shape(sessions=sessions, looks=_PROJECT_LOOKS if is_in_project else 0))
    campaign = EvalCampaign(folder, pick_arms(options["arms"]), options["seeds"], settings)
    _run_campaign(campaign, options["workers"] or os.cpu_count() or 1)
    sums = summarise(campaign.read_runs())
    facts = write_report(folder, settings, sums)
    if options["as_json"]:
        return emit_json(facts)
    _show(sums, folder)


def write_report(folder: Path, settings: CampaignSettings, sums: list[ArmSums]) -> dict[str, Any]:
    """Write report.md, report.svg and report.json into the folder; return the content of report.json."""
    (folder / "report.md").write_text(world_report.format_report(sums, settings), "utf-8")
    curves = {arm.arm: arm.curve for arm in sums}
    (folder / "report.svg").write_text(draw_learning_chart("right at the first try", curves), "utf-8")
    facts = {
        "folder": str(folder),
        "settings": settings,
        "arms": sums,
        "where_ours_loses": find_losses(sums),
        "goals": [
            {"goal": g, "met": met, "found": finding} for g, met, finding in world_report.check_goals(sums)
        ],
    }
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1))
    return facts


def _run_campaign(campaign: EvalCampaign, workers: int) -> None:
    progress = ProgressLine("worlds", SystemClock())

    def show_progress(count: int, last: str) -> None:
        progress.update(f"{count} of {campaign.size}" + (f", {last}" if last else ""))

    try:
        campaign.run_missing(workers, show_progress)
    except KeyboardInterrupt:
        missing_count = len(campaign.missing)
        progress.finish()
        click.echo(
            f"stopped with {missing_count} of {campaign.size} runs to go; the same command goes on", err=True
        )
        raise
    finally:
        progress.finish()


def _show(sums: list[ArmSums], folder: Path) -> None:
    columns: list[Column[ArmSums]] = [
        Column("arm", lambda row: row.arm),
        Column("first try", lambda row: f"{row.first_try.estimate:.1%}", right=True),
        Column("gain over off", lambda row: world_report.format_gain(row.gain), rank=2),
        Column("facts reached", lambda row: f"{row.reached.estimate:.1%}", right=True),
        Column(
            "harm", lambda row: f"{row.harm_end.estimate:.1%}" if row.harm_end else "-", right=True, rank=3
        ),
        Column("poisoned", lambda row: str(row.poisoned), right=True, rank=5),
        Column("leaks", lambda row: str(row.leaks), right=True, rank=5),
        Column("tokens a task", lambda row: f"{row.tokens_per_task:,.0f}", right=True, rank=4),
        Column("cost a success", lambda row: f"{row.cost_per_success:,.0f}", right=True, rank=1),
    ]
    click.echo(table(sums, columns))
    for goal, met, finding in world_report.check_goals(sums):
        click.echo(f"{'ok  ' if met else 'MISS'} {goal}: {finding}")
    if lengths := world_report.describe_lengths(sums):
        click.echo("\n" + "\n".join(lengths))
    losses = find_losses(sums)
    if losses:
        click.echo("\nwhere ours loses:")
        for line in losses:
            click.echo(wrap_text(f"- {line}", indent=2))
    click.echo(
        f"\n{wrap_text('The model is a scripted stand-in: this measures the machinery, no intelligence.')}"
    )
    click.echo(f"report: {folder / 'report.md'}")
