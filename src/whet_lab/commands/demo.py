"""`whet demo`: a guided minute on the practice model, in a temporary folder, without a key.

This is the command and its table of chapters. `whet_lab/demo/story.py` is the main chapter;
`whet_lab/demo/run.py` is shared by all chapters.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

from whet.terminal.output import emit_json
from whet_lab.demo import confirm, goals, learning, sandbox, story, team, warm
from whet_lab.demo import context as demo_context
from whet_lab.demo.run import DemoRun
from whet_lab.demo.stage import DemoStage, Speed
from whet_lab.demo.world import DemoWorld

# Chapter name to function. `story` runs without --chapter.
CHAPTERS: dict[str, Callable[[DemoRun], None]] = {
    "story": story.run_chapter,
    "context": demo_context.run_chapter,
    "learning": learning.run_chapter,
    "warm": warm.run_chapter,
    "confirm": confirm.run_chapter,
    "sandbox": sandbox.run_chapter,
    "goals": goals.run_chapter,
    "team": team.run_chapter,
}

_NEXT_COMMANDS = (
    ("with a key", "export OPENAI_API_KEY=... (or ANTHROPIC_API_KEY, OPENROUTER_API_KEY, ...), then: whet"),
    ("a local server", "whet chat --base-url http://localhost:11434/v1 --model NAME"),
    ("is it all right?", "whet doctor"),
)


@click.command("demo")
@click.option("--speed", type=click.Choice(["fast", "normal", "slow"]), help="How long to pause for reading.")
@click.option("--chapter", type=click.Choice(list(CHAPTERS)), default="story", help="What to play.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: measurements and checks.")
@click.option("--keep", is_flag=True, help="Keep the folder, and say where it is.")
@click.pass_context
def demo(context: click.Context, speed: Speed | None, chapter: str, as_json: bool, keep: bool) -> None:
    """Watch the whole loop on the practice model: a scripted stand-in, not a language model."""
    stage = DemoStage(speed or ("normal" if sys.stdout.isatty() else "fast"), silent=as_json)
    # A closed terminal ends the demo like Ctrl-C; otherwise its processes and folder would remain.
    signal.signal(signal.SIGHUP, _stop)
    with DemoWorld(keep=keep) as world:
        run = DemoRun(stage, world)
        CHAPTERS[chapter](run)
        folder = str(world.folder)
    failed = [check for check in run.checks if not check.ok]
    if as_json:
        emit_json(
            {
                "chapter": chapter,
                "ok": not failed,
                "checks": run.checks,
                "measured": run.measured,
                "folder": folder,
                "kept": keep,
            }
        )
    else:
        _show_end(run, keep)
    for check in failed:
        click.echo(f"error: the check {check.name} failed: {check.detail or 'see above'}", err=True)
    context.exit(1 if failed else 0)


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def _show_end(run: DemoRun, keep: bool) -> None:
    stage, good = run.stage, sum(check.ok for check in run.checks)
    stage.show_conclusion(f"{good} of {len(run.checks)} checks hold. To see what each is: whet demo --json")
    stage.title("Now with a real model")
    stage.write("\n")
    stage.table(list(_NEXT_COMMANDS))
    if keep:
        stage.write(f"\nKept: {run.world.folder}\n")
