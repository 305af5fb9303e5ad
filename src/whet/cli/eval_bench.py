"""`whet eval bench`: a public memory benchmark on our search, beside plain BM25, with a card of the run."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from whet import __version__
from whet.cli import output
from whet.cli.output import Column, ProgressLine, emit_json, json_option
from whet.clock import SystemClock
from whet.evals import bench
from whet.evals.bench import BenchCard
from whet.evals.bench_data import LOADERS, load
from whet.stats import Interval


@click.command("bench")
@click.argument("name", type=click.Choice(list(LOADERS)))
@click.option(
    "--data",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder with the benchmark's files; nothing is downloaded.",
)
@click.option("--hits", default=10, show_default=True, type=click.IntRange(1, 100), help="How many count.")
@click.option("--card", type=click.Path(dir_okay=False, path_type=Path), help="Write the card (JSON) here.")
@json_option
def bench_command(name: str, folder: Path, hits: int, card: Path | None, as_json: bool) -> None:
    """How much of what answers a public benchmark's questions the search finds; asks no model."""
    clock = SystemClock()
    data = load(name, folder)
    progress = ProgressLine("bench", clock)
    done = bench.run(
        data, hits, clock, __version__, lambda number, total: progress.update(f"case {number + 1} of {total}")
    )
    progress.finish()
    if card is not None:
        card.write_bytes(msgspec.json.format(msgspec.json.encode(done)) + b"\n")
    if as_json:
        return emit_json(done)
    _show(done)


def _show(done: BenchCard) -> None:
    click.echo(
        output.table(
            done.arms,
            [
                Column("arm", lambda row: row.arm),
                Column("questions", lambda row: f"{row.part}, {row.questions}"),
                Column(f"recall@{done.hits}", lambda row: _range(row.recall), right=True),
                Column("any found", lambda row: f"{row.any_found:.3f}", right=True, rank=2),
            ],
        )
    )
    for gap in done.gaps:
        click.echo(
            f"\n{gap.part}: search - bm25 {_range(gap.gap)}; all evidence found by search alone"
            f" {gap.only_search}, by bm25 alone {gap.only_bm25}, McNemar p = {gap.p_value:.2g}"
        )
    click.echo(f"\n{', '.join(done.files)}, sha256 {done.sha256[:16]}…, seed {done.seed}")


def _range(value: Interval) -> str:
    return f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]"
