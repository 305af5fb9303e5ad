"""`whet eval days`: are days reviewed, from 1 turn to 50, with shipped settings?"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import get_args

import click

from whet.terminal.output import Column, emit_json, json_option, table
from whet_lab.evals.correction_days import (
    STATEMENTS,
    OrdinaryDay,
    ServerKind,
    run_day,
    summarise_days,
)


@click.command("days", epilog="Example: whet eval days --turns 12")
@click.option(
    "--turns",
    "lengths",
    type=click.IntRange(1, 200),
    multiple=True,
    help="Run a day of that many turns; repeatable. Default: 1 to 50, about a minute of CPU.",
)
@click.option(
    "--server",
    "server_kind",
    type=click.Choice(get_args(ServerKind)),
    default="caching",
    help="Reports cached tokens (the default), none (silent), or none, at an unknown price (unpriced).",
)
@click.option("--talk", "is_talk", is_flag=True, help="Days on which the agent only answers.")
@json_option
def days(lengths: tuple[int, ...], server_kind: ServerKind, is_talk: bool, as_json: bool) -> None:
    """Run days on which the person says one thing worth keeping, and count those that were reviewed and kept
    it: a correction with a value, one with a rule, and a fact that corrects nothing."""

    async def run_days() -> list[OrdinaryDay]:
        with tempfile.TemporaryDirectory(prefix="whet-days-") as folder:
            return [
                await run_day(
                    Path(folder) / f"{turns}-{kind}", turns, kind, server_kind, without_commands=is_talk
                )
                for turns in lengths or range(1, 51)
                for kind in STATEMENTS
            ]

    results = asyncio.run(run_days())
    sums = summarise_days(results)
    if as_json:
        return emit_json({**sums, "each": results})
    columns: list[Column[OrdinaryDay]] = [
        Column("turns", lambda day: str(day.turns), right=True),
        Column("statement", lambda day: day.kind),
        Column("reviewed", lambda day: "yes" if day.is_reviewed else "no"),
        Column("in memory", lambda day: "yes" if day.is_kept else "no"),
        Column("reviews' share of the cost", lambda day: f"{day.share:.1%}", right=True),
    ]
    click.echo(table(results, columns))
    click.echo(f"{sums['reviewed']} of {sums['days']} days were reviewed, {sums['kept']} kept the statement.")
