"""`whet demo`: a guided minute on the practice model, in a temporary folder, without a key.

This is the command and its table of chapters. The story is `cli/demo_story.py`; what a chapter works with
is `cli/demo_play.py`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

from whet.cli import (
    demo_confirm,
    demo_context,
    demo_goals,
    demo_learning,
    demo_sandbox,
    demo_story,
    demo_team,
    demo_warm,
)
from whet.cli.demo_play import DemoRun
from whet.cli.demo_stage import DemoStage, Speed
from whet.cli.demo_world import DemoWorld
from whet.cli.output import emit_json

# Name: what it plays. `story` is what is played without --chapter.
CHAPTERS: dict[str, Callable[[DemoRun], None]] = {
    "story": demo_story.play,
    "context": demo_context.play,
    "learning": demo_learning.play,
    "warm": demo_warm.play,
    "confirm": demo_confirm.play,
    "sandbox": demo_sandbox.play,
    "goals": demo_goals.play,
    "team": demo_team.play,
}

_NEXT = (
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
    # A closed terminal ends the demo as Ctrl-C does; without this its processes and folder would stay.
    signal.signal(signal.SIGHUP, _stop)
    with DemoWorld(keep=keep) as world:
        play = DemoRun(stage, world)
        CHAPTERS[chapter](play)
        folder = str(world.folder)
    failed = [check for check in play.checks if not check.ok]
    if as_json:
        emit_json(
            {
                "chapter": chapter,
                "ok": not failed,
                "checks": play.checks,
                "measured": play.measured,
                "folder": folder,
                "kept": keep,
            }
        )
    else:
        _close(play, keep)
    for check in failed:
        click.echo(f"error: the check {check.name} failed: {check.detail or 'see above'}", err=True)
    context.exit(1 if failed else 0)


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def _close(play: DemoRun, keep: bool) -> None:
    stage, good = play.stage, sum(check.ok for check in play.checks)
    stage.saw(f"{good} of {len(play.checks)} checks hold. To see what each is: whet demo --json")
    stage.title("Now with a real model")
    stage.write("\n")
    stage.table(list(_NEXT))
    if keep:
        stage.write(f"\nKept: {play.world.folder}\n")
