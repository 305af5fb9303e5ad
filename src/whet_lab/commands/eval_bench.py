"""`whet eval bench`: compare Whet's search with plain BM25 on a public memory benchmark."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from whet import __version__
from whet.app.model_links.models import Dialer
from whet.cli.launch import ChatOptions, load_settings
from whet.cli.main import run_on_loop
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import BadInput
from whet.contract.texts import plural
from whet.stats import Interval
from whet.terminal import output
from whet.terminal.output import Column, ProgressLine, cost, emit_json, json_option, number_option
from whet_lab.evals import bench
from whet_lab.evals.bench_data import LOADERS, BenchData, load_benchmark

if TYPE_CHECKING:
    from whet_lab.evals.bench_answers import AnswerArm, AnswerCard

POINTS = "skilllearnbench"
TAU2 = "tau2"
CLBENCH = "clbench"


@click.command("bench")
@click.argument("name", type=click.Choice([*LOADERS, POINTS, TAU2, CLBENCH]))
@click.option(
    "--data",
    "--repo",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder with the benchmark's files; nothing is downloaded.",
)
@number_option("--hits", least=1, most=100, default=10, help="How many hits count.")
@click.option(
    "--answers",
    "answers_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Have your model answer from the hits; its answers are kept here. Costs money.",
)
@click.option("--questions", default=0, metavar="N", help="With --answers: this many, spread over all.")
@click.option("--task", default="", help="clbench: the task, e.g. exploitable_poker.")
@number_option("--instances", least=1, most=1_000, default=20, help="clbench: how many.")
@click.option("--python", default="", help="clbench: the checkout's Python; by default its .venv's.")
@click.option("--arms", default="off,conversation,notes,ours", show_default=True, help="clbench: which arms.")
@click.option("--card", type=click.Path(dir_okay=False, path_type=Path), help="Write the card (JSON) here.")
@json_option
@click.pass_obj
def bench_command(  # noqa: PLR0913 one parameter an option
    home: Home,
    name: str,
    folder: Path,
    hits: int,
    answers_path: Path | None,
    questions: int,
    task: str,
    instances: int,
    python: str,
    arms: str,
    card: Path | None,
    as_json: bool,
) -> None:
    """Measure how much of the evidence for a public benchmark's questions the search finds. Without
    --answers no model is asked.

    skilllearnbench measures the gate of learning: how many true and how many swapped key points of its
    trajectories come into force. tau2 (needs its package and data folder) runs the gold actions of its
    tasks through Whet's tools and checks that they leave the same state as direct calls.

    clbench (needs a working checkout of Continual Learning Bench) runs one of its tasks with your model:
    with Whet's memory, with notes only, as one long conversation and without memory. It costs money.
    """
    if name == CLBENCH:
        outcome = _run_clbench(home, (folder, python, task, instances), arms)
    elif name == TAU2:
        outcome = _run_tau2(folder)
    elif name == POINTS:
        outcome = _run_points(folder)
    elif answers_path is not None:
        outcome = _run_answers(home, load_benchmark(name, folder), hits, (answers_path, max(questions, 0)))
    else:
        outcome = _run_search(load_benchmark(name, folder), hits)
    if card is not None:
        card.write_bytes(msgspec.json.format(msgspec.json.encode(outcome.card)) + b"\n")
    emit_json(outcome.card) if as_json else click.echo(outcome.text)


class _Outcome(NamedTuple):
    """The card of a benchmark, and its text for a terminal."""

    card: msgspec.Struct
    text: str


def _run_answers(home: Home, data: BenchData, hits: int, answer_options: tuple[Path, int]) -> _Outcome:
    from whet_lab.evals.bench_answers import Answerer  # noqa: PLC0415 - what calls a model, and most runs call none

    if not any(question.answer != "" for case in data.cases for question in case.questions):
        raise BadInput(f"the data of {data.name} has no answers to score", hint="leave --answers out")
    settings, clock = load_settings(ChatOptions(home), None), SystemClock()
    dialer, progress = Dialer(settings, load_secrets(home, os.environ)), ProgressLine("bench", SystemClock())

    async def run() -> AnswerCard:
        provider = dialer.connect(settings.model)
        try:
            answerer = Answerer(provider, data, hits, answer_options[0])
            answers = await answerer.run(
                clock, answer_options[1], lambda count, total: progress.update(f"answer {count} of {total}")
            )
            return answerer.build_card(answers, __version__)
        finally:
            await provider.aclose()

    try:
        card = run_on_loop(run())
    finally:
        progress.finish()
        dialer.close()
    columns: list[Column[AnswerArm]] = [
        Column("arm", lambda row: row.arm),
        Column("questions", lambda row: f"{row.questions:,}", right=True),
        Column("score", lambda row: _range(row.score), right=True),
        Column("half right", lambda row: f"{row.right:.3f}", right=True, rank=1),
        Column("tokens", lambda row: f"{row.spent.total_tokens:,}", right=True, rank=2),
        Column("cost", lambda row: cost(row.spent.cost_usd), right=True, rank=3),
    ]
    gap = card.gap
    text = (
        f"{output.table(card.arms, columns)}\n\n"
        f"search - bm25 {_range(gap.gap)}; at least half right by search alone {gap.only_search}, by bm25"
        f" alone {gap.only_bm25}, McNemar p = {gap.p_value:.2g}\n\nanswered by {card.model};"
        f" {', '.join(card.files)}, sha256 {card.sha256[:16]}…, seed {card.seed}"
    )
    return _Outcome(card, text)


def _run_points(folder: Path) -> _Outcome:
    from whet_lab.evals import bench_points  # noqa: PLC0415 - the gate, which the other benchmarks don't need

    card = bench_points.run(folder)
    lines: list[str] = []
    for name, part in card.parts.items():
        provable = max(part.points - part.unshown, 1)
        lines.append(
            f"{part.points:,} true key points ({name}): {part.in_force / part.points:.1%} in force,"
            f" {part.waiting / part.points:.1%} wait for a person, {part.refused / part.points:.1%} refused,"
            f" {part.unshown / part.points:.1%} have no evidence but the assistant's word;"
            f" of the others {part.in_force / provable:.1%} in force"
        )
    lines += [
        f"{card.swapped:,} swapped ones: {card.swapped_in_force} in force",
        f"\n{plural(card.files, 'file')}, sha256 {card.sha256[:16]}…",
    ]
    return _Outcome(card, "\n".join(lines))


def _run_tau2(folder: Path) -> _Outcome:
    from whet_lab.evals import bench_tau2  # noqa: PLC0415 - the whole program, which the others don't need

    card = bench_tau2.run(folder)
    counts = ", ".join(f"{name} {count}" for name, count in card.tasks.items())
    title = (
        f"{sum(card.tasks.values())} tasks ({counts}), {card.calls} gold actions:"
        f" {len(card.other_state)} end in another state"
    )
    return _Outcome(card, "\n".join([title, *(f"  {task}" for task in card.other_state)]))


def _run_clbench(home: Home, checkout: tuple[Path, str, str, int], arms: str) -> _Outcome:
    from whet_lab.evals import bench_clbench  # noqa: PLC0415 - the whole program, which the others don't need

    folder, python, task, instances = checkout
    names = [name.strip() for name in arms.split(",") if name.strip()]
    if not task or not set(names) <= set(bench_clbench.ARMS):
        raise BadInput("clbench needs --task NAME and known --arms", hint=", ".join(bench_clbench.ARMS))
    program = python or str(folder.absolute() / ".venv" / "bin" / "python")
    if shutil.which(program) is None:
        raise BadInput(f"there is no Python at {program}", hint="name the checkout's: --python PATH")
    progress = ProgressLine("bench", SystemClock())
    with tempfile.TemporaryDirectory() as homes:
        setup = bench_clbench.ClbenchSetup(
            repo=folder,
            python=program,
            task=task,
            instances=instances,
            folder=Path(homes),
            settings=load_settings(ChatOptions(home), None),
            secrets=load_secrets(home, os.environ),
        )
        card = run_on_loop(bench_clbench.run(setup, names, progress.update))
    progress.finish()
    columns: list[Column[bench_clbench.ClbenchArm]] = [
        Column("arm", lambda row: row.arm),
        Column("reward", lambda row: f"{row.mean:.3f}", right=True),
        Column("gain", lambda row: _range(row.gain), right=True),
        Column("tokens", lambda row: f"{row.usage.total_tokens:,}", right=True, rank=1),
        Column("cost", lambda row: cost(row.usage.cost_usd), right=True, rank=2),
    ]
    table = output.table(card.arms, columns)
    text = f"{table}\n\n{card.task}, {plural(instances, 'instance')}, answered by {card.model}"
    return _Outcome(card, text)


def _run_search(data: BenchData, hits: int) -> _Outcome:
    clock = SystemClock()
    progress = ProgressLine("bench", clock)
    card = bench.run(
        data, hits, clock, __version__, lambda number, total: progress.update(f"case {number + 1} of {total}")
    )
    progress.finish()
    columns: list[Column[bench.BenchArm]] = [
        Column("arm", lambda row: row.arm),
        Column("questions", lambda row: f"{row.part}, {row.questions}"),
        Column(f"recall@{card.hits}", lambda row: _range(row.recall), right=True),
        Column("any found", lambda row: f"{row.any_found:.3f}", right=True, rank=2),
    ]
    lines = [output.table(card.arms, columns)]
    for gap in card.gaps:
        lines.append(
            f"\n{gap.part}: search - bm25 {_range(gap.gap)}; all evidence found by search alone"
            f" {gap.only_search}, by bm25 alone {gap.only_bm25}, McNemar p = {gap.p_value:.2g}"
        )
    lines.append(f"\n{', '.join(card.files)}, sha256 {card.sha256[:16]}…, seed {card.seed}")
    return _Outcome(card, "\n".join(lines))


def _range(value: Interval) -> str:
    return value.format(".3f")
