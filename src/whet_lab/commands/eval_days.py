"""`whet eval days`: are days with one correction reviewed, from 1 turn to 50, with shipped settings?"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click

from whet.terminal.output import Column, emit_json, json_option, table
from whet_lab.evals.correction_days import CORRECTIONS, CorrectionDay, run_day, summarise_days


@click.command("days", epilog="Example: whet eval days --turns 12")
@click.option(
    "--turns",
    "lengths",
    type=click.IntRange(1, 200),
    multiple=True,
    help="A day of so many turns; repeat it. Default: 1 to 50, about two minutes of CPU.",
)
@json_option
def days(lengths: tuple[int, ...], as_json: bool) -> None:
    """Run days with one correction on the practice model, and count those that were reviewed and kept it."""

    async def run_days() -> list[CorrectionDay]:
        with tempfile.TemporaryDirectory(prefix="whet-days-") as folder:
            return [
                await run_day(Path(folder) / f"{turns}-{kind}", turns, kind)
                for turns in lengths or range(1, 51)
                for kind in CORRECTIONS
            ]

    results = asyncio.run(run_days())
    sums = summarise_days(results)
    if as_json:
        return emit_json({**sums, "each": results})
    shape: list[Column[CorrectionDay]] = [
        Column("turns", lambda day: str(day.turns), right=True),
        Column("correction", lambda day: day.kind),
        Column("reviewed", lambda day: "yes" if day.is_reviewed else "no"),
        Column("in memory", lambda day: "yes" if day.is_kept else "no"),
        Column("reviews' share of the cost", lambda day: f"{day.share:.1%}", right=True),
    ]
    click.echo(table(results, shape))
    click.echo(
        f"{sums['reviewed']} of {sums['days']} days were reviewed, {sums['kept']} kept the correction."
    )
