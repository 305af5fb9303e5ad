"""`whet eval learning`: what learning carries to the point of use, in a world of facts or on your own tasks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click
import msgspec

from whet.cli.output import Column, Progress, emit_json, table, wrapped
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.evals import world_report
from whet.evals.arms import ARMS, pick
from whet.evals.campaign import Campaign, Settings
from whet.evals.chart import learning_chart
from whet.evals.measures import ArmSums, summarise, where_ours_loses
from whet.evals.world import Shape

_LEAST_SESSIONS = 12


@click.command("learning")
@click.option("--seeds", type=click.IntRange(1, 1000), default=20, show_default=True, help="Worlds to run.")
@click.option(
    "--sessions",
    type=click.IntRange(_LEAST_SESSIONS, 200),
    default=30,
    show_default=True,
    help="Sessions of each world.",
)
@click.option("--arms", default="", metavar="LIST", help=f"Of: {', '.join(ARMS)}. Default: all.")
@click.option("--workers", type=click.IntRange(1, 64), default=0, help="Processes. Default: one per core.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for runs and report.")
@click.option("--fresh", is_flag=True, help="Forget the runs that are there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def learning(
    home: Home,
    seeds: int,
    sessions: int,
    arms: str,
    workers: int,
    out: Path | None,
    fresh: bool,
    as_json: bool,
) -> None:
    """Measure learning: which arm gets facts to the point of use, at what harm and cost.

    \b
    whet eval learning                      20 worlds, six arms, a few minutes; Ctrl-C, then again: goes on
    whet eval learning --seeds 3 --arms off,ours
    """
    folder = (out or home.root / "evals" / f"learning-{sessions}").absolute()
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    campaign = Campaign(folder, pick(arms), seeds, Settings(Shape(sessions=sessions)))
    _run(campaign, workers or os.cpu_count() or 1)
    sums = summarise(campaign.runs())
    (folder / "report.md").write_text(world_report.report(sums, campaign.settings), "utf-8")
    curves = {one.arm: one.curve for one in sums}
    (folder / "report.svg").write_text(learning_chart("right at the first try", curves), "utf-8")
    facts = {
        "folder": str(folder),
        "settings": campaign.settings,
        "arms": sums,
        "where_ours_loses": where_ours_loses(sums),
        "goals": [{"goal": g, "met": met, "found": found} for g, met, found in world_report.goals(sums)],
    }
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1))
    if as_json:
        return emit_json(facts)
    _show(sums, folder)


def _run(campaign: Campaign, workers: int) -> None:
    progress = Progress("worlds", SystemClock())

    def tell(there: int, last: str) -> None:
        progress.update(f"{there} of {campaign.size}" + (f", {last}" if last else ""))

    try:
        campaign.go(workers, tell)
    except KeyboardInterrupt:
        left = len(campaign.missing)
        progress.finish()
        click.echo(f"stopped with {left} of {campaign.size} runs to go; the same command goes on", err=True)
        raise
    finally:
        progress.finish()


def _show(sums: list[ArmSums], folder: Path) -> None:
    shape = [
        Column("arm"),
        Column("first try", right=True),
        Column("gain over off", rank=2),
        Column("facts reached", right=True),
        Column("harm", right=True, rank=3),
        Column("poisoned", right=True, rank=5),
        Column("leaks", right=True, rank=5),
        Column("tokens a task", right=True, rank=4),
        Column("cost a success", right=True, rank=1),
    ]
    rows = [
        [
            one.arm,
            f"{one.first_try.estimate:.1%}",
            world_report.gain(one.gain),
            f"{one.reached.estimate:.1%}",
            f"{one.harm_end.estimate:.1%}" if one.harm_end else "-",
            str(one.poisoned),
            str(one.leaks),
            f"{one.tokens_per_task:,.0f}",
            f"{one.cost_per_success:,.0f}",
        ]
        for one in sums
    ]
    click.echo(table(shape, rows))
    for goal, met, found in world_report.goals(sums):
        click.echo(f"{'ok  ' if met else 'MISS'} {goal}: {found}")
    losses = where_ours_loses(sums)
    if losses:
        click.echo("\nwhere ours loses:")
        for line in losses:
            click.echo(wrapped(f"- {line}", indent=2))
    click.echo(
        f"\n{wrapped('The model is a scripted stand-in: this measures the machinery, no intelligence.')}"
    )
    click.echo(f"report: {folder / 'report.md'}")
