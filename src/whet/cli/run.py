"""`whet run --parallel FILE`: run many tasks at once, each in its own session, and print their results."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import click
import msgspec

from whet.app.helpers import task_runs
from whet.cli.launch import ChatOptions, load_settings, model_flags, model_options, start_app, workspace_of
from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.contract.protocols import NobodyPresent
from whet.log import mask
from whet.store.helper_rows import HelperRow, HelperView
from whet.terminal import wording
from whet.terminal.output import Column, emit_rows, home_and_json

_ANSWER_CHARS = 400
_TaskResult = tuple[HelperRow, HelperView]


@click.command("run")
@click.option(
    "--parallel", "file", required=True, metavar="FILE", type=click.Path(path_type=Path), help="The tasks."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=None, help="How many work at once.")
@click.option("--again", is_flag=True, help="Do tasks again that have ended.")
@model_options
@home_and_json
def run(home: Home, file: Path, jobs: int | None, again: bool, as_json: bool, **model_values: object) -> None:
    """Do the tasks of FILE, several at once; with the same file again, only the unfinished ones."""
    options = ChatOptions(home, flags=model_flags(model_values))
    settings = load_settings(options, None)
    if jobs:
        agent = msgspec.structs.replace(settings.agent, delegate_parallel=jobs)
        settings = msgspec.structs.replace(settings, agent=agent)
    tasks = task_runs.read_tasks(file, workspace_of(settings))

    async def run_all() -> list[_TaskResult]:
        async with aclosing(await start_app(options, settings, NobodyPresent())) as app:
            app.sessions.helper_listeners.append(_announce_end)
            rows = await task_runs.run_tasks(app.sessions, tasks, f"run {file.name}", again=again)
            views = await app.database.read(lambda db: task_runs.views_by_name(db, rows[0].parent))
            return [(row, views[row.name]) for row in rows]

    try:
        results = run_on_loop(run_all())
    except KeyboardInterrupt:
        raise click.Abort from None
    _print_results(results, as_json=as_json)
    if not all(task_runs.is_success(row) for row, _ in results):
        raise click.exceptions.Exit(1)


def _announce_end(row: HelperRow) -> None:
    click.echo(f"{task_runs.name_of(row)} has ended", err=True)


def _print_results(results: list[_TaskResult], *, as_json: bool) -> None:
    columns: list[Column[_TaskResult]] = [
        Column("task", lambda result: task_runs.name_of(result[0]), rank=1),
        Column("end", lambda result: result[1].state),
        Column("calls", lambda result: str(result[1].calls), right=True, rank=3),
        Column("tokens", lambda result: f"{result[1].tokens:,}", right=True, rank=2),
        Column("edits", lambda result: result[1].edits or "-", rank=1),
        Column("answer", lambda result: _first_line(result[0]), grows=True),
    ]
    facts = {"session": results[0][0].parent, "tasks": [_as_object(*result) for result in results]}
    emit_rows(results, columns, facts, none="there are no tasks", as_json=as_json)


def _as_object(row: HelperRow, view: HelperView) -> dict[str, object]:
    return {
        "task": task_runs.name_of(row),
        "end": row.reason,
        "answer": mask(row.answer),
        "error": mask(row.error),
        "session": row.session,
        "calls": view.calls,
        "tokens": view.tokens,
        "edits": view.edits,
        "conflicts": list(row.merge.conflicts) if row.merge else [],
    }


def _first_line(row: HelperRow) -> str:
    lines = (row.answer or row.error).strip().splitlines()
    return mask(wording.printable(lines[0][:_ANSWER_CHARS])) if lines else ""
