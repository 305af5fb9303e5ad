"""`whet worker`: run reviews and schedules, or a team's turns, in a process of its own.

`whet chat -q` starts one with --drain, which ends when nothing is due. Several may run at once: each leases
the jobs that it runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from whet.app.learning.review_worker import open_reviews
from whet.app.learning.reviews import ReviewRunner
from whet.cli.main import run_on_loop
from whet.clock import SystemClock
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.events import ReviewFinished
from whet.postgres.driver import needs_driver
from whet.schedules.worker import FinishedRun, ScheduleWorker, run_together
from whet.terminal.output import emit_json
from whet.terminal.wording import printable, review_line


@click.command("worker", epilog="Example: */10 * * * * whet worker --drain")
@click.option("--drain", is_flag=True, help="Run what is due, then end.")
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="With --drain: also wait this long for work that is due soon.",
)
@click.option("--json", "as_json", is_flag=True, help="With --drain: one JSON object at the end.")
@click.option(
    "--turns",
    "max_turns",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Run the turns of a team's queue instead, at most N at a time.",
)
@click.option(
    "--end",
    "end_s",
    type=click.FloatRange(0),
    default=30.0,
    metavar="SECONDS",
    help="With --turns: how long they may take to end at a stop; other workers continue unfinished ones.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(-1, 65_535),
    default=-1,
    metavar="PORT",
    help="With --turns: answer /live, /ready and /metrics there; 0 takes any.",
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="The address for --metrics-port."
)
@click.pass_obj
def worker(home: Home, drain: bool, patience_s: float, as_json: bool, **turns: Any) -> None:
    """Run waiting reviews and due schedules, or a team's turns.

    Ctrl-C stops. The next worker continues an unfinished review; a schedule's run ends as stopped.
    """
    if turns["max_turns"]:
        with needs_driver():
            from whet.cli.team_turns import WorkerOptions, run_turns  # noqa: PLC0415 - brings psycopg, an extra

        address = turns["metrics_host"], turns["metrics_port"]
        run_turns(home, WorkerOptions(turns["max_turns"], turns["end_s"], *address))
        return
    if not drain and (as_json or patience_s):
        raise click.UsageError(f"{'--json' if as_json else '--patience'} needs --drain")
    reviews: list[ReviewFinished] = []
    runs: list[FinishedRun] = []

    def show_review(finished: ReviewFinished) -> None:
        reviews.append(finished)
        if not as_json:
            click.echo(review_line(finished))

    def show_run(finished: FinishedRun) -> None:
        runs.append(finished)
        if not as_json:
            click.echo(describe_run(finished))

    run_on_loop(_run(home, show_review, show_run, patience_s if drain else None))
    if as_json:
        run_rows = [{"name": finished.schedule.name, "run": finished.run} for finished in runs]
        emit_json({"reviews": reviews, "runs": run_rows})


def describe_run(finished: FinishedRun) -> str:
    """Describe the result of a schedule's run."""
    run = finished.run
    note = f": {printable(run.note)}" if run.note else ""
    session = f", session {run.session_id}" if run.session_id else ""
    return f"Schedule {printable(finished.schedule.name)} {run.result}{session}{note}"


async def _run(
    home: Home,
    show_review: Callable[[ReviewFinished], None],
    show_run: Callable[[FinishedRun], None],
    patience_s: float | None,
) -> None:
    """Run reviews and schedules until a signal, or with `patience_s` until none is due."""
    settings = load(home, {}, environ=os.environ).settings
    async with open_reviews(home, settings, load_secrets(home, os.environ)) as reviews:
        reviews.listeners.append(show_review)

        def handle_run(finished: FinishedRun) -> None:
            show_run(finished)
            reviews.wake()  # its turn may have queued a review

        worker = ScheduleWorker(
            home, reviews.database, SystemClock(), settings.schedules.catch_up_s, handle_run
        )
        running = asyncio.ensure_future(_run_jobs(reviews, worker, patience_s))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with suppress(asyncio.CancelledError):
            await running


async def _run_jobs(reviews: ReviewRunner, worker: ScheduleWorker, patience_s: float | None) -> None:
    if patience_s is None:
        await run_together(reviews.serve(), worker.serve())
    else:
        await run_together(reviews.drain(patience_s), worker.drain(patience_s))
