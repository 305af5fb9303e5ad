"""`whet worker`: run reviews in a process of its own, until stopped or until none is left.

A one-shot starts it with --drain, detached. Several may run at once; each job is leased by one of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

import click

from whet.app.review_worker import open_reviews
from whet.app.reviews import Reviews
from whet.cli.output import emit_json
from whet.cli.wording import review_line
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.events import ReviewFinished


@click.command("worker", epilog="Example: */10 * * * * whet worker --drain")
@click.option("--drain", is_flag=True, help="Run what is due, then end.")
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="With --drain: wait so long for what is due soon.",
)
@click.option("--json", "as_json", is_flag=True, help="With --drain: one JSON object at the end.")
@click.pass_obj
def worker(home: Home, drain: bool, patience_s: float, as_json: bool) -> None:
    """Run the reviews that wait. Ctrl-C stops; what was begun goes on with the next worker."""
    if as_json and not drain:
        raise click.UsageError("--json needs --drain")
    done: list[ReviewFinished] = []

    def tell(finished: ReviewFinished) -> None:
        done.append(finished)
        if not as_json:
            click.echo(review_line(finished))

    asyncio.run(_run(home, tell, patience_s if drain else None))
    if as_json:
        emit_json({"reviews": done})


async def _run(home: Home, tell: Callable[[ReviewFinished], None], patience_s: float | None) -> None:
    settings = load(home, {}, environ=os.environ).settings
    async with open_reviews(home, settings, load_secrets(home, os.environ)) as reviews:
        reviews.listeners.append(tell)
        running = asyncio.ensure_future(_work(reviews, patience_s))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with suppress(asyncio.CancelledError):
            await running


async def _work(reviews: Reviews, patience_s: float | None) -> None:
    if patience_s is None:
        await reviews.serve()
    else:
        await reviews.drain(patience_s)
