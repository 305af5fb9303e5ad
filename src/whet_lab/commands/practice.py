"""`whet practice serve`: the practice model as a server, for trying things out without a key.

The practice model is a scripted stand-in, not a language model.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
import msgspec

from whet.contract.errors import ConfigError
from whet_lab.practice.endpoints import BANNER
from whet_lab.practice.script import ScriptedReply, parse_script
from whet_lab.practice.server import PracticeServer
from whet_lab.practice.strict import Options

practice: click.Group = click.Group(
    "practice", help="Run the practice model: a scripted stand-in, not a language model."
)


@practice.command()
@click.option("--port", default=8765, show_default=True, help="Port on 127.0.0.1; 0 takes any free one.")
@click.option(
    "--script", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Replies, as JSON."
)
@click.option("--seed", default=0, help="Goes into response ids and thinking signatures.")
@click.option("--window", default=0, help="Refuse requests of more tokens; 0 takes any.")
@click.option("--delay", default=0.0, help="Seconds before every chunk of an answer.")
def serve(port: int, script: Path | None, seed: int, window: int, delay: float) -> None:
    """Serve Chat Completions, Anthropic Messages and OpenAI Responses until Ctrl-C."""
    options = Options(
        window_tokens=window, delay_s=delay, chunk_chars=24 if delay else 0, keep_bytes=8_000_000
    )
    replies = None if script is None else _load(script)
    signal.signal(signal.SIGTERM, _stop)
    with PracticeServer(port, replies, seed, options) as server:
        click.echo(f"{BANNER}\nOpenAI base URL:    {server.base_url}\nAnthropic base URL: {server.url}")
        click.echo("Model: practice. Stop with Ctrl-C.")
        sys.stdout.flush()
        threading.Event().wait()


command = practice


def _load(path: Path) -> list[ScriptedReply]:
    try:
        return parse_script(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path} is not a practice script: {error}", hint='{"replies": [{"text": "hi"}]}'
        ) from error


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)
