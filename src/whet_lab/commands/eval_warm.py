"""`whet eval warm`: measure whether a template's examples help on your own tasks, with your own model."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click
import msgspec

from whet.cli.launch import ChatOptions, load_settings, model_flags, model_options
from whet.cli.main import run_on_loop
from whet.cli.stored import open_database
from whet.cli.warm import interval
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import NotFound
from whet.store.warm import find_hidden_sources
from whet.terminal.output import Column, ProgressLine, cost, emit_json, home_and_json, table, wrap_text
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope, mine
from whet.warm.template import Template, load
from whet_lab.evals.own_tasks import read_tasks
from whet_lab.evals.warm_placebo import make_placebo
from whet_lab.evals.warm_trials import (
    ArmSum,
    Comparison,
    Trial,
    TrialArm,
    TrialReport,
    WarmTrialSetup,
    build_report,
    run_all,
)


@click.command("warm", epilog="Example: whet eval warm --template tests --tasks tasks.yaml --repeats 3")
@click.option("--template", "name", required=True, metavar="NAME", help="The template to try.")
@click.option(
    "--tasks",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML: tasks, each with name, prompt, verify (a shell command), perhaps files and setup.",
)
@click.option(
    "--repeats", type=click.IntRange(1, 50), default=3, show_default=True, help="Runs of each task."
)
@model_options
@click.option("--seed", default=0, show_default=True, help="Seed of the placebo.")
@home_and_json
def warm(home: Home, name: str, file: Path, repeats: int, as_json: bool, **options: str | int | None) -> None:
    """Run tasks cold, warm and with a placebo, paired, and compare errors, success, tokens and cost.

    Your approval settings apply, and no one is there to ask: calls that need an approval are denied.
    """
    tasks = read_tasks(file)
    settings = load_settings(ChatOptions(home, flags=model_flags(options)), None)
    secrets = load_secrets(home, os.environ)
    templates = _load_templates(home, load(home, name), int(options["seed"] or 0))
    progress = ProgressLine("running", SystemClock())
    with tempfile.TemporaryDirectory(prefix="whet-eval-") as folder:
        bench = WarmTrialSetup(Path(folder), settings, secrets, templates)
        trials = run_on_loop(run_all(bench, tasks, file.parent, repeats, progress.update))
    progress.finish()
    trial_report = build_report(trials)
    emit_json(_row(name, trial_report, trials)) if as_json else _say(name, trial_report)


def _load_templates(home: Home, template: Template, seed: int) -> dict[TrialArm, Template]:
    clock = SystemClock()
    with open_database(home) as database:
        mined = database.read_now(lambda db: mine(db, MiningScope(min_messages=1), lambda done, total: None))
        sources = list(template.source_session_ids)
        private, _ = database.read_now(lambda db: find_hidden_sources(db, sources))
        options = BuildOptions(name="placebo")
        drawn = database.read_now(lambda db: make_placebo(db, mined, template, options, clock.now(), seed))
    if not drawn.examples:
        raise NotFound(
            "the store has no calls to draw a placebo from", hint="finish sessions with tool calls first"
        )
    public_examples = tuple(example for example in template.examples if example.session_id not in private)
    return {"warm": msgspec.structs.replace(template, examples=public_examples), "placebo": drawn}


def _row(name: str, result: TrialReport, trials: list[Trial]) -> dict[str, object]:
    return {"template": name, "arms": result.arms, "comparisons": result.comparisons, "trials": trials}


def _say(name: str, trial_report: TrialReport) -> None:
    columns: list[Column[ArmSum]] = [
        Column("arm", lambda arm: arm.arm),
        Column("done", lambda arm: f"{arm.succeeded}/{arm.trials}", right=True),
        Column("errors, first 10", lambda arm: f"{arm.failed}/{arm.calls}", right=True),
        Column("prompt tokens", lambda arm: f"{arm.usage.prompt_tokens:,}", right=True, rank=1),
        Column("cached", lambda arm: f"{arm.usage.cache_hit_ratio:.0%}", right=True, rank=2),
        Column("cost", lambda arm: cost(arm.usage.cost_usd), right=True, rank=3),
    ]
    click.echo(table(trial_report.arms, columns) + "\n")
    for row in trial_report.comparisons:
        click.echo(wrap_text(comparison_text(name, row)))


def comparison_text(name: str, row: Comparison) -> str:
    """Return a sentence with a comparison's verdict and its figures."""
    gap = f"{interval(row.fewer_errors)} points fewer errors in the first 10 calls"
    gap += f", {row.tasks} tasks, {row.pairs} pairs"
    wins = f"success: only warm {row.only_warm}, only {row.against} {row.only_other}, p = {row.p:.2g}"
    return f"{name} against {row.against}: {row.verdict}. {gap}; {wins}."
